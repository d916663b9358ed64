//! A response that is an event stream.
//!
//! The handler returns the stream and its headers. Once all middleware layers have seen the head, the server decides
//! who writes the stream: hyper as the response's body (HTTP/2), or the server itself on a detached socket (HTTP/1.1).

use std::convert::Infallible;

use axum::response::{IntoResponse, Response};
use bongsu_kernel::Reason;
use bongsu_kernel::close::END_PREFIX;
use bongsu_kernel::text::Text;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderName, HeaderValue, StatusCode};
use http_body::Body;

use crate::answer::invalid;
use crate::detached_body::DetachedBody;
use crate::{ApiError, UrlQuery};

/// The response with this stream as its body.
pub fn response(stream: impl Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Response {
    DetachedBody::Stream(Box::pin(stream)).with_head(headers())
}

/// Reads the position after which a stream begins, from `Last-Event-ID` or else from the query parameter, with the name
/// of the field that has it; None if neither is given. For a position that marks a stream as ended for good, the error
/// is a 204 response, on which a plain EventSource stops reconnecting.
#[expect(clippy::result_large_err, reason = "the error is a response, and rare")]
pub fn resume_position<T>(
    parts: &Parts,
    parameter: &'static str,
    read: impl Fn(&str) -> Result<T, Reason>,
) -> Result<Option<(T, &'static str)>, Response> {
    let query = UrlQuery::parse(parts.uri.query()).map_err(|error| ApiError::from(error).into_response())?;
    let (name, text) = match parts.headers.get("last-event-id") {
        Some(header) => ("Last-Event-ID", header.to_str().unwrap_or("?")),
        None => (parameter, query.get(parameter).unwrap_or_default()),
    };
    if text.starts_with(END_PREFIX) {
        return Err(StatusCode::NO_CONTENT.into_response());
    }
    if text.is_empty() {
        return Ok(None);
    }
    read(text).map(|position| Some((position, name))).map_err(|reason| invalid(name, reason).into_response())
}

/// Reads a position that is a number of at least `min`. Only the canonical form is accepted, so that a position has one
/// spelling.
pub fn parse_number(text: &str, min: i64) -> Result<i64, Reason> {
    let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text && *number >= min);
    number.ok_or_else(|| {
        Reason::Custom(Text::owned(
            format!("{min}에서 {} 사이의 정수여야 합니다", i64::MAX),
            format!("must be a whole number from {min} to {}", i64::MAX),
        ))
    })
}

/// The headers of every event stream.
pub(crate) fn headers() -> [(HeaderName, HeaderValue); 3] {
    [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ]
}
