//! An answer that is an event stream.
//!
//! The handler gives the stream and its headers; the server decides, once all layers have seen the head, who carries
//! the stream: hyper as the answer's body (HTTP/2), or the server itself on a socket that leaves hyper (HTTP/1.1).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use http_body::{Body, Frame};

/// What a stream sends, piece by piece.
pub(crate) type StreamBody = Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>;

/// The answer that a stream is.
pub fn answer(stream: impl Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Response {
    let mut response = (headers(), axum::body::Body::new(Elsewhere)).into_response();
    response.extensions_mut().insert(Carried(Arc::new(Mutex::new(Some(Box::pin(stream))))));
    response
}

/// The headers of every event stream.
pub(crate) fn headers() -> [(HeaderName, HeaderValue); 3] {
    [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ]
}

/// The stream, on its way through the layers. An extension has to be clonable; only one can take it.
#[derive(Clone)]
pub(crate) struct Carried(Arc<Mutex<Option<StreamBody>>>);

impl Carried {
    pub(crate) fn take(self) -> Option<StreamBody> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Stands in for the stream's body while the layers look at the head: of no known length, so that none writes one.
struct Elsewhere;

impl Body for Elsewhere {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }
}
