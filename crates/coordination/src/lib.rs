//! The state that a fleet of hubs shares: which instances are alive ([`registry`]), who owns a lock
//! ([`lock`]), which instance runs a loop ([`runner`]), and the access commands that every instance applies
//! ([`access_commands`]).
//!
//! Locks and access commands are ports with two adapters: embedded, for one process, and Redis, for a fleet. Only a
//! fleet has a registry. Leases end by the engine's clock, not by an instance's.

pub mod access_commands;
mod error;
pub mod lock;
mod options;
pub mod registry;
pub mod runner;

pub use access_commands::{AccessCommand, AccessCommandHandler, AccessCommands};
pub use bongsu_kernel::BoxFuture;
pub use error::Error;
pub use lock::Locks;
pub use options::{INSTANCE_LEASE_TTL, SETTINGS, lock_ttl};

/// The migrations of the revocations table in the embedded file.
pub use access_commands::embedded::MIGRATIONS;
