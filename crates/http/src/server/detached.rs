//! Serves a connection that is detached from hyper: the head of the response, then an event stream until the stream or
//! the client ends, or the session of a WebSocket (`websocket_driver`).
//!
//! A stream needs no HTTP parser any more, and hyper's parser accounts for most of a connection's memory. The body ends
//! with the connection. The rest of hyper's work is done here: writing in order, and noticing that the client has
//! disconnected.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bongsu_kernel::{BoxFuture, Clock, clock};
use bytes::Bytes;
use http::HeaderMap;

use super::ConnectionSlot;
use super::drain_signal::DrainSignal;
use super::socket::DetachedSocket;
use super::socket_io::{MAX_WRITES_PER_POLL, SocketIo};
use super::websocket_driver::WebSocketDriver;
use crate::detached_body::{DetachedBody, StreamBody};

/// Bytes that a stream's client may send; more end the stream. A client of a stream need not send any, but
/// the end of its connection can only be noticed after everything it sent was read, so these bytes are read
/// and discarded.
const MAX_IGNORED_SIZE: usize = 64 << 10;

/// A response that takes its connection out of hyper.
pub(super) struct Handover {
    head: Bytes,
    body: DetachedBody,
}

impl Handover {
    /// The body determines the status line and the `Connection` header: only streams and WebSockets are detached.
    pub(super) fn new(headers: &HeaderMap, body: DetachedBody) -> Self {
        let (status, connection): (&[u8], &[u8]) = match body {
            // The connection ends with the stream, so that a client that reconnects may reach another instance.
            DetachedBody::Stream(_) => (b"HTTP/1.1 200 OK\r\n", b"close"),
            DetachedBody::Session(_) => (b"HTTP/1.1 101 Switching Protocols\r\n", b"upgrade"),
        };
        let mut head = Vec::with_capacity(256);
        head.extend_from_slice(status);
        for (name, value) in headers {
            push_header(&mut head, name.as_str(), value.as_bytes());
        }
        push_header(&mut head, "connection", connection);
        push_header(&mut head, "date", clock::http_date(Clock::system().now()).as_bytes());
        head.extend_from_slice(b"\r\n");
        Self { head: head.into(), body }
    }
}

fn push_header(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// A stream or a session on its own socket. A hand-written future, because an async block stores an awaited
/// future more than once, which would be most of the memory of a stream's task.
pub(super) struct DetachedConnection {
    state: State,
    socket: DetachedSocket,
    drain: DrainSignal,
    _slot: Option<ConnectionSlot>,
}

enum State {
    Stream(StreamDriver),
    /// Boxed, because a stream's task would otherwise be as large as a session's.
    Session(Box<WebSocketDriver>),
    /// Boxed, because it is used only once, at the end.
    Lingering(BoxFuture<'static, ()>),
}

impl DetachedConnection {
    /// `early` has the bytes that the client sent after its request and before the response. A WebSocket
    /// client should not send any, but some do: the session receives them. On a stream they are discarded.
    pub(super) fn new(socket: DetachedSocket, handover: Handover, early: &[u8], drain: DrainSignal) -> Self {
        let Handover { head, body } = handover;
        let shared = socket.shared().clone();
        let state = match body {
            DetachedBody::Stream(stream) => {
                State::Stream(StreamDriver { io: SocketIo::new(shared, head), stream, ignored_bytes: 0 })
            }
            DetachedBody::Session(session) => {
                shared.set_stream_mode();
                State::Session(Box::new(WebSocketDriver::new(SocketIo::new(shared, head), session, early)))
            }
        };
        Self { state, socket, drain, _slot: None }
    }

    /// Releases the connection's slot when the connection ends.
    pub(super) fn with_slot(self, slot: ConnectionSlot) -> Self {
        Self { _slot: Some(slot), ..self }
    }
}

impl Future for DetachedConnection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                State::Stream(stream) => ready!(Pin::new(stream).poll(cx)),
                State::Session(session) => ready!(Pin::new(session).poll(cx)),
                State::Lingering(lingering) => return lingering.as_mut().poll(cx),
            }
            // While the server drains, a connection does not linger.
            if this.drain.has_begun() {
                return Poll::Ready(());
            }
            this.state = State::Lingering(Box::pin(this.socket.clone().linger()));
        }
    }
}

/// Writes a stream to its socket until the stream ends or the client disconnects.
struct StreamDriver {
    io: SocketIo,
    stream: StreamBody,
    ignored_bytes: usize,
}

impl StreamDriver {
    fn is_client_gone(&mut self, cx: &mut Context<'_>) -> bool {
        while self.ignored_bytes <= MAX_IGNORED_SIZE {
            match self.io.poll_read(cx, <[u8]>::len) {
                Poll::Pending => return false,
                Poll::Ready(Ok(0) | Err(_)) => return true,
                Poll::Ready(Ok(count)) => self.ignored_bytes += count,
            }
        }
        true
    }
}

impl Future for StreamDriver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.is_client_gone(cx) {
            return Poll::Ready(());
        }
        for _ in 0..MAX_WRITES_PER_POLL {
            match this.io.poll_flush(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {}
            }
            match this.stream.as_mut().poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Ready(Some(Ok(frame))) => this.io.send(frame.into_data().unwrap_or_default()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
