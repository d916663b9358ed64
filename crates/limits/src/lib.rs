//! What nobody may have more of: places at a time ([`cap`]), and things per second ([`bucket`]).
//!
//! Each is a port with two adapters: embedded, exact within one process, and Redis, exact over a fleet. What is
//! limited, and how far, is up to the parts above.

pub mod bucket;
pub mod cap;

use std::pin::Pin;
use std::sync::Arc;

use bongsu_kernel::Outage as Away;
pub use bucket::{Buckets, Rate};
pub use cap::{Cap, Place};

/// A future that a trait object can give.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// All of it, on one engine. Cheap to clone.
#[derive(Clone)]
pub struct Limits {
    pub cap: Arc<dyn Cap>,
    pub buckets: Arc<dyn Buckets>,
}
