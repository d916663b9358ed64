//! Carries a stream on a socket that has left hyper: the head, then whatever the stream gives, until either ends.
//!
//! A stream needs no parser any more, and most of what a connection costs is the parser's. The body ends with the
//! connection. What hyper did for it is done here: writing in order, and noticing that the peer is gone.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bongsu_kernel::{Clock, clock};
use bytes::{Buf, Bytes};
use http::HeaderMap;
use tokio::io::Interest;

use super::drain::Drain;
use super::socket::{Remains, Shared};
use crate::stream::StreamBody;

/// A client has nothing to say on a stream. So many bytes are read for nobody, because its end can only be noticed
/// behind them; one that says more is no client of a stream.
const IDLE_TALK: usize = 64 << 10;
/// So many pieces leave in one turn, so that a stream with much to send lets others have theirs.
const PIECES: usize = 16;

/// An answer that leaves hyper together with its connection.
pub(super) struct Leaving {
    head: Bytes,
    stream: StreamBody,
}

impl Leaving {
    /// The answer is a 200: whatever else is said to a client is no stream.
    pub(super) fn new(headers: &HeaderMap, stream: StreamBody) -> Self {
        let mut head = Vec::with_capacity(256);
        head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        for (name, value) in headers {
            push_header(&mut head, name.as_str(), value.as_bytes());
        }
        // The connection ends with the stream, so that coming back can mean coming to another instance.
        push_header(&mut head, "connection", b"close");
        push_header(&mut head, "date", clock::http_date(Clock::system().now()).as_bytes());
        head.extend_from_slice(b"\r\n");
        Self { head: head.into(), stream }
    }
}

fn push_header(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// A stream on its own socket.
pub(super) struct Carrier {
    carrying: Carrying,
    remains: Remains,
    drain: Drain,
}

impl Carrier {
    pub(super) fn new(remains: Remains, leaving: Leaving, drain: Drain) -> Self {
        let Leaving { head, stream } = leaving;
        let shared = remains.shared().clone();
        let carrying = Carrying { shared, stream, pending: head, hearing: false, heard: 0 };
        Self { carrying, remains, drain }
    }

    pub(super) async fn run(self) {
        self.carrying.await;
        if !self.drain.has_begun() {
            // Boxed, because it is needed once at the end and would be most of a stream's task.
            Box::pin(self.remains.linger()).await;
        }
    }
}

struct Carrying {
    shared: Arc<Shared>,
    stream: StreamBody,
    /// What the stream gave and the kernel has not taken yet.
    pending: Bytes,
    /// Whether the runtime has this task's waker, for when the peer says something or is gone.
    hearing: bool,
    heard: usize,
}

impl Carrying {
    /// Listens for the peer's end. Asked on every turn, so it costs one load while the peer is silent.
    fn peer_is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        let mut scratch = [0; 512];
        while self.heard <= IDLE_TALK {
            let mut woken = false;
            let read = self.shared.tcp.try_io(Interest::READABLE, || {
                woken = true;
                Ok(rustix::io::read(&self.shared.tcp, &mut scratch)?)
            });
            // Who was woken, if only for nothing, has to ask to be woken again.
            self.hearing &= !woken;
            match read {
                Ok(0) => return true,
                Ok(read) => self.heard += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.hearing || self.shared.tcp.poll_read_ready(cx).is_pending() {
                        self.hearing = true;
                        return false;
                    }
                }
                Err(_) => return true,
            }
        }
        true
    }

    /// Writes what is pending; ready when all of it was taken.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            match self.shared.offer(&self.pending) {
                Ok(taken) => self.pending.advance(taken),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::task::ready!(self.shared.tcp.poll_write_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Future for Carrying {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.peer_is_gone(cx) {
            return Poll::Ready(());
        }
        for _ in 0..PIECES {
            match this.poll_send(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {}
            }
            match this.stream.as_mut().poll_frame(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(()),
                Poll::Ready(Some(Ok(frame))) => this.pending = frame.into_data().unwrap_or_default(),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
