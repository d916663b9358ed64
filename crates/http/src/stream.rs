//! An answer that is an event stream.
//!
//! The handler gives the stream and its headers; the server decides, once all layers have seen the head, who carries
//! the stream: hyper as the answer's body (HTTP/2), or the server itself on a socket that leaves hyper (HTTP/1.1).

use std::convert::Infallible;

use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use http_body::Body;

use crate::carried::Carried;

/// The answer that a stream is.
pub fn answer(stream: impl Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Response {
    Carried::Stream(Box::pin(stream)).with_head(headers())
}

/// The headers of every event stream.
pub(crate) fn headers() -> [(HeaderName, HeaderValue); 3] {
    [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ]
}
