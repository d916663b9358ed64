//! Carries what an answer brought along on a socket that has left hyper: the head, then a stream until either ends, or
//! a WebSocket's session (`duplex`).
//!
//! A stream needs no parser any more, and most of what a connection costs is the parser's. The body ends with the
//! connection. What hyper did for it is done here: writing in order, and noticing that the peer is gone.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bongsu_kernel::{Boxed, Clock, clock};
use bytes::Bytes;
use http::HeaderMap;

use super::Held;
use super::drain::Drain;
use super::duplex::Duplex;
use super::line::{Line, PIECES};
use super::socket::Remains;
use crate::carried::{Carried, StreamBody};

/// A client has nothing to say on a stream. So many bytes are read for nobody, because its end can only be noticed
/// behind them; one that says more is no client of a stream.
const IDLE_TALK: usize = 64 << 10;

/// An answer that leaves hyper together with its connection.
pub(super) struct Leaving {
    head: Bytes,
    carried: Carried,
}

impl Leaving {
    /// What is carried says how the answer begins: whatever else is said to a client is neither.
    pub(super) fn new(headers: &HeaderMap, carried: Carried) -> Self {
        let (status, connection): (&[u8], &[u8]) = match carried {
            // The connection ends with the stream, so that coming back can mean coming to another instance.
            Carried::Stream(_) => (b"HTTP/1.1 200 OK\r\n", b"close"),
            Carried::Session(_) => (b"HTTP/1.1 101 Switching Protocols\r\n", b"upgrade"),
        };
        let mut head = Vec::with_capacity(256);
        head.extend_from_slice(status);
        for (name, value) in headers {
            push_header(&mut head, name.as_str(), value.as_bytes());
        }
        push_header(&mut head, "connection", connection);
        push_header(&mut head, "date", clock::http_date(Clock::system().now()).as_bytes());
        head.extend_from_slice(b"\r\n");
        Self { head: head.into(), carried }
    }
}

fn push_header(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// A stream or a session on its own socket. A future written out, because an async block holds what it awaits more than
/// once, and that would be most of a stream's task.
pub(super) struct Carrier {
    carrying: Carrying,
    remains: Remains,
    drain: Drain,
    _held: Option<Held>,
}

enum Carrying {
    Stream(Streaming),
    /// Boxed, because a stream's task would otherwise be as large.
    Session(Box<Duplex>),
    /// Boxed, because it is needed once at the end.
    Lingering(Boxed<'static, ()>),
}

impl Carrier {
    /// `early` is what the client sent behind its request, before it was answered. A WebSocket's client should not
    /// have, but some do, and it is theirs; on a stream it is for nobody.
    pub(super) fn new(remains: Remains, leaving: Leaving, early: &[u8], drain: Drain) -> Self {
        let Leaving { head, carried } = leaving;
        let shared = remains.shared().clone();
        let carrying = match carried {
            Carried::Stream(stream) => {
                Carrying::Stream(Streaming { line: Line::new(shared, head), stream, heard: 0 })
            }
            Carried::Session(session) => {
                shared.becomes_stream();
                Carrying::Session(Box::new(Duplex::new(Line::new(shared, head), session, early)))
            }
        };
        Self { carrying, remains, drain, _held: None }
    }

    /// Gives back what the connection has taken from others when it ends.
    pub(super) fn holding(self, held: Held) -> Self {
        Self { _held: Some(held), ..self }
    }
}

impl Future for Carrier {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            match &mut this.carrying {
                Carrying::Stream(streaming) => ready!(Pin::new(streaming).poll(cx)),
                Carrying::Session(duplex) => ready!(Pin::new(duplex).poll(cx)),
                Carrying::Lingering(lingering) => return lingering.as_mut().poll(cx),
            }
            if this.drain.has_begun() {
                return Poll::Ready(());
            }
            this.carrying = Carrying::Lingering(Box::pin(this.remains.clone().linger()));
        }
    }
}

struct Streaming {
    line: Line,
    stream: StreamBody,
    heard: usize,
}

impl Streaming {
    fn peer_is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        while self.heard <= IDLE_TALK {
            match self.line.poll_heard(cx, <[u8]>::len) {
                Poll::Pending => return false,
                Poll::Ready(Ok(0) | Err(_)) => return true,
                Poll::Ready(Ok(said)) => self.heard += said,
            }
        }
        true
    }
}

impl Future for Streaming {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.peer_is_gone(cx) {
            return Poll::Ready(());
        }
        for _ in 0..PIECES {
            match this.line.poll_sent(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {}
            }
            match this.stream.as_mut().poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Ready(Some(Ok(frame))) => this.line.send(frame.into_data().unwrap_or_default()),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
