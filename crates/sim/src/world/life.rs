//! One life from one seed, with the steps it took, so that a part of them can be lived again.

use super::generate::Generator;
use super::operation::{Operation, Step};
use super::profile::Profile;
use super::state::{Checked, Counts, Trouble, Violation, World};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a life ended.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) digest: u64,
    pub(crate) counts: Counts,
    pub(crate) steps: Vec<Step>,
    /// The operation at which a promise was broken, and how.
    pub(crate) failure: Option<(u32, Violation)>,
}

thread_local! {
    /// Where and why this thread panicked last.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics of worlds off the terminal; they are reported as failures.
pub(crate) fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.to_string();
        PANIC.with(|last| *last.borrow_mut() = Some(text));
    }));
}

pub(crate) fn profile(seed: u64) -> Profile {
    Profile::draw(&mut SmallRng::seed_from_u64(seed))
}

/// A whole life of so many operations.
pub(crate) fn live(seed: u64, operations: u32) -> Life {
    let profile = profile(seed);
    let mut generator = Generator::new(seed, &profile);
    let mut steps = vec![];
    run(profile, &mut |world| {
        let number = steps.len() as u32 + 1;
        if number > operations {
            return None;
        }
        let step = generator.next(world, number);
        steps.push(step.clone());
        Some(step)
    })
    .with_steps(steps)
}

/// The same world with the given steps only.
pub(crate) fn live_again(seed: u64, steps: &[Step]) -> Life {
    let mut rest = steps.iter();
    run(profile(seed), &mut |_| rest.next().cloned()).with_steps(steps.to_vec())
}

impl Life {
    fn with_steps(self, steps: Vec<Step>) -> Life {
        Life { steps, ..self }
    }
}

fn run(profile: Profile, next: &mut dyn FnMut(&World) -> Option<Step>) -> Life {
    let mut number = 0;
    let mut world = None;
    let lived = catch_unwind(AssertUnwindSafe(|| -> Checked {
        let world = world.insert(World::new(profile)?);
        while let Some(step) = next(world) {
            number = step.number;
            world.step(&step)?;
        }
        number += 1;
        world.end(number)
    }));
    let (digest, counts) = world
        .as_ref()
        .map_or((0, Counts::default()), |world| (world.digest, world.all_counts()));
    let violation = match lived {
        Ok(lived) => lived.err(),
        Err(_) => {
            let text = PANIC.with(|last| last.borrow_mut().take()).unwrap_or_default();
            // A panic may have left locks and queues in any state: what holds them must not run again.
            std::mem::forget(world);
            let what = text.lines().next().unwrap_or("panic").to_owned();
            Some(Violation { what, detail: text })
        }
    };
    Life {
        digest,
        counts,
        steps: vec![],
        failure: violation.map(|violation| (number, violation)),
    }
}

impl World {
    /// The end of a life: everything is compared once more, over a clean end and a new beginning.
    fn end(&mut self, number: u32) -> Checked {
        self.journal.number = u64::from(number);
        if self.trouble != Trouble::None {
            self.crash(self.loss)?;
        }
        for slot in 0..self.slots.len() as u8 {
            self.compare(slot, usize::MAX)?;
        }
        let reopen = Step {
            number: number + 1,
            witness: false,
            operation: Operation::Reopen,
        };
        self.step(&reopen)?;
        self.settle_files()?;
        self.check()
    }

    /// Lets background work finish, after which no orphan may be left.
    fn settle_files(&mut self) -> Checked {
        self.time_ms += 10_000;
        for slot in 0..self.slots.len() {
            let now = self.now();
            let Some(fs) = &self.slots[slot].fs else { continue };
            let mut steps = 0;
            loop {
                match fs.step(now) {
                    Ok(false) => break,
                    Ok(true) if steps < 100_000 => steps += 1,
                    Ok(true) => {
                        return super::state::violation("background work does not end", slot.to_string());
                    }
                    Err(error) => return super::state::fs_violation("background work of files", Err(error)),
                }
            }
            let closed = fs.close();
            super::state::fs_violation("close", closed)?;
            let report = packstone_fs::check(self.pool(), &self.slots[slot].name, &mut |_, _| {});
            let report = super::state::fs_violation("check", report)?;
            if report.orphans > 0 {
                return super::state::violation("orphans are left", report.orphans.to_string());
            }
        }
        let written = self.pool().checkpoint_now();
        self.judge_pool("checkpoint", super::execute::Room::Needs, written)
            .map(drop)
    }
}
