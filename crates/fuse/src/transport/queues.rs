//! The queues of the io_uring transport: the kernel has one for each processor that may ever be there, numbered like
//! the processors, and puts a request into the queue of the processor the asking program runs on.

use rustix::thread::{CpuSet, sched_setaffinity};
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

/// Keeps the calling thread on one processor. The request then wakes a thread where its data is in the caches, and no
/// other processor has to be woken. Fails where the processor is not there or not allowed, which does no harm.
pub(crate) fn pin_to_processor(processor: usize) -> io::Result<()> {
    if processor >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut set = CpuSet::new();
    set.set(processor);
    Ok(sched_setaffinity(None, &set)?)
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
    fn this_machine_has_processors() {
        let online = online_processors().expect("a list");
        assert!(online >= 1 && possible_processors().expect("a list") >= online);
        assert!(pin_to_processor(CpuSet::MAX_CPU).is_err());
    }
}
