//! Tests of the whole pool over the simulated device.

mod crashes;
mod failpoints;
mod full;
mod hostile;
mod image;
mod life;
mod threads;
mod world;
