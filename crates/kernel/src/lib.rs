//! What every other crate stands on: ids, positions, events, JSON text, SSE frames, close codes, errors,
//! settings, time, backoff, supervised tasks and telemetry.
//!
//! Nothing here knows HTTP, storage or a part. Types make bad states impossible to carry further: an [`Id`],
//! an [`EventType`] or a [`json::Object`] was checked once, where it came in.

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
pub mod task;
pub mod telemetry;
pub mod text;
pub mod trace;

use std::pin::Pin;

pub use backoff::Backoff;
pub use clock::{Clock, Millis};
pub use close::Close;
pub use error::{Code, Invalid, Outage, Reason};
pub use event::EventType;
pub use id::Id;
pub use position::StreamId;
pub use recent::Recent;
pub use shrink::shrink;

/// A future that a trait object or a function pointer can give.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
