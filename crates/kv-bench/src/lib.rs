//! Packstone's trees and the embedded stores of others under the same load, in turns.
//!
//! Each engine writes the same items in transactions that are durable when they return, and reads them back. Engines take
//! turns on the same directory, each time in a new store: `A B C D E`, then `E D C B A`, and so on, so that what drifts on the
//! machine falls on all of them.
//!
//! The stores of others are compiled only with the feature `peers`; nothing of them is part of Packstone.

pub mod device;
pub mod engines;
pub mod items;
pub mod measure;
pub mod report;
