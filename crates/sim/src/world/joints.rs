//! Has the pool die at one of its named joints.

use packstone_pool::{Failpoint, FailpointHandler};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Which joint to die at, and how often each was reached.
#[derive(Debug, Default)]
pub(crate) struct Joints {
    armed: Mutex<Option<(Failpoint, u8)>>,
    died: Mutex<BTreeMap<Failpoint, u64>>,
}

impl Joints {
    /// Dies there when it has been passed `skip` times.
    pub(crate) fn arm(&self, point: Failpoint, skip: u8) {
        *self.armed.lock() = Some((point, skip));
    }

    pub(crate) fn disarm(&self) {
        *self.armed.lock() = None;
    }

    /// Deaths by joint.
    pub(crate) fn died(&self) -> BTreeMap<Failpoint, u64> {
        self.died.lock().clone()
    }
}

impl FailpointHandler for Joints {
    fn reach(&self, point: Failpoint) -> Result<(), String> {
        let mut armed = self.armed.lock();
        match &mut *armed {
            Some((at, 0)) if *at == point => {
                *armed = None;
                *self.died.lock().entry(point).or_default() += 1;
                Err("the simulation has it die here".into())
            }
            Some((at, skip)) if *at == point => {
                *skip -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
