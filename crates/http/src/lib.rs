//! HTTP for all parts: the envelope of responses, errors in two languages, extractors of identity, bodies with limits,
//! OpenAPI, and the server.
//!
//! This crate depends on no part. A handler takes its inputs as extractors and runs only if all of them
//! succeed; its result becomes the envelope of the response.

pub mod answer;
pub mod body;
mod detached_body;
pub mod fields;
pub mod host;
pub mod identity;
pub mod in_flight;
mod list;
pub mod openapi;
pub mod origins;
pub mod request;
pub mod request_scope;
pub mod route_state;
pub mod server;
pub mod stream;
pub mod websocket;

pub use answer::{Answer, ApiError};
pub use body::{BulkBody, SmallBody};
pub use fields::{Fields, Page, UrlQuery};
pub use identity::{Caller, Identity, ObserverFlag, Operator, Person, Service, StreamPerson};
pub use in_flight::InFlightRequests;
pub use list::{ListChunk, list_response};
pub use request_scope::StreamLanguage;
pub use route_state::RouteState;
pub use server::ConnectionControl;
