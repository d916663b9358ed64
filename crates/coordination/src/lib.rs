//! What a fleet of hubs agrees on: who is alive ([`registry`]), who holds a lock ([`lock`]), who alone runs a loop
//! ([`runner`]), and who is to be sent away everywhere ([`orders`]).
//!
//! Each is a port with two adapters: embedded, for one process, and Redis, for a fleet. Time is the engine's, not a
//! node's. What must not be done by somebody who only thinks that it is its turn is guarded by a [`Fence`].

mod error;
mod fence;
pub mod lock;
mod options;
pub mod orders;
pub mod registry;
pub mod runner;

use std::pin::Pin;
use std::sync::Arc;

pub use error::Error;
pub use fence::Fence;
pub use lock::Locks;
pub use options::{LEASE, Options, SETTINGS};
pub use orders::{Apply, Order, Orders};
pub use registry::Registry;

/// A future that a trait object can give.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// All of it, on one engine. Cheap to clone.
#[derive(Clone)]
pub struct Coordination {
    pub registry: Arc<dyn Registry>,
    pub locks: Arc<dyn Locks>,
    pub orders: Arc<dyn Orders>,
}

/// The migrations of what is kept in the embedded file.
pub use orders::embedded::MIGRATIONS;
