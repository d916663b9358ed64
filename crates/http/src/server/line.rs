//! A socket that has left hyper, as what it carries reads and writes it: in order, and at little cost while nothing
//! happens. `carrier` has the stream on it, `duplex` the WebSocket.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::Interest;

use super::socket::Shared;

/// So many pieces leave in one turn, so that a connection with much to send lets others have theirs.
pub(super) const PIECES: usize = 16;
/// So much is heard at once.
const HEARD_AT_ONCE: usize = 2 << 10;

pub(super) struct Line {
    shared: Arc<Shared>,
    /// What is to be sent and the kernel has not taken yet.
    pending: Bytes,
    /// Whether the runtime has this task's waker, for when the peer says something or is gone.
    hearing: bool,
}

impl Line {
    /// The head of the answer is the first to be sent.
    pub(super) fn new(shared: Arc<Shared>, head: Bytes) -> Self {
        Self { shared, pending: head, hearing: false }
    }

    /// What leaves next. Comes after [`Line::poll_sent`] was ready.
    pub(super) fn send(&mut self, bytes: Bytes) {
        self.pending = bytes;
    }

    /// Writes what is pending; ready when all of it was taken.
    pub(super) fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            match self.shared.offer(&self.pending) {
                // Let go of at once: an empty rest would keep its bytes in memory for as long as the stream is idle.
                Ok(taken) if taken == self.pending.len() => self.pending = Bytes::new(),
                Ok(taken) => self.pending.advance(taken),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.shared.tcp.poll_write_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Makes something of what the peer says next; it says nothing at its end. Asked on every turn, so it costs one
    /// load while the peer is silent.
    pub(super) fn poll_heard<T>(
        &mut self,
        cx: &mut Context<'_>,
        make: impl Fn(&[u8]) -> T,
    ) -> Poll<io::Result<T>> {
        let tcp = &self.shared.tcp;
        loop {
            let mut woken = false;
            let heard = tcp.try_io(Interest::READABLE, || {
                woken = true;
                let mut scratch = [MaybeUninit::uninit(); HEARD_AT_ONCE];
                let (said, _) = rustix::io::read(tcp, &mut scratch)?;
                Ok(make(said))
            });
            // Who was woken, if only for nothing, has to ask to be woken again.
            self.hearing &= !woken;
            match heard {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.hearing || tcp.poll_read_ready(cx).is_pending() {
                        self.hearing = true;
                        return Poll::Pending;
                    }
                }
                heard => return Poll::Ready(heard),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::net::{TcpListener, TcpStream};

    use super::super::socket::Socket;
    use super::*;

    #[tokio::test]
    async fn sent_bytes_are_not_kept_while_the_stream_is_idle() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let sent = Bytes::from(vec![b'x'; 1_000]);
        let mut line = Line::new(Socket::new(server).remains().shared().clone(), sent.clone());
        poll_fn(|cx| line.poll_sent(cx)).await.unwrap();
        assert!(sent.is_unique());
        drop(client);
    }
}
