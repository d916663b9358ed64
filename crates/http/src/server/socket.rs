//! A socket that hyper drives, and that a stream on the socket can reach as well: to measure how fast the
//! client reads, and to close the connection.
//!
//! hyper owns the [`Socket`]; the request carries a [`ConnectionControl`], which does not keep the connection
//! open. An HTTP/1.1 stream or a WebSocket is detached from hyper together with its connection: see
//! `detached`.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bongsu_kernel::lock;
use rustix::net::Shutdown;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::detached::Handover;

/// Unsent bytes that the kernel may buffer for a connection. Without this limit it buffers megabytes for a client that
/// does not read; a client that reads gains nothing from a larger buffer.
const MAX_UNSENT_SIZE: u32 = 64 << 10;
/// Unsent bytes that the kernel may buffer for a stream: little, so that a slow reader costs little memory and is
/// recognised as slow, and enough that a fast reader never waits.
const MAX_STREAM_UNSENT_SIZE: u32 = 16 << 10;
/// Bytes of a stream that one write offers to the kernel. The kernel accepts a write as a whole, however slow the
/// reader.
const MAX_STREAM_WRITE_SIZE: usize = 8 << 10;

/// How long a closing connection is still read.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// How many bytes a closing connection still reads.
const MAX_LINGER_SIZE: usize = 16 << 20;

/// The socket, shared by hyper and by the stream on it.
pub(super) struct SocketState {
    pub(super) tcp: TcpStream,
    is_stream: AtomicBool,
    /// Whether hyper has bytes that the kernel did not accept yet.
    has_unwritten: AtomicBool,
    /// Bytes that the kernel has accepted for the client.
    bytes_written: AtomicU64,
    /// The response that takes the connection out of hyper.
    handover: Mutex<Option<Box<Handover>>>,
}

/// The connection on which a request arrived, as an extension of the request.
#[derive(Clone)]
pub struct ConnectionControl {
    /// The shard whose thread serves the connection.
    pub shard: usize,
    /// Cancels this request alone, where other requests share the connection (HTTP/2).
    request_token: Option<CancellationToken>,
    /// Weak, so that a remaining `ConnectionControl` does not keep the descriptor of an ended connection open.
    shared: Weak<SocketState>,
}

impl ConnectionControl {
    pub(super) fn new(shard: usize, socket: &Socket) -> Self {
        Self { shard, request_token: None, shared: Arc::downgrade(&socket.0) }
    }

    /// Marks the request as one of several on the connection, cancelled by `token`.
    pub(super) fn with_request_token(self, token: CancellationToken) -> Self {
        Self { request_token: Some(token), ..self }
    }

    /// Whether no other request shares the connection, as in HTTP/1.
    pub(crate) fn has_own_connection(&self) -> bool {
        self.request_token.is_none()
    }

    /// Takes the connection out of hyper once earlier responses were written, to go on with this response.
    pub(super) fn hand_over(&self, handover: Handover) {
        if let Some(shared) = self.shared.upgrade() {
            *lock(&shared.handover) = Some(Box::new(handover));
        }
    }

    /// Lowers the limits for unsent bytes and for the size of a write to those of a stream.
    pub fn set_stream_mode(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.set_stream_mode();
        }
    }

    /// Lifts the limit for unsent bytes, so that the kernel accepts a last frame for a client that does not read.
    pub fn lift_send_limit(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.limit_unsent(u32::MAX >> 1);
        }
    }

    /// Bytes that the kernel accepted for the client. With the limit for unsent bytes this grows only as the client
    /// reads. 0 if requests share the connection, because the bytes of all of them are counted together.
    pub fn bytes_written(&self) -> u64 {
        let shared = if self.request_token.is_some() { None } else { self.shared.upgrade() };
        shared.map_or(0, |shared| shared.bytes_written.load(Ordering::Relaxed))
    }

    /// Ends the request without sending the rest of the response, and also the connection if no other request shares
    /// it.
    pub fn abort_request(&self) {
        match &self.request_token {
            Some(token) => token.cancel(),
            None => self.close_connection(),
        }
    }

    /// Closes the connection and thereby ends every request on it.
    pub fn close_connection(&self) {
        if let Some(shared) = self.shared.upgrade() {
            // An error means that the client has already closed the connection.
            let _ = rustix::net::shutdown(&shared.tcp, Shutdown::Both);
        }
    }
}

impl SocketState {
    pub(super) fn set_stream_mode(&self) {
        self.is_stream.store(true, Ordering::Relaxed);
        self.limit_unsent(MAX_STREAM_UNSENT_SIZE);
    }

    fn limit_unsent(&self, bytes: u32) {
        // On a system without this socket option a slow reader costs more kernel memory, with no other effect.
        let _ = SockRef::from(&self.tcp).set_tcp_notsent_lowat(bytes);
    }

    /// Writes as much as the kernel accepts without waiting.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let piece = if self.is_stream.load(Ordering::Relaxed) { MAX_STREAM_WRITE_SIZE } else { usize::MAX };
        let written = self.tcp.try_write(&bytes[..bytes.len().min(piece)])?;
        self.bytes_written.fetch_add(written as u64, Ordering::Relaxed);
        Ok(written)
    }

    /// Like [`SocketState::try_write`] for several slices. For a stream, and for at most
    /// [`MAX_STREAM_WRITE_SIZE`] bytes, the slices are copied into one buffer of that size, which is cheaper
    /// than a vectored write of few bytes.
    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if total > MAX_STREAM_WRITE_SIZE && !self.is_stream.load(Ordering::Relaxed) {
            let written = self.tcp.try_write_vectored(slices)?;
            self.bytes_written.fetch_add(written as u64, Ordering::Relaxed);
            return Ok(written);
        }
        WRITE_BUFFER.with_borrow_mut(|buffer| {
            buffer.clear();
            for slice in slices {
                buffer.extend_from_slice(&slice[..slice.len().min(MAX_STREAM_WRITE_SIZE - buffer.len())]);
            }
            self.try_write(buffer)
        })
    }
}

thread_local! {
    /// The buffer into which small writes are copied.
    static WRITE_BUFFER: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(MAX_STREAM_WRITE_SIZE));
}

/// The handle on a socket that hyper owns; a stream on the socket has a [`ConnectionControl`] instead.
pub(super) struct Socket(Arc<SocketState>);

impl Socket {
    pub(super) fn new(tcp: TcpStream) -> Self {
        let shared = SocketState {
            tcp,
            is_stream: AtomicBool::new(false),
            has_unwritten: AtomicBool::new(false),
            bytes_written: AtomicU64::new(0),
            handover: Mutex::new(None),
        };
        shared.limit_unsent(MAX_UNSENT_SIZE);
        Self(Arc::new(shared))
    }

    fn poll_try_write(
        &self,
        cx: &mut Context<'_>,
        len: usize,
        attempt: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let written = try_when_ready(|| self.0.tcp.poll_write_ready(cx), attempt);
        let all_written = matches!(&written, Poll::Ready(Ok(count)) if *count == len);
        self.0.has_unwritten.store(!all_written, Ordering::Relaxed);
        written
    }

    /// A handle on the socket for use after hyper has released it.
    pub(super) fn detached(&self) -> DetachedSocket {
        DetachedSocket(self.0.clone())
    }

    pub(super) fn tcp(&self) -> &TcpStream {
        &self.0.tcp
    }
}

/// A handle on a socket that stays open after hyper has released it.
#[derive(Clone)]
pub(super) struct DetachedSocket(Arc<SocketState>);

impl DetachedSocket {
    /// The response that takes the connection out of hyper; None until all earlier responses were written.
    pub(super) fn take_handover(&self) -> Option<Box<Handover>> {
        if self.0.has_unwritten.load(Ordering::Relaxed) {
            return None;
        }
        lock(&self.0.handover).take()
    }

    pub(super) fn shared(&self) -> &Arc<SocketState> {
        &self.0
    }

    /// Reads and discards for a short time the bytes that the client is still sending. Closing a socket with
    /// unread bytes resets the connection, and a client that was refused in the middle of a long body would
    /// never see the response.
    pub(super) async fn linger(self) {
        // hyper has shut the socket down already, unless it ended with an error.
        let _ = rustix::net::shutdown(&self.0.tcp, Shutdown::Write);
        let mut scratch = vec![0; 16 << 10];
        let mut remaining = MAX_LINGER_SIZE;
        let discard = async {
            while self.0.tcp.readable().await.is_ok() {
                match self.0.tcp.try_read(&mut scratch) {
                    Ok(read) if read > 0 && read < remaining => remaining -= read,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => return,
                }
            }
        };
        let _ = tokio::time::timeout(LINGER_TIMEOUT, discard).await;
    }
}

/// Repeats `attempt` until it does not return `WouldBlock`, or until `ready` is pending and has registered the waker.
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
        let tcp = &self.0.tcp;
        try_when_ready(|| tcp.poll_read_ready(cx), || tcp.try_read_buf(buf).map(drop))
    }
}

/// Writes are vectored, so that hyper keeps a response's bytes uncopied and releases them as the kernel
/// accepts them. Otherwise hyper would copy them, and `in_flight` cannot count the copies.
impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_try_write(cx, buf.len(), || self.0.try_write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_try_write(cx, bufs.iter().map(|buf| buf.len()).sum(), || self.0.try_write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(&self.0.tcp, Shutdown::Write).map_err(io::Error::from))
    }
}
