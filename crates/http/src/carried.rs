//! What an answer brings along for the server to carry: an event stream, or the session of a WebSocket.
//!
//! It travels as an extension of the answer, so that every layer sees and finishes the head; the server takes it out
//! when they have (`server::connection`).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use axum::response::{IntoResponse, IntoResponseParts, Response};
use bytes::Bytes;
use futures_util::stream;
use http_body::Body;

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
        // In its place, while the layers look at the head, a body of no known length, so that none writes one.
        let elsewhere = axum::body::Body::from_stream(stream::empty::<Result<Bytes, Infallible>>());
        let mut response = (head, elsewhere).into_response();
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
