//! Stands between a pool and its device while a script runs, and keeps the device as it was before every change.
//!
//! A group of commits becomes durable as a whole, and it is fixed just before its first write. So the states that a crash
//! may leave are those that were committed at some change of the device, and these are observed at the same moments.

use packstone_media::{Media, MediaCounters, Result, SimulatedMedia};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The device just before one change, and what a crash there may leave.
pub struct Point {
    /// With everything that is not flushed.
    pub device: SimulatedMedia,
    /// The oldest state allowed: the last that was acknowledged as durable.
    pub acknowledged: usize,
    /// The newest state that exists yet.
    pub newest: usize,
    /// Flushes before it: points with the same number share what is durable.
    pub flushes: u64,
}

/// What a script leaves behind.
#[derive(Default)]
pub struct Trace {
    inner: Mutex<Inner>,
    observer: Mutex<Option<Observer>>,
}

/// Renders what is committed now; `None` when nothing was committed since it was last asked.
pub type Observer = Arc<dyn Fn() -> Option<Vec<u8>> + Send + Sync>;

#[derive(Default)]
struct Inner {
    recording: bool,
    states: Vec<Arc<Vec<u8>>>,
    acknowledged: usize,
    points: Vec<Point>,
    flushes: u64,
}

/// The points of a script, and the states they refer to.
pub struct Recorded {
    /// Each different from the one before it, oldest first.
    pub states: Vec<Arc<Vec<u8>>>,
    /// One for every change of the device, and one for the end.
    pub points: Vec<Point>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trace {
    /// Changes are kept from now on, and the state that is committed now is the first that counts.
    pub fn start(&self, observer: Observer) {
        self.watch(Some(observer));
        self.acknowledge();
        lock(&self.inner).recording = true;
    }

    /// Changes are kept from now on, without states: for the opening of a pool, which commits nothing.
    pub fn start_without_states(&self) {
        lock(&self.inner).recording = true;
    }

    /// What renders states from now on: another pool, or none while there is none.
    pub fn watch(&self, observer: Option<Observer>) {
        *lock(&self.observer) = observer;
    }

    /// Notes the state that is committed now, if it is another than before. Answers its number.
    pub fn observe(&self) -> usize {
        let observer = lock(&self.observer).clone();
        // Without the lock: observing reads through the recorder.
        let state = observer.and_then(|observer| observer());
        let mut inner = lock(&self.inner);
        if let Some(state) = state
            && inner.states.last().is_none_or(|last| **last != state)
        {
            inner.states.push(Arc::new(state));
        }
        inner.states.len().saturating_sub(1)
    }

    /// Everything committed until now was acknowledged as durable.
    pub fn acknowledge(&self) {
        let newest = self.observe();
        lock(&self.inner).acknowledged = newest;
    }

    fn before_change(&self, device: &SimulatedMedia) {
        if !lock(&self.inner).recording {
            return;
        }
        let newest = self.observe();
        let mut inner = lock(&self.inner);
        let point = Point {
            device: device.fork(),
            acknowledged: inner.acknowledged,
            newest,
            flushes: inner.flushes,
        };
        inner.points.push(point);
    }

    /// Ends recording; the device as it is now is the last point.
    pub fn finish(&self, device: &SimulatedMedia) -> Recorded {
        self.before_change(device);
        *lock(&self.observer) = None;
        let inner = std::mem::take(&mut *lock(&self.inner));
        Recorded {
            states: inner.states,
            points: inner.points,
        }
    }
}

/// The device, recorded.
pub struct Recorder {
    /// What is recorded.
    pub device: Arc<SimulatedMedia>,
    /// Where to.
    pub trace: Arc<Trace>,
}

impl Media for Recorder {
    fn read(&self, offset_bytes: u64, buffer: &mut [u8]) -> Result<()> {
        self.device.read(offset_bytes, buffer)
    }

    fn write(&self, offset_bytes: u64, data: &[u8]) -> Result<()> {
        self.trace.before_change(&self.device);
        self.device.write(offset_bytes, data)
    }

    fn flush(&self) -> Result<()> {
        self.trace.before_change(&self.device);
        self.device.flush()?;
        lock(&self.trace.inner).flushes += 1;
        Ok(())
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<()> {
        self.trace.before_change(&self.device);
        self.device.discard(offset_bytes, length_bytes)
    }

    fn size_bytes(&self) -> u64 {
        self.device.size_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.device.sector_bytes()
    }

    fn description(&self) -> String {
        self.device.description()
    }

    fn counters(&self) -> MediaCounters {
        self.device.counters()
    }
}
