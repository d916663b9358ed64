//! What an answer brings along for the server to carry: an event stream, or the session of a WebSocket.
//!
//! It travels as an extension of the answer, so that every layer sees and finishes the head; the server takes it out
//! when they have (`server::connection`).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::response::{IntoResponse, IntoResponseParts, Response};
use bytes::Bytes;
use http_body::{Body, Frame};

use crate::websocket::Session;

/// What a stream sends, piece by piece.
pub(crate) type StreamBody = Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>;

pub(crate) enum Carried {
    Stream(StreamBody),
    Session(Box<dyn Session>),
}

impl Carried {
    /// An answer that brings this along.
    pub(crate) fn with_head(self, head: impl IntoResponseParts) -> Response {
        let mut response = (head, axum::body::Body::new(Elsewhere)).into_response();
        response.extensions_mut().insert(Parcel(Arc::new(Mutex::new(Some(self)))));
        response
    }

    /// Whether an answer brings something along.
    pub(crate) fn is_in<B>(response: &http::Response<B>) -> bool {
        response.extensions().get::<Parcel>().is_some()
    }

    pub(crate) fn take_from<B>(response: &mut http::Response<B>) -> Option<Self> {
        let Parcel(parcel) = response.extensions_mut().remove()?;
        parcel.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// An extension has to be clonable; only one can take what is in it.
#[derive(Clone)]
struct Parcel(Arc<Mutex<Option<Carried>>>);

/// Stands in for the body while the layers look at the head: of no known length, so that none writes one.
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
