//! The body of a response that takes its connection out of hyper: an event stream, or the session of a WebSocket.
//!
//! The body is an extension of the response, so that every middleware layer sees and completes the head first; then the
//! server takes the body out (`server::connection`).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use axum::response::{IntoResponse, IntoResponseParts, Response};
use bongsu_kernel::lock;
use bytes::Bytes;
use futures_util::stream;
use http_body::Body;

use crate::websocket::Session;

/// The body of an event stream.
pub(crate) type StreamBody = Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>;

pub(crate) enum DetachedBody {
    Stream(StreamBody),
    Session(Box<dyn Session>),
}

impl DetachedBody {
    /// A response with this head, and with this body as an extension.
    pub(crate) fn with_head(self, head: impl IntoResponseParts) -> Response {
        // The layers see a placeholder body of unknown length, so that none of them writes a Content-Length.
        let placeholder = axum::body::Body::from_stream(stream::empty::<Result<Bytes, Infallible>>());
        let mut response = (head, placeholder).into_response();
        response.extensions_mut().insert(BodySlot(Arc::new(Mutex::new(Some(self)))));
        response
    }

    /// Whether a response has a detached body.
    pub(crate) fn is_in<B>(response: &http::Response<B>) -> bool {
        response.extensions().get::<BodySlot>().is_some()
    }

    pub(crate) fn take_from<B>(response: &mut http::Response<B>) -> Option<Self> {
        let BodySlot(slot) = response.extensions_mut().remove()?;
        lock(&slot).take()
    }
}

/// Shared, because an extension has to be `Clone`; only one clone can take the body.
#[derive(Clone)]
struct BodySlot(Arc<Mutex<Option<DetachedBody>>>);
