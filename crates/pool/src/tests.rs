//! Tests of the whole pool over the simulated device.

mod crashes;
mod life;
mod threads;
mod world;
