//! What nobody may have more of: connections at a time ([`connections`]), and things per second ([`bucket`]).
//!
//! Each is a port with two adapters: embedded, exact within one process, and Redis, exact over a fleet. What is
//! limited, and how far, is up to the parts above.

pub mod bucket;
pub mod connections;

pub use bucket::{Buckets, Rate};
pub use connections::{Connections, Limit, OnReplaced, Place, Policy};

/// A future that a trait object can give.
pub use futures_util::future::BoxFuture as Boxed;
