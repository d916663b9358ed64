//! Limits per person: open connections ([`connections`]), and operations per second ([`bucket`]).
//!
//! Each is a port with two adapters: embedded, exact within one process, and Redis, exact over a fleet. The crates that
//! use the ports decide which operations are limited, and by how much.

pub mod bucket;
pub mod connections;

pub use bongsu_kernel::BoxFuture;
pub use bucket::{Buckets, Rate};
pub use connections::{ConnectionPermit, Connections, Limit, OnReplaced, Policy};
