//! What a fleet of hubs agrees on: who is alive ([`registry`]), who holds a lock ([`lock`]), who alone runs a loop
//! ([`runner`]), and who is to be sent away everywhere ([`orders`]).
//!
//! Locks and orders are ports with two adapters: embedded, for one process, and Redis, for a fleet; only a fleet has a
//! registry. Time is the engine's, not a node's.

mod error;
pub mod lock;
mod options;
pub mod orders;
pub mod registry;
pub mod runner;

pub use bongsu_kernel::Boxed;
pub use error::Error;
pub use lock::Locks;
pub use options::{LEASE, SETTINGS, lock_ttl};
pub use orders::{Apply, Order, Orders};

/// The migrations of what is kept in the embedded file.
pub use orders::embedded::MIGRATIONS;
