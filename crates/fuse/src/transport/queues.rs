//! The queues of the io_uring transport: the kernel has one for each processor that may ever be there, numbered like
//! the processors, and puts a request into the queue of the processor the asking program runs on.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::io;

/// How many processors the kernel counts on, present or not. Every one has a queue.
pub(crate) fn possible_processors() -> io::Result<usize> {
    read_count("/sys/devices/system/cpu/possible")
}

/// One more than the highest number of a processor that is there now.
pub(crate) fn online_processors() -> io::Result<usize> {
    read_count("/sys/devices/system/cpu/online")
}

/// Whether the kernel offers io_uring to new mounts: it knows how, and the administrator has allowed it.
pub(crate) fn is_offered() -> bool {
    fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|setting| setting.trim() == "Y")
}

fn read_count(path: &str) -> io::Result<usize> {
    let text = fs::read_to_string(path)?;
    count_processors(&text).ok_or_else(|| {
        let message = format!(
            "{path} is not a list of processors: {}",
            text.trim().escape_debug()
        );
        io::Error::new(io::ErrorKind::InvalidData, message)
    })
}

/// One more than the highest number in a list like `0-3,8`: queues are numbered without gaps.
fn count_processors(list: &str) -> Option<usize> {
    let highest = list.trim().split(',').map(|range| {
        let last = range.rsplit('-').next()?;
        last.parse::<u16>().ok()
    });
    highest
        .collect::<Option<Vec<u16>>>()?
        .into_iter()
        .max()
        .map(|highest| usize::from(highest) + 1)
}

/// Where a thread may run: usually on its queue's processor alone, so that a request wakes a thread where its data is in
/// the caches, and no other processor has to be woken. For long work it may go elsewhere: several long requests of one
/// program, a read-ahead say, come by one queue, and would otherwise take turns on one processor.
#[derive(Debug)]
pub(super) struct Processors {
    home: CpuSet,
    /// Where the thread was allowed to run before.
    anywhere: CpuSet,
    is_home: bool,
}

impl Processors {
    /// Keeps the calling thread on one processor. Fails where that is not there or not allowed, which does no harm.
    pub(super) fn stay_on(processor: usize) -> io::Result<Processors> {
        if processor >= CpuSet::MAX_CPU {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut home = CpuSet::new();
        home.set(processor);
        let anywhere = sched_getaffinity(None)?;
        sched_setaffinity(None, &home)?;
        Ok(Processors {
            home,
            anywhere,
            is_home: true,
        })
    }

    /// Lets the calling thread go anywhere, or keeps it at home again. A failure leaves it where it is.
    pub(super) fn set_home(&mut self, is_home: bool) {
        if self.is_home != is_home {
            let set = if is_home { &self.home } else { &self.anywhere };
            if let Err(error) = sched_setaffinity(None, set) {
                tracing::debug!(%error, "a thread stays where it is");
            }
            self.is_home = is_home;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_from_the_kernels_list() {
        assert_eq!(count_processors("0\n"), Some(1));
        assert_eq!(count_processors("0-1\n"), Some(2));
        assert_eq!(count_processors("0-3,8-11"), Some(12));
        for nonsense in ["", "\n", "x", "0-", "-", "0,,1", "0-99999"] {
            assert_eq!(count_processors(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_thread_leaves_its_processor_and_comes_back() {
        let before = sched_getaffinity(None).expect("a set");
        let processor = (0..CpuSet::MAX_CPU).find(|processor| before.is_set(*processor));
        let mut processors = Processors::stay_on(processor.expect("at least one")).expect("pinned");
        assert_eq!(sched_getaffinity(None).expect("a set").count(), 1);
        processors.set_home(false);
        assert_eq!(sched_getaffinity(None).expect("a set"), before);
        processors.set_home(true);
        assert_eq!(sched_getaffinity(None).expect("a set").count(), 1);
    }

    #[test]
    fn this_machine_has_processors() {
        let online = online_processors().expect("a list");
        assert!(online >= 1 && possible_processors().expect("a list") >= online);
        assert!(Processors::stay_on(CpuSet::MAX_CPU).is_err());
    }
}
