//! Tests of the whole pool over the simulated device.

mod crashes;
mod failpoints;
mod full;
mod hostile;
mod image;
mod life;
mod older;
mod repair;
mod threads;
pub(super) mod world;
