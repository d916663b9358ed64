//! An answer that is an event stream.
//!
//! The handler gives the stream and its headers; the server decides, once all layers have seen the head, who carries
//! the stream: hyper as the answer's body (HTTP/2), or the server itself on a socket that leaves hyper (HTTP/1.1).

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
use crate::carried::Carried;
use crate::{ApiError, Query};

/// The answer that a stream is.
pub fn answer(stream: impl Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Response {
    Carried::Stream(Box::pin(stream)).with_head(headers())
}

/// Where a stream begins: after the position in `Last-Event-ID`, or else in the parameter, if one is given; with the name of the
/// field that has it. The refusal of a stream that ended for good is the answer that stops a plain EventSource.
#[expect(clippy::result_large_err, reason = "a refusal is an answer, and rare")]
pub fn resumed<T>(
    parts: &Parts,
    parameter: &'static str,
    read: impl Fn(&str) -> Result<T, Reason>,
) -> Result<Option<(T, &'static str)>, Response> {
    let query = Query::of(parts.uri.query()).map_err(|error| ApiError::from(error).into_response())?;
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

/// A position that is a number, as it was given out, so that nothing has two names.
pub fn number(text: &str, least: i64) -> Result<i64, Reason> {
    let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text && *number >= least);
    number.ok_or_else(|| {
        Reason::Given(Text::owned(
            format!("{least}에서 {} 사이의 정수여야 합니다", i64::MAX),
            format!("must be a whole number from {least} to {}", i64::MAX),
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
