//! The accept loop, and the shards that serve connections: each shard is one thread with its own runtime.
//!
//! Few threads cost less than many, and a connection never changes its thread, so waking it is cheap. hyper's http1
//! connection serves HTTP/1.1 until a stream or a WebSocket takes the socket (`detached`); http2 serves connections
//! that begin with the HTTP/2 preface. Draining finishes the requests in progress, still accepts connections meanwhile,
//! so that a proxy with no other backend can send requests, and closes the listener last.

mod connection;
mod detached;
mod drain_signal;
mod socket;
mod socket_io;
mod websocket_driver;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use bongsu_kernel::BoxFuture;
use bongsu_kernel::settings::{Scope, Setting};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use drain_signal::DrainSignal;
pub use socket::ConnectionControl;

use crate::in_flight::{HTTP_MAX_REQUESTS_PER_USER, HTTP_STALL_SECS, HTTP_WAITING_BYTES};
use crate::origins::ALLOWED_ORIGINS;
use crate::request_scope::DEFAULT_LANGUAGE;

bongsu_kernel::settings! { "server":
    pub SERVER_HOST = "127.0.0.1", scope(Scope::Instance):
        "The address to listen on. Addresses other than loopback require secrets that are neither short nor development values.";
    pub SERVER_PORT = "8083", scope(Scope::Instance), integer(0, 65_535):
        "The port to listen on. 0: any free port.";
    pub SERVER_SHARDS = "0", scope(Scope::Instance), integer(0, 256):
        "Threads that serve connections. 0: half of the cores, at least one; the database and the kernel use the rest.";
}
pub const SETTINGS: &[&Setting] = &[
    &SERVER_HOST,
    &SERVER_PORT,
    &SERVER_SHARDS,
    &HTTP_MAX_REQUESTS_PER_USER,
    &HTTP_WAITING_BYTES,
    &HTTP_STALL_SECS,
    &ALLOWED_ORIGINS,
    &DEFAULT_LANGUAGE,
];

/// Descriptors reserved for files, the database and outgoing calls, but never more than half of all.
const RESERVED_DESCRIPTORS: u64 = 128;
/// Connections reserved for requests, so that a hub with the maximum number of streams still accepts publishes and
/// reads.
const RESERVED_CONNECTIONS: usize = 512;

/// How long connections that were accepted during the drain may take to end after the listener was closed.
const LAST_CONNECTIONS_TIMEOUT: Duration = Duration::from_millis(400);

/// Creates the future that runs on the shard with this index, beside its connections.
pub type ShardLoop = Arc<dyn Fn(usize) -> BoxFuture<'static, ()> + Send + Sync>;

/// The number of shards where `SERVER_SHARDS` is 0.
pub fn default_shards() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

/// Listens on an address. The backlog is long enough for many clients that reconnect at the same time.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(4_096)
}

/// Raises the soft limit of open files to the hard limit, and returns the limit in force.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        limit.maximum.unwrap_or(u64::MAX)
    } else {
        limit.current.unwrap_or(u64::MAX)
    }
}

/// The maximum number of connections, and how many of them may be streams.
pub fn capacity() -> (usize, usize) {
    let descriptors = raise_descriptor_limit();
    let connections = descriptors.saturating_sub(RESERVED_DESCRIPTORS).max(descriptors / 2);
    let connections = usize::try_from(connections).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
    (connections, connections - RESERVED_CONNECTIONS.min(connections / 4))
}

/// A running server.
pub struct Server {
    stop_accepting: CancellationToken,
    drain: DrainSignal,
    connections: TaskTracker,
    /// Connections that were accepted after draining had begun.
    late_connections: TaskTracker,
    stop: CancellationToken,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// An accepted connection on its way to its shard. A std socket, because the shard's runtime has to register it.
type AcceptedConnection = (std::net::TcpStream, OwnedSemaphorePermit);

struct Shard {
    incoming: mpsc::UnboundedSender<AcceptedConnection>,
    open: Arc<AtomicUsize>,
}

impl Server {
    /// Starts the shards. The caller has to run the accept loop: [`Acceptor::run`].
    pub fn start(shards: usize, app: &Router, shard_loop: &ShardLoop) -> std::io::Result<(Self, Acceptor)> {
        let (connections, _) = capacity();
        let mut server = Self {
            stop_accepting: CancellationToken::new(),
            drain: DrainSignal::default(),
            connections: TaskTracker::new(),
            late_connections: TaskTracker::new(),
            stop: CancellationToken::new(),
            threads: Vec::new(),
        };
        let mut handles = Vec::new();
        for index in 0..shards {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(8).build()?;
            let (incoming, arrivals) = mpsc::unbounded_channel();
            let open = Arc::new(AtomicUsize::new(0));
            handles.push(Shard { incoming, open: open.clone() });
            let shard = RunningShard {
                index,
                app: app.clone(),
                open,
                connections: server.connections.clone(),
                late_connections: server.late_connections.clone(),
                arrivals_token: server.late_connections.token(),
                drain: server.drain.clone(),
            };
            let (stop, side_loop) = (server.stop.clone(), shard_loop(index));
            let thread = std::thread::Builder::new().name(format!("shard-{index}")).spawn(move || {
                runtime.block_on(shard.run(arrivals, side_loop, stop));
                // Does not wait for blocking tasks: a read that hangs on a broken disk must not delay the shutdown.
                runtime.shutdown_background();
            })?;
            server.threads.push(thread);
        }
        let acceptor = Acceptor {
            shards: handles,
            permits: Arc::new(Semaphore::new(connections)),
            stop: server.stop_accepting.clone(),
        };
        Ok((server, acceptor))
    }

    /// Waits at most `timeout` for the requests in progress, runs `last_work`, then closes the listener and ends the
    /// shards. Returns whether every connection ended by itself.
    pub async fn drain(self, timeout: Duration, last_work: impl Future<Output = ()>) -> bool {
        self.drain.begin();
        self.connections.close();
        self.late_connections.close();
        let mut in_time = tokio::time::timeout(timeout, self.connections.wait()).await.is_ok();
        last_work.await;
        self.stop_accepting.cancel();
        if in_time {
            // A shard may have added a connection to `connections` right after the wait above had ended.
            let last = async { tokio::join!(self.late_connections.wait(), self.connections.wait()) };
            in_time = tokio::time::timeout(LAST_CONNECTIONS_TIMEOUT, last).await.is_ok();
        }
        self.stop.cancel();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a shard thread panicked; continuing the shutdown");
            }
        }
        in_time
    }
}

/// Assigns new connections to the shard with the fewest open ones.
pub struct Acceptor {
    shards: Vec<Shard>,
    permits: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Acceptor {
    pub async fn run(self, listener: TcpListener) {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.accept(&listener) => {}
        }
        self.accept_backlog(listener);
    }

    async fn accept(&self, listener: &TcpListener) {
        let errors = metrics::counter!("http_accept_errors_total");
        loop {
            // At the limit, new connections wait in the backlog until an open one ends.
            if self.permits.available_permits() == 0 {
                tracing::warn!("reached the connection limit; new connections wait in the backlog");
            }
            let Ok(permit) = self.permits.clone().acquire_owned().await else { return };
            match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
                Ok(stream) => self.assign_to_shard(stream, permit),
                Err(error) => {
                    errors.increment(1);
                    tracing::warn!(%error, "failed to accept a connection; retrying");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    /// Accepts the connections in the backlog. Their clients are connected and may have sent a request already, which
    /// would be lost when the listener is closed.
    fn accept_backlog(&self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else { return };
        while let Ok(permit) = self.permits.clone().try_acquire_owned() {
            let Ok((stream, _)) = listener.accept() else { return };
            if stream.set_nonblocking(true).is_ok() {
                self.assign_to_shard(stream, permit);
            }
        }
    }

    fn assign_to_shard(&self, stream: std::net::TcpStream, permit: OwnedSemaphorePermit) {
        let Some(shard) = self.shards.iter().min_by_key(|shard| shard.open.load(Ordering::Relaxed)) else {
            return;
        };
        shard.open.fetch_add(1, Ordering::Relaxed);
        // If the shard has ended, the connection is dropped and thereby closed.
        let _ = shard.incoming.send((stream, permit));
    }
}

/// A connection's place among the open connections of its shard and of the process, released on drop.
struct ConnectionSlot {
    open: Arc<AtomicUsize>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

struct RunningShard {
    index: usize,
    app: Router,
    open: Arc<AtomicUsize>,
    connections: TaskTracker,
    late_connections: TaskTracker,
    /// A token of `late_connections`, kept until every accepted connection is in one of the trackers.
    arrivals_token: TaskTrackerToken,
    drain: DrainSignal,
}

impl RunningShard {
    #[expect(clippy::disallowed_methods, reason = "the shard loop runs exactly as long as its runtime")]
    async fn run(
        self,
        mut arrivals: mpsc::UnboundedReceiver<AcceptedConnection>,
        side_loop: BoxFuture<'static, ()>,
        stop: CancellationToken,
    ) {
        tokio::spawn(side_loop);
        loop {
            let arrival = tokio::select! {
                () = stop.cancelled() => return,
                arrival = arrivals.recv() => arrival,
            };
            let Some((stream, permit)) = arrival else {
                // The acceptor has ended; connections are served until the server stops.
                drop(self.arrivals_token);
                return stop.cancelled().await;
            };
            let slot = ConnectionSlot { open: self.open.clone(), _permit: permit };
            let Ok(stream) = TcpStream::from_std(stream) else { continue };
            let is_late = self.drain.has_begun();
            let connections = if is_late { &self.late_connections } else { &self.connections }.clone();
            let serve = connection::serve(stream, self.index, self.app.clone(), self.drain.clone());
            let tracker = connections.clone();
            connections.spawn(async move {
                // A detached connection is served by a new task, which is a fraction of the size of this one.
                if let Some(detached) = serve.await {
                    tracker.spawn(detached.with_slot(slot));
                }
            });
        }
    }
}
