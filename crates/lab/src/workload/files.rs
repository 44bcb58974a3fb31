//! Many small files, as a mail server has them: a Maildir.
//!
//! A message is delivered as Bernstein's Maildir has it: written to `tmp`, synced, renamed into `new`, the directory synced.
//! Phases: `deliver`, `list` and `read` (cold), `flag` (renames from `new` to `cur`, as when messages are seen), `delete`
//! (every third).
//!
//! Leaves out: several mail boxes in one directory, mbox and databases of mail.

mod message;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Parameters, Workload, at_least_one, make_cold, own_processes, record_stored, record_throughput};
use crate::figure::{Better, Unit};
use crate::interrupt;
use crate::latencies::Latencies;
use crate::turn::{Turn, Work};
use message::Messages;

/// Parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Files {
    /// Messages in all.
    messages: u64,
    /// Threads that work at the same time, each in a mail box of its own.
    threads: u32,
    /// Half of the messages are smaller.
    median_bytes: u64,
    /// How far sizes spread: the standard deviation of their logarithm.
    spread: f64,
    /// No message is larger.
    largest_bytes: u64,
    /// Whether delivery waits until the message is durable.
    sync: bool,
}

impl Default for Files {
    fn default() -> Files {
        Files {
            messages: 20_000,
            threads: 4,
            median_bytes: 5_000,
            spread: 1.3,
            largest_bytes: 2 << 20,
            sync: true,
        }
    }
}

impl Parameters for Files {
    fn validate(&self) -> Result<()> {
        at_least_one("messages", self.messages)?;
        at_least_one("threads", self.threads.into())?;
        at_least_one("median_bytes", self.median_bytes)?;
        if !(0.0..=4.0).contains(&self.spread) {
            bail!("'spread' has to be from 0 to 4");
        }
        if self.largest_bytes < self.median_bytes {
            bail!("'largest_bytes' is less than 'median_bytes'");
        }
        Ok(())
    }
}

impl Workload for Files {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn storage_bytes(&self) -> u64 {
        // The mean of a lognormal distribution, and a block for what does not fill one and for the inode.
        let mean = self.median_bytes as f64 * (self.spread * self.spread / 2.0).exp();
        (1 << 29) + self.messages * (mean as u64 + 8192)
    }

    fn run(&self, turn: &mut dyn Turn) -> Result<()> {
        let boxes = self.make_boxes(turn)?;
        self.phase(turn, "deliver", true, &boxes, &|mail_box, times| {
            mail_box.deliver(self.sync, times)
        })?;
        turn.place().settle()?;
        record_stored(turn, "")?;
        make_cold(turn)?;
        self.phase(turn, "list", false, &boxes, &|mail_box, _| mail_box.list())?;
        let read = self.phase(turn, "read", false, &boxes, &|mail_box, times| {
            mail_box.read(times)
        })?;
        turn.record(
            "read",
            "read bytes",
            Unit::BytesPerSecond,
            Better::Higher,
            read.bytes as f64 / read.seconds,
        );
        self.phase(turn, "flag", true, &boxes, &|mail_box, times| {
            mail_box.flag(times)
        })?;
        self.phase(turn, "delete", true, &boxes, &|mail_box, times| {
            mail_box.delete_some(times)
        })?;
        Ok(())
    }
}

/// What a phase or a part of it did.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    messages: u64,
    bytes: u64,
    seconds: f64,
}

/// Work on one mail box, which notes the time of each operation.
type BoxWork<'a> = dyn Fn(&MailBox, &mut Latencies) -> Result<Done> + Sync + 'a;

impl Files {
    fn make_boxes(&self, turn: &mut dyn Turn) -> Result<Vec<MailBox>> {
        let threads = u64::from(self.threads);
        let mut boxes = Vec::new();
        for number in 0..threads {
            let directory = turn
                .place()
                .directory()
                .join(format!("user-{number}"))
                .join("Maildir");
            for part in ["tmp", "new", "cur"] {
                let path = directory.join(part);
                fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
            }
            boxes.push(MailBox {
                directory,
                messages: self.messages / threads + u64::from(number < self.messages % threads),
                source: Messages {
                    seed: turn.seed().wrapping_add(number << 32),
                    median_bytes: self.median_bytes,
                    spread: self.spread,
                    largest_bytes: self.largest_bytes,
                },
            });
        }
        Ok(boxes)
    }

    /// Works on all boxes at once as the phase `name`.
    fn phase(
        &self,
        turn: &mut dyn Turn,
        name: &str,
        writes: bool,
        boxes: &[MailBox],
        work: &BoxWork,
    ) -> Result<Done> {
        turn.say(name);
        let mut total = Done::default();
        let mut latencies = Latencies::default();
        turn.measure(name, &own_processes(), writes, &mut || {
            let started = Instant::now();
            let parts = on_all(boxes, work)?;
            total.seconds = started.elapsed().as_secs_f64();
            for (done, times) in parts {
                total.messages += done.messages;
                total.bytes += done.bytes;
                latencies.append(times);
            }
            Ok(Work {
                operations: total.messages,
                operation: "message",
            })
        })?;
        record_throughput(turn, name, total.messages, total.seconds);
        std::mem::take(&mut latencies).record(turn, name, "message", false);
        Ok(total)
    }
}

/// Does `work` on every box in a thread of its own.
fn on_all(boxes: &[MailBox], work: &BoxWork) -> Result<Vec<(Done, Latencies)>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = boxes
            .iter()
            .map(|mail_box| {
                scope.spawn(move || {
                    let mut times = Latencies::default();
                    work(mail_box, &mut times).map(|done| (done, times))
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(part) => part,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}

/// One user's Maildir.
struct MailBox {
    directory: PathBuf,
    messages: u64,
    source: Messages,
}

impl MailBox {
    fn deliver(&self, sync: bool, times: &mut Latencies) -> Result<Done> {
        let (tmp, new) = (self.directory.join("tmp"), self.directory.join("new"));
        let new_directory = File::open(&new)?;
        let mut done = Done::default();
        for number in 0..self.messages {
            interrupt::check()?;
            // Made before the clock starts: it is the sender's work.
            let message = self.source.message(number);
            let name = Messages::file_name(number, message.len());
            let started = Instant::now();
            let path = tmp.join(&name);
            let mut file =
                File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
            file.write_all(&message)
                .with_context(|| format!("cannot write {}", path.display()))?;
            if sync {
                file.sync_all()
                    .with_context(|| format!("cannot sync {}", path.display()))?;
            }
            drop(file);
            fs::rename(&path, new.join(&name))
                .with_context(|| format!("cannot rename {}", path.display()))?;
            if sync {
                new_directory
                    .sync_all()
                    .with_context(|| format!("cannot sync {}", new.display()))?;
            }
            times.push(started.elapsed());
            done.messages += 1;
            done.bytes += message.len() as u64;
        }
        Ok(done)
    }

    /// Names and attributes of everything, as a mail program wants them first.
    fn list(&self) -> Result<Done> {
        let mut done = Done::default();
        for path in self.paths_in("new")? {
            interrupt::check()?;
            let metadata =
                fs::metadata(&path).with_context(|| format!("cannot look at {}", path.display()))?;
            done.messages += 1;
            done.bytes += metadata.len();
        }
        self.expect_all(&done)
    }

    fn read(&self, times: &mut Latencies) -> Result<Done> {
        let mut done = Done::default();
        let mut message = Vec::new();
        for path in self.paths_in("new")? {
            interrupt::check()?;
            let started = Instant::now();
            message.clear();
            File::open(&path)
                .and_then(|mut file| file.read_to_end(&mut message))
                .with_context(|| format!("cannot read {}", path.display()))?;
            times.push(started.elapsed());
            done.messages += 1;
            done.bytes += message.len() as u64;
        }
        self.expect_all(&done)
    }

    /// A storage that loses messages gets no figures.
    fn expect_all(&self, done: &Done) -> Result<Done> {
        if done.messages != self.messages {
            bail!(
                "{} holds {} messages, {} were delivered",
                self.directory.display(),
                done.messages,
                self.messages
            );
        }
        Ok(*done)
    }

    fn flag(&self, times: &mut Latencies) -> Result<Done> {
        let cur = self.directory.join("cur");
        let mut done = Done::default();
        for path in self.paths_in("new")? {
            interrupt::check()?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let seen = cur.join(format!("{name}:2,S"));
            let started = Instant::now();
            fs::rename(&path, &seen).with_context(|| format!("cannot rename {}", path.display()))?;
            times.push(started.elapsed());
            done.messages += 1;
        }
        self.expect_all(&done)
    }

    fn delete_some(&self, times: &mut Latencies) -> Result<Done> {
        let mut done = Done::default();
        let mut paths = self.paths_in("cur")?;
        // The directory's order differs between file systems; which messages go must not.
        paths.sort();
        for path in paths.iter().step_by(3) {
            interrupt::check()?;
            let started = Instant::now();
            fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
            times.push(started.elapsed());
            done.messages += 1;
        }
        Ok(done)
    }

    fn paths_in(&self, part: &str) -> Result<Vec<PathBuf>> {
        let directory = self.directory.join(part);
        read_names(&directory).with_context(|| format!("cannot list {}", directory.display()))
    }
}

fn read_names(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect()
}
