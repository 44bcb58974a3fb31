//! Tests of the whole pool over the simulated device.

mod crashes;
mod failpoints;
mod full;
mod hostile;
mod image;
mod kv;
mod life;
mod older;
mod repair;
mod threads;
mod views;
pub(super) mod world;
