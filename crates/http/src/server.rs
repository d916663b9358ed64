//! The accept loop: connections spread over shards, each shard one thread with a runtime of its own.
//!
//! Few threads cost less than many, and a connection never changes its thread, so waking it is cheap. Plain HTTP/1.1 is
//! served by hyper's own http1 connection, until a stream or a WebSocket takes the socket (`carrier`), and HTTP/2 (by
//! its preface) by http2. Draining finishes the requests that are in progress, goes on to accept connections meanwhile so
//! that a proxy with only this server has somewhere to send requests, and closes the listener right before the end.

mod carrier;
mod connection;
mod drain;
mod duplex;
mod line;
mod socket;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use bongsu_kernel::Boxed;
use bongsu_kernel::settings::{Scope, Setting};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use drain::Drain;
pub use socket::Peer;

use crate::frame::DEFAULT_LANGUAGE;
use crate::in_flight::{HTTP_MAX_REQUESTS_PER_USER, HTTP_STALL_SECS, HTTP_WAITING_BYTES};
use crate::origins::ALLOWED_ORIGINS;

bongsu_kernel::settings! { "server":
    pub SERVER_HOST = "127.0.0.1", scope(Scope::Instance):
        "The address to listen on. Anything but loopback needs real secrets.";
    pub SERVER_PORT = "8083", scope(Scope::Instance), whole(0, 65_535):
        "The port to listen on; 0 takes a free one.";
    pub SERVER_SHARDS = "0", scope(Scope::Instance), whole(0, 256):
        "Threads that serve connections. 0: half of the cores, at least one: the database and the kernel need the rest.";
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

/// Descriptors that are kept for files, the database and outgoing calls, unless that would be most of them.
const RESERVED_DESCRIPTORS: u64 = 128;
/// Connections that streams leave to requests, so that a hub full of streams can still be published to and asked.
const RESERVED_CONNECTIONS: usize = 512;

/// Connections that were accepted while the server drained have this long to end once the listener is closed.
const LAST_CONNECTIONS_TIMEOUT: Duration = Duration::from_millis(400);

/// What runs on every shard beside its connections.
pub type ShardLoop = Arc<dyn Fn(usize) -> Boxed<'static, ()> + Send + Sync>;

/// How many shards there are when nothing is said.
pub fn default_shards() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1))
}

/// Listens. The backlog is long enough for a fleet of clients that come back at once.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(4_096)
}

/// Lets the process open as many files as the system allows, and says how many that is.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        limit.maximum.unwrap_or(u64::MAX)
    } else {
        limit.current.unwrap_or(u64::MAX)
    }
}

/// How many connections there may be, and how many of them may be streams.
pub fn capacity() -> (usize, usize) {
    let descriptors = raise_descriptor_limit();
    let connections = descriptors.saturating_sub(RESERVED_DESCRIPTORS).max(descriptors / 2);
    let connections = usize::try_from(connections).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
    (connections, connections - RESERVED_CONNECTIONS.min(connections / 4))
}

/// A running server.
pub struct Server {
    stop_accepting: CancellationToken,
    drain: Drain,
    connections: TaskTracker,
    /// Connections that were accepted after draining had begun.
    late_connections: TaskTracker,
    stop: CancellationToken,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// A connection on its way to its shard, not yet known to any runtime: the shard's own must watch over it.
type Arrival = (std::net::TcpStream, OwnedSemaphorePermit);

struct Shard {
    incoming: mpsc::UnboundedSender<Arrival>,
    open: Arc<AtomicUsize>,
}

impl Server {
    /// Starts the shards. The accept loop is the caller's to run: [`Server::accept`].
    pub fn start(shards: usize, app: &Router, shard_loop: &ShardLoop) -> std::io::Result<(Self, Acceptor)> {
        let (connections, _) = capacity();
        let mut server = Self {
            stop_accepting: CancellationToken::new(),
            drain: Drain::default(),
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
                expects: server.late_connections.token(),
                drain: server.drain.clone(),
            };
            let (stop, side_loop) = (server.stop.clone(), shard_loop(index));
            let thread = std::thread::Builder::new().name(format!("shard-{index}")).spawn(move || {
                runtime.block_on(shard.run(arrivals, side_loop, stop));
                // A read that hangs on a broken disk must not hold up the end.
                runtime.shutdown_background();
            })?;
            server.threads.push(thread);
        }
        let acceptor = Acceptor {
            shards: handles,
            places: Arc::new(Semaphore::new(connections)),
            stop: server.stop_accepting.clone(),
        };
        Ok((server, acceptor))
    }

    /// Waits at most `timeout` for the requests that are in progress, does the last work, then closes the listener and ends
    /// the shards. Returns whether every connection ended by itself.
    pub async fn drain(self, timeout: Duration, last_work: impl Future<Output = ()>) -> bool {
        self.drain.begin();
        self.connections.close();
        self.late_connections.close();
        let mut in_time = tokio::time::timeout(timeout, self.connections.wait()).await.is_ok();
        last_work.await;
        self.stop_accepting.cancel();
        if in_time {
            // A shard may have counted a connection among the first ones right after their wait had ended.
            let last = async { tokio::join!(self.late_connections.wait(), self.connections.wait()) };
            in_time = tokio::time::timeout(LAST_CONNECTIONS_TIMEOUT, last).await.is_ok();
        }
        self.stop.cancel();
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a shard had failed");
            }
        }
        in_time
    }
}

/// Hands new connections to the shard with the fewest.
pub struct Acceptor {
    shards: Vec<Shard>,
    places: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Acceptor {
    pub async fn run(self, listener: TcpListener) {
        let stop = self.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.accept(&listener) => {}
        }
        self.take_waiting(listener);
    }

    async fn accept(&self, listener: &TcpListener) {
        let refused = metrics::counter!("http_accept_errors_total");
        loop {
            // At the limit, further connections wait in the backlog until one ends.
            if self.places.available_permits() == 0 {
                tracing::warn!("no connection is free: new ones wait until one ends");
            }
            let Ok(place) = self.places.clone().acquire_owned().await else { return };
            match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
                Ok(stream) => self.hand_over(stream, place),
                Err(error) => {
                    refused.increment(1);
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    /// Those who wait in the backlog count as connected on their side, and may have sent their request already: closing
    /// the listener would take it from them.
    fn take_waiting(&self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else { return };
        while let Ok(place) = self.places.clone().try_acquire_owned() {
            let Ok((stream, _)) = listener.accept() else { return };
            if stream.set_nonblocking(true).is_ok() {
                self.hand_over(stream, place);
            }
        }
    }

    fn hand_over(&self, stream: std::net::TcpStream, place: OwnedSemaphorePermit) {
        let Some(shard) = self.shards.iter().min_by_key(|shard| shard.open.load(Ordering::Relaxed)) else {
            return;
        };
        shard.open.fetch_add(1, Ordering::Relaxed);
        // A shard that ended takes the connection down with it.
        let _ = shard.incoming.send((stream, place));
    }
}

/// What a connection takes from others until it ends.
struct Held {
    open: Arc<AtomicUsize>,
    _place: OwnedSemaphorePermit,
}

impl Drop for Held {
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
    expects: TaskTrackerToken,
    drain: Drain,
}

impl RunningShard {
    #[expect(
        clippy::disallowed_methods,
        reason = "the shard's own loop lives exactly as long as its runtime"
    )]
    async fn run(
        self,
        mut arrivals: mpsc::UnboundedReceiver<Arrival>,
        side_loop: Boxed<'static, ()>,
        stop: CancellationToken,
    ) {
        tokio::spawn(side_loop);
        loop {
            let arrival = tokio::select! {
                () = stop.cancelled() => return,
                arrival = arrivals.recv() => arrival,
            };
            let Some((stream, place)) = arrival else {
                // The acceptor is gone; connections go on until the end.
                drop(self.expects);
                return stop.cancelled().await;
            };
            let held = Held { open: self.open.clone(), _place: place };
            let Ok(stream) = TcpStream::from_std(stream) else { continue };
            let is_late = self.drain.has_begun();
            let connections = if is_late { &self.late_connections } else { &self.connections }.clone();
            let serve = connection::serve(stream, self.index, self.app.clone(), self.drain.clone());
            let carriers = connections.clone();
            connections.spawn(async move {
                // What was carried off goes on as a task of its own, which is a fraction of the size of this one.
                if let Some(carrier) = serve.await {
                    carriers.spawn(carrier.holding(held));
                }
            });
        }
    }
}
