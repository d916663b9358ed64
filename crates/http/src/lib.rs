//! HTTP as every part uses it: the envelope of answers, errors in two languages, identity as extractors, bodies
//! with limits, OpenAPI, and the accept loop.
//!
//! Nothing here knows a part. A handler takes what it needs as arguments and cannot be reached without it; what it
//! gives back becomes one envelope.

pub mod answer;
pub mod body;
mod carried;
pub mod fields;
pub mod frame;
pub mod host;
pub mod identity;
pub mod in_flight;
mod list;
pub mod openapi;
pub mod origins;
pub mod request;
pub mod route_state;
pub mod server;
pub mod stream;
pub mod websocket;

pub use answer::{Answer, ApiError};
pub use body::{Bulk, Small};
pub use fields::{Fields, Page, Query};
pub use frame::StreamLanguage;
pub use identity::{Caller, Identity, Observes, Operator, Person, Service, StreamPerson};
pub use in_flight::InFlight;
pub use list::{Part, listed};
pub use route_state::RouteState;
pub use server::Peer;
