//! Reads and writes a socket that is detached from hyper, in order, and with little memory and CPU time while the
//! connection is idle. Used by `detached` for streams and by `websocket_driver` for WebSockets.

use std::io;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::Interest;

use super::socket::SocketState;

/// Writes of one connection per poll, so that a connection with much to send does not delay the others on its shard.
pub(super) const MAX_WRITES_PER_POLL: usize = 16;
/// Bytes read from the socket at once.
const READ_SIZE: usize = 2 << 10;

pub(super) struct SocketIo {
    shared: Arc<SocketState>,
    /// Bytes to be sent that the kernel has not accepted yet.
    unsent: Bytes,
    /// Whether the runtime has this task's waker, to wake the task when the client sends bytes or disconnects.
    has_registered_waker: bool,
}

impl SocketIo {
    /// `head` is the head of the response, which is sent first.
    pub(super) fn new(shared: Arc<SocketState>, head: Bytes) -> Self {
        Self { shared, unsent: head, has_registered_waker: false }
    }

    /// Sets the bytes to be sent next. To be called only after [`SocketIo::poll_flush`] was ready.
    pub(super) fn send(&mut self, bytes: Bytes) {
        self.unsent = bytes;
    }

    /// Writes the unsent bytes; ready when the kernel has accepted all of them.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            match self.shared.try_write(&self.unsent) {
                // Replaced at once: an advanced, empty `Bytes` would keep its buffer allocated while the stream is
                // idle.
                Ok(written) if written == self.unsent.len() => self.unsent = Bytes::new(),
                Ok(written) => self.unsent.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.shared.tcp.poll_write_ready(cx))?;
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads from the client and passes the bytes to `convert`; at the end of the connection these are empty.
    /// Called on every poll of the task, so it costs only one atomic load while the client sends no bytes.
    pub(super) fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        convert: impl Fn(&[u8]) -> T,
    ) -> Poll<io::Result<T>> {
        let tcp = &self.shared.tcp;
        loop {
            let mut was_ready = false;
            let result = tcp.try_io(Interest::READABLE, || {
                was_ready = true;
                let mut scratch = [MaybeUninit::uninit(); READ_SIZE];
                let (bytes, _) = rustix::io::read(tcp, &mut scratch)?;
                Ok(convert(bytes))
            });
            // Once the socket was ready, even if it had no bytes to read, the waker has to be registered
            // again.
            self.has_registered_waker &= !was_ready;
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.has_registered_waker || tcp.poll_read_ready(cx).is_pending() {
                        self.has_registered_waker = true;
                        return Poll::Pending;
                    }
                }
                result => return Poll::Ready(result),
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
        let mut io = SocketIo::new(Socket::new(server).detached().shared().clone(), sent.clone());
        poll_fn(|cx| io.poll_flush(cx)).await.unwrap();
        assert!(sent.is_unique());
        drop(client);
    }
}
