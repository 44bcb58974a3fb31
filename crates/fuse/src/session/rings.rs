//! The threads that serve over io_uring: several for each of the kernel's queues.
//!
//! Handlers wait for media, so one thread cannot serve a queue alone; and each thread has a ring and an entry of its own,
//! so that threads share nothing. The kernel gives a request to the entry that was returned last. A thread stays on the
//! processor of its queue: the one that serves is then woken where the program that asks goes to sleep.
//!
//! Order of a start, which leaves the kernel always one way to go:
//! 1. rings and buffers are made before INIT is answered: where that fails the mount agrees on the device;
//! 2. after INIT each thread registers its entry, one after the other. The kernel holds requests back meanwhile;
//! 3. an entry that is refused, or a thread that cannot start, makes it use the device (`transport::refuse`).
//!
//! A seek may have to wait for requests of its own making (`seeker`). Its thread does so only while another thread of
//! the queue is there to serve them; when it is the last, it starts one more, which stays.
//!
//! Leaves out: processors that are not there. Their queues need an entry each, and so have one thread, which sleeps.

use super::threads::Shared;
use super::worker::{Seeks, StandIn, Worker};
use crate::abi::WRITE_BYTES_MAX;
use crate::negotiate::Agreement;
use crate::statistics::RequestCounters;
use crate::transport::{DevFuse, UringLine, online_processors, pin_to_processor, possible_processors};
use packstone_fs::FileSystem;
use parking_lot::Mutex;
use std::io;
use std::sync::{Arc, mpsc};

/// Threads of all queues together are about as many as this, within the limits below.
const THREADS_WANTED: usize = 16;
/// One alone would make everything wait for a fsync.
const THREADS_MIN: usize = 2;
const THREADS_MAX: usize = 4;

/// How many threads, and what they get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub queues: usize,
    pub threads_per_queue: usize,
    /// The kernel refuses less than its largest request.
    pub payload_bytes: usize,
}

impl Plan {
    /// A plan for this machine. `threads` is the number of all, 0 for the usual.
    pub(super) fn new(threads: usize) -> io::Result<Plan> {
        let queues = possible_processors()?;
        let threads_per_queue = match threads {
            0 => (THREADS_WANTED / queues).clamp(THREADS_MIN, THREADS_MAX),
            count => count.div_ceil(queues),
        };
        Ok(Plan {
            queues,
            threads_per_queue,
            payload_bytes: WRITE_BYTES_MAX,
        })
    }
}

/// Rings that the kernel does not know yet.
pub(super) struct Prepared {
    plan: Plan,
    /// By queue.
    lines: Vec<UringLine>,
}

impl Prepared {
    pub(super) fn new(plan: Plan) -> io::Result<Prepared> {
        let online = online_processors()?;
        let mut lines = Vec::with_capacity(plan.queues * plan.threads_per_queue);
        for queue in 0..plan.queues {
            let threads = if queue < online { plan.threads_per_queue } else { 1 };
            for _ in 0..threads {
                lines.push(new_line(queue, &plan)?);
            }
        }
        Ok(Prepared { plan, lines })
    }

    /// Has the kernel refuse the last entry.
    #[cfg(test)]
    pub(super) fn spoil_last(&mut self) {
        let line = UringLine::new(0, 4096).expect("a ring");
        self.lines.pop();
        self.lines.push(line);
    }
}

fn new_line(queue: usize, plan: &Plan) -> io::Result<UringLine> {
    let queue = u16::try_from(queue).map_err(io::Error::other)?;
    UringLine::new(queue, plan.payload_bytes)
}

/// What the threads of all queues have in common.
pub(super) struct Rings {
    shared: Arc<Shared>,
    filesystem: Arc<FileSystem>,
    agreement: Agreement,
    device: DevFuse,
    plan: Plan,
    staff: Mutex<Vec<Staff>>,
}

/// Threads of one queue.
#[derive(Clone, Copy, Debug, Default)]
struct Staff {
    all: usize,
    /// Those that wait for other requests to be served.
    waiting: usize,
}

impl Rings {
    /// Starts all threads and gives their entries to the kernel. When this fails, it uses the device.
    pub(super) fn start(
        prepared: Prepared,
        shared: Arc<Shared>,
        filesystem: Arc<FileSystem>,
        agreement: Agreement,
        device: DevFuse,
    ) -> io::Result<()> {
        let Prepared { plan, lines } = prepared;
        let rings = Arc::new(Rings {
            shared,
            filesystem,
            agreement,
            device,
            plan,
            staff: Mutex::new(vec![Staff::default(); plan.queues]),
        });
        let mut staff = rings.staff.lock();
        for line in lines {
            rings.start_thread(line, &mut staff)?;
        }
        Ok(())
    }

    /// Returns when the kernel has the new thread's entry.
    fn start_thread(self: &Arc<Self>, mut line: UringLine, staff: &mut [Staff]) -> io::Result<()> {
        let queue = line.queue();
        let (sender, registered) = mpsc::sync_channel(1);
        let (rings, counters) = (self.clone(), self.shared.new_counters());
        let name = format!("fuse-ring-{queue}-{}", staff[queue].all);
        self.shared.start(name, move || {
            if let Err(error) = pin_to_processor(queue) {
                tracing::debug!(%error, queue, "a thread is not kept on its processor");
            }
            let outcome = line.register(&rings.device);
            let is_registered = outcome.is_ok();
            if sender.send(outcome).is_ok() && is_registered {
                rings.worker(line, counters).run();
            }
        })?;
        match registered.recv() {
            Ok(outcome) => outcome?,
            Err(_) => return Err(io::Error::other("a thread ended before it had its entry")),
        }
        staff[queue].all += 1;
        Ok(())
    }

    fn worker(self: &Arc<Self>, line: UringLine, counters: Arc<RequestCounters>) -> Worker<UringLine> {
        let (rings, queue) = (self.clone(), line.queue());
        let stand_in: StandIn = Box::new(move || Some(Box::new(rings.step_aside(queue)?)));
        let seeks = Seeks::Wait {
            outlet: self.device.same_line(),
            stand_in,
        };
        Worker::new(self.filesystem.clone(), line, self.agreement, counters, seeks)
    }

    /// Lets a thread of `queue` wait for other requests. `None` when it is the last one and no other can be started.
    fn step_aside(self: &Arc<Self>, queue: usize) -> Option<Aside> {
        let mut staff = self.staff.lock();
        if staff[queue].all <= staff[queue].waiting + 1 {
            let started = new_line(queue, &self.plan).and_then(|line| self.start_thread(line, &mut staff));
            if let Err(error) = started {
                tracing::warn!(%error, queue, "no thread to serve requests while one waits");
                return None;
            }
        }
        staff[queue].waiting += 1;
        Some(Aside {
            rings: self.clone(),
            queue,
        })
    }
}

/// A thread that waits for other requests.
struct Aside {
    rings: Arc<Rings>,
    queue: usize,
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.rings.staff.lock()[self.queue].waiting -= 1;
    }
}
