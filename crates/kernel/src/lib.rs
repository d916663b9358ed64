//! The base crate of the workspace: ids, positions, events, JSON text, SSE frames, close codes, errors, settings, time,
//! backoff, supervised tasks and telemetry.
//!
//! This crate does not depend on HTTP, storage or a part. An [`Id`], an [`EventType`] or a [`json::Object`] is
//! validated once, when it is constructed from input, so code that receives one does not validate it again.

mod backoff;
pub mod clock;
pub mod close;
pub mod crash;
pub mod error;
pub mod event;
pub mod findings;
pub mod id;
pub mod json;
pub mod position;
pub mod random;
pub mod recent;
pub mod settings;
mod shrink;
pub mod sse;
mod sync;
pub mod task;
pub mod telemetry;
pub mod text;
pub mod trace;

use std::pin::Pin;

pub use backoff::Backoff;
pub use clock::{Clock, Millis};
pub use close::Close;
pub use error::{Code, InvalidField, Outage, Reason};
pub use event::EventType;
pub use id::Id;
pub use position::StreamId;
pub use recent::RecentCache;
pub use shrink::shrink;
pub use sync::lock;

/// A boxed future, as methods of trait objects and function pointers return it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
