//! The body of a tracked response, and the bytes that it produced.
//!
//! Each piece of bytes updates the count when it is dropped: hyper and h2 drop a piece when the kernel has accepted it
//! or when its request was aborted, and neither offers a callback for that.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};

use super::{CountedRequest, InFlightRequests};
use crate::server::ConnectionControl;

/// Maximum bytes of a piece of a response. Each time that the connection asks for a piece counts as progress.
const PIECE_SIZE: usize = 16 << 10;

/// A tracked response, open until its body and all bytes that it produced are dropped.
struct TrackedResponse {
    in_flight: InFlightRequests,
    id: u64,
    _person: Option<CountedRequest>,
}

impl Drop for TrackedResponse {
    fn drop(&mut self) {
        self.in_flight.close(self.id);
    }
}

/// Bytes of a response, counted until the connection drops them.
struct CountedBytes {
    bytes: Bytes,
    tracked: Arc<TrackedResponse>,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.tracked.in_flight.release(self.tracked.id, self.bytes.len());
    }
}

/// The body of a tracked response: returns the bytes of the handler's body in pieces.
pub(super) struct TrackedBody {
    inner: Body,
    /// The rest of the last frame of `inner`.
    rest: Bytes,
    /// Bytes that `inner` already holds in memory: counted, but not returned in a frame yet.
    held_bytes: usize,
    tracked: Arc<TrackedResponse>,
}

impl TrackedBody {
    pub(super) fn new(
        inner: Body,
        in_flight: InFlightRequests,
        person: Option<CountedRequest>,
        peer: Option<ConnectionControl>,
    ) -> Self {
        let held_bytes = usize::try_from(inner.size_hint().lower()).unwrap_or(usize::MAX);
        let id = in_flight.open(peer);
        in_flight.reserve(id, held_bytes);
        let tracked = Arc::new(TrackedResponse { in_flight, id, _person: person });
        Self { inner, rest: Bytes::new(), held_bytes, tracked }
    }

    fn count(&mut self, bytes: Bytes) -> Bytes {
        let held = self.held_bytes.min(bytes.len());
        self.held_bytes -= held;
        if bytes.len() > held {
            self.tracked.in_flight.reserve(self.tracked.id, bytes.len() - held);
        }
        Bytes::from_owner(CountedBytes { bytes, tracked: self.tracked.clone() })
    }
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        while this.rest.is_empty() {
            let polled = Pin::new(&mut this.inner).poll_frame(cx);
            this.tracked.in_flight.record_progress(this.tracked.id, polled.is_pending());
            match ready!(polled) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if bytes.is_empty() => {}
                    Ok(bytes) => this.rest = this.count(bytes),
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        this.tracked.in_flight.record_progress(this.tracked.id, false);
        let piece = this.rest.split_to(this.rest.len().min(PIECE_SIZE));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.inner.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(inner.lower() + rest);
        hint
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.tracked.in_flight.release(self.tracked.id, self.held_bytes);
    }
}
