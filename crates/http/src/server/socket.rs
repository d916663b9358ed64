//! A socket that hyper drives and the stream on it can reach: to see that it is slow, and to let go of it.
//!
//! hyper owns one half; the other travels with the request as a [`Peer`] and holds nothing open. A stream that has
//! the connection to itself, or a WebSocket, leaves hyper with it: see `carrier`.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::Shutdown;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::carrier::Leaving;

/// Unsent bytes that the kernel may hold for a connection. It would take megabytes for a client that does not read, and a
/// client that reads is no faster for them.
const UNSENT: u32 = 64 << 10;
/// Unsent bytes that the kernel may hold for a stream: little, so that a slow reader costs little and its slowness
/// shows, and enough for a fast one never to wait.
const STREAM_UNSENT: u32 = 16 << 10;
/// A stream's bytes are offered to the kernel in such pieces: it takes a piece as a whole, however slow the reader.
const STREAM_PIECE: usize = 8 << 10;

/// So long, and so many bytes, an ended connection is read on.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 16 << 20;

/// What hyper's half and the stream's half of a connection share.
pub(super) struct Shared {
    pub(super) tcp: TcpStream,
    carries_stream: AtomicBool,
    /// Whether hyper has bytes that the kernel did not take.
    owes: AtomicBool,
    /// Bytes that the kernel has taken for the peer.
    taken: AtomicU64,
    /// The answer that leaves hyper together with the connection.
    leaving: Mutex<Option<Box<Leaving>>>,
}

/// The connection that a request came over, as an extension of the request.
#[derive(Clone)]
pub struct Peer {
    /// The shard whose thread serves it.
    pub shard: usize,
    /// Ends this request alone, where others share the connection (HTTP/2).
    alone: Option<CancellationToken>,
    /// Weak: the descriptor goes with the connection, whoever still remembers it.
    shared: Weak<Shared>,
}

impl Peer {
    pub(super) fn new(shard: usize, socket: &Socket) -> Self {
        Self { shard, alone: None, shared: Arc::downgrade(&socket.0) }
    }

    /// One of several requests on a connection.
    pub(super) fn alone(self, cut: CancellationToken) -> Self {
        Self { alone: Some(cut), ..self }
    }

    /// Whether the connection is this request's alone, as in HTTP/1.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.is_none()
    }

    /// Lets the connection leave hyper with this answer.
    pub(super) fn leave_with(&self, leaving: Leaving) {
        if let Some(shared) = self.shared.upgrade() {
            *shared.leaving.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(leaving));
        }
    }

    /// From now on the connection carries a stream.
    pub fn becomes_stream(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.becomes_stream();
        }
    }

    /// Makes room for a last frame to a reader that takes nothing.
    pub fn make_room(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.hold_unsent(u32::MAX >> 1);
        }
    }

    /// Grows as the kernel takes bytes for the peer, which it does only as the peer takes them. What the connection
    /// takes says nothing of one request among several.
    pub fn bytes_taken(&self) -> u64 {
        let shared = if self.alone.is_some() { None } else { self.shared.upgrade() };
        shared.map_or(0, |shared| shared.taken.load(Ordering::Relaxed))
    }

    /// Ends the request, whatever is still to be sent, and the connection, if it is its own.
    pub fn cut(&self) {
        match &self.alone {
            Some(alone) => alone.cancel(),
            None => self.close(),
        }
    }

    /// Ends the connection, and every request on it.
    pub fn close(&self) {
        if let Some(shared) = self.shared.upgrade() {
            // A socket that the peer closed meanwhile is as good.
            let _ = rustix::net::shutdown(&shared.tcp, Shutdown::Both);
        }
    }
}

impl Shared {
    pub(super) fn becomes_stream(&self) {
        self.carries_stream.store(true, Ordering::Relaxed);
        self.hold_unsent(STREAM_UNSENT);
    }

    fn hold_unsent(&self, bytes: u32) {
        // Where the option is missing a slow reader costs more kernel memory, and nothing else.
        let _ = SockRef::from(&self.tcp).set_tcp_notsent_lowat(bytes);
    }

    /// Writes what the kernel takes now.
    pub(super) fn offer(&self, bytes: &[u8]) -> io::Result<usize> {
        let piece = if self.carries_stream.load(Ordering::Relaxed) { STREAM_PIECE } else { usize::MAX };
        let taken = self.tcp.try_write(&bytes[..bytes.len().min(piece)])?;
        self.taken.fetch_add(taken as u64, Ordering::Relaxed);
        Ok(taken)
    }

    /// The same for bytes that lie in several places. Little is copied together, which costs less than a vectored write
    /// does; so are a stream's bytes, of which the kernel gets a piece at a time.
    fn offer_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let total: usize = slices.iter().map(|slice| slice.len()).sum();
        if total > STREAM_PIECE && !self.carries_stream.load(Ordering::Relaxed) {
            let taken = self.tcp.try_write_vectored(slices)?;
            self.taken.fetch_add(taken as u64, Ordering::Relaxed);
            return Ok(taken);
        }
        GATHERED.with_borrow_mut(|gathered| {
            gathered.clear();
            for slice in slices {
                gathered.extend_from_slice(&slice[..slice.len().min(STREAM_PIECE - gathered.len())]);
            }
            self.offer(gathered)
        })
    }
}

thread_local! {
    /// Where small writes are put together.
    static GATHERED: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(STREAM_PIECE));
}

/// The half that hyper owns.
pub(super) struct Socket(Arc<Shared>);

impl Socket {
    pub(super) fn new(tcp: TcpStream) -> Self {
        let shared = Shared {
            tcp,
            carries_stream: AtomicBool::new(false),
            owes: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            leaving: Mutex::new(None),
        };
        shared.hold_unsent(UNSENT);
        Self(Arc::new(shared))
    }

    fn poll_offer(
        &self,
        cx: &mut Context<'_>,
        offered: usize,
        offer: impl FnMut() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let written = try_when_ready(|| self.0.tcp.poll_write_ready(cx), offer);
        let all = matches!(&written, Poll::Ready(Ok(count)) if *count == offered);
        self.0.owes.store(!all, Ordering::Relaxed);
        written
    }

    /// For after hyper.
    pub(super) fn remains(&self) -> Remains {
        Remains(self.0.clone())
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.0.tcp
    }
}

/// What is left of a connection when hyper has let go of it.
#[derive(Clone)]
pub(super) struct Remains(Arc<Shared>);

impl Remains {
    /// The answer that the connection leaves hyper with, once the answers before it were written.
    pub(super) fn take_leaving(&self) -> Option<Box<Leaving>> {
        if self.0.owes.load(Ordering::Relaxed) {
            return None;
        }
        self.0.leaving.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    /// Reads on for a moment what the peer is still sending, for nobody. A socket that is closed with unread bytes is
    /// reset, and a peer that was refused in the middle of a long body would never see the answer.
    pub(super) async fn linger(self) {
        // hyper has done so already, unless it gave up.
        let _ = rustix::net::shutdown(&self.0.tcp, Shutdown::Write);
        let mut scratch = vec![0; 16 << 10];
        let mut left = LINGER_BYTES;
        let discard = async {
            while self.0.tcp.readable().await.is_ok() {
                match self.0.tcp.try_read(&mut scratch) {
                    Ok(read) if read > 0 && read < left => left -= read,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => return,
                }
            }
        };
        let _ = tokio::time::timeout(LINGER, discard).await;
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
        let tcp = &self.0.tcp;
        try_when_ready(|| tcp.poll_read_ready(cx), || tcp.try_read_buf(buf).map(drop))
    }
}

/// Vectored, so that hyper keeps a response's bytes as they are and lets go of them as the kernel takes them: it would copy
/// them otherwise, out of sight of those who count them (`in_flight`).
impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_offer(cx, buf.len(), || self.0.offer(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_offer(cx, bufs.iter().map(|buf| buf.len()).sum(), || self.0.offer_vectored(bufs))
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
