//! A socket that hyper drives and the stream on it can reach: to see that it is slow, and to let go of it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use rustix::net::Shutdown;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Unsent bytes that the kernel may hold for a stream: little, so that a slow reader costs little and its slowness
/// shows, and enough for a fast one never to wait.
const STREAM_UNSENT: u32 = 16 << 10;

/// The connection that a request came over, as an extension of the request.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The shard whose thread serves it.
    pub shard: usize,
    /// Weak: the descriptor goes with the connection, whoever still remembers it.
    socket: Weak<TcpStream>,
}

impl Peer {
    pub(super) fn new(shard: usize, socket: &Socket) -> Self {
        Self { shard, socket: Arc::downgrade(&socket.0) }
    }

    /// From now on the connection carries a stream.
    pub fn becomes_stream(&self) {
        self.hold_unsent(STREAM_UNSENT);
    }

    /// Makes room for a last frame to a reader that takes nothing.
    pub fn make_room(&self) {
        self.hold_unsent(u32::MAX >> 1);
    }

    fn hold_unsent(&self, bytes: u32) {
        if let Some(socket) = self.socket.upgrade() {
            // Where the option is missing a slow reader costs more kernel memory, and nothing else.
            let _ = SockRef::from(&*socket).set_tcp_notsent_lowat(bytes);
        }
    }

    /// Ends the connection, whatever is still to be sent.
    pub fn cut(&self) {
        if let Some(socket) = self.socket.upgrade() {
            // A socket that the peer closed meanwhile is as good.
            let _ = rustix::net::shutdown(&*socket, Shutdown::Both);
        }
    }
}

/// The half that hyper owns.
#[derive(Debug)]
pub(super) struct Socket(Arc<TcpStream>);

impl Socket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.0
    }
}

/// Tries until it works or the system says when to try again.
fn try_when_ready<T>(
    mut ready: impl FnMut() -> Poll<io::Result<()>>,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> Poll<io::Result<T>> {
    loop {
        ready!(ready())?;
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return Poll::Ready(result),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = &self.0;
        try_when_ready(|| stream.poll_read_ready(cx), || stream.try_read_buf(buf).map(drop))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let stream = &self.0;
        try_when_ready(|| stream.poll_write_ready(cx), || stream.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = &self.0;
        try_when_ready(|| stream.poll_write_ready(cx), || stream.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(&*self.0, Shutdown::Write).map_err(io::Error::from))
    }
}
