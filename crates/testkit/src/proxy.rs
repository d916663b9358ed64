//! A fault proxy before one TCP address: it cuts, resets, holds back, swallows and slows down, and takes single
//! messages out of what a Redis server sends to its subscribers.
//!
//! It has a thread of its own, so that a test that blocks does not hold up the wire. A fault is in effect when the
//! method that asks for it returns: no byte passes afterwards that should not.

mod link;
mod messages;
mod pump;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::ports::{Port, loopback};
use link::Link;
use messages::Wanted;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

impl Direction {
    fn reverse(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}

/// A proxy before one address, for as long as this value lives.
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
    orders: Option<mpsc::UnboundedSender<(Order, Done)>>,
    thread: Option<JoinHandle<()>>,
}

/// What is wrong with the wire now.
#[derive(Clone, Debug, Default)]
struct Faults {
    paused: Vec<Direction>,
    stalled: Vec<(Direction, Option<IpAddr>)>,
    bytes_per_second: Option<u64>,
}

impl Faults {
    fn pauses(&self, direction: Direction) -> bool {
        self.paused.contains(&direction)
    }

    fn stalls(&self, direction: Direction, client: IpAddr) -> bool {
        self.stalled.iter().any(|(of, from)| *of == direction && from.is_none_or(|from| from == client))
    }
}

/// What connections, the acceptor and the test's side share.
struct Shared {
    target: Mutex<SocketAddr>,
    faults: watch::Sender<Faults>,
    wanted: Mutex<Wanted>,
    open: AtomicUsize,
    accepted: AtomicUsize,
    /// Connections that end now end with a reset.
    resetting: AtomicBool,
}

enum Order {
    Cut,
    Heal,
    Reset,
}

type Done = std::sync::mpsc::Sender<()>;

impl Proxy {
    /// Starts one on a free loopback port.
    pub async fn start(target: SocketAddr) -> Self {
        let port = Port::pick();
        let listener = listen(port.number()).expect("the port that was just free");
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            faults: watch::Sender::new(Faults::default()),
            wanted: Mutex::default(),
            open: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            resetting: AtomicBool::new(false),
        });
        let (orders, waiting) = mpsc::unbounded_channel();
        let (number, serving) = (port.number(), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(serve(number, listener, serving, waiting));
        });
        Self { port, shared, orders: Some(orders), thread: Some(thread.expect("a thread")) }
    }

    pub fn addr(&self) -> SocketAddr {
        loopback(self.port.number())
    }

    /// How many connections are open now.
    pub fn connections(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How many connections there have been.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Connects new clients to another address, as a changed DNS record does. Open connections stay where they are.
    pub fn set_target(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap() = target;
    }

    /// Closes all connections, on both sides, and refuses new ones.
    pub fn cut(&self) {
        self.order(Order::Cut);
    }

    /// Ends every fault. A connection that has lost bytes stays silent, as it would on a real wire; new ones work.
    pub fn heal(&self) {
        self.shared.faults.send_replace(Faults::default());
        self.order(Order::Heal);
    }

    /// Resets all connections (RST), on both sides, and goes on with new ones.
    pub fn reset(&self) {
        self.order(Order::Reset);
    }

    /// Holds bytes of this direction back, and an end of the connection behind them. Nothing is lost: they stay in
    /// the sockets' buffers, and who sends more than fits there has to wait.
    pub fn pause(&self, direction: Direction) {
        self.shared.faults.send_modify(|faults| faults.paused.push(direction));
    }

    /// Lets held bytes of both directions pass.
    pub fn resume(&self) {
        self.shared.faults.send_modify(|faults| faults.paused.clear());
    }

    /// Half-open, until [`Proxy::heal`]: bytes of this direction vanish, on open connections and on new ones, and
    /// nothing closes, not even when the sender goes.
    pub fn stall(&self, direction: Direction) {
        self.shared.faults.send_modify(|faults| faults.stalled.push((direction, None)));
    }

    /// As [`Proxy::stall`], for connections from one address only.
    pub(crate) fn stall_from(&self, client: IpAddr, direction: Direction) {
        self.shared.faults.send_modify(|faults| faults.stalled.push((direction, Some(client))));
    }

    /// Ends [`Proxy::stall_from`], and no other fault.
    pub(crate) fn end_stall_from(&self, client: IpAddr) {
        self.shared.faults.send_modify(|faults| faults.stalled.retain(|(_, from)| *from != Some(client)));
    }

    /// Lets no more than about so many bytes a second pass, per connection and direction, until [`Proxy::heal`].
    pub fn slow(&self, bytes_per_second: u64) {
        assert!(bytes_per_second > 0, "a wire without any speed is `pause`");
        self.shared.faults.send_modify(|faults| faults.bytes_per_second = Some(bytes_per_second));
    }

    /// Takes the next pub/sub message that holds these bytes (in its channel or its text) out of what the server
    /// sends, and nothing else; the connection goes on. Once for each call. [`Proxy::dropped`] tells when.
    pub fn drop_next_message(&self, matching: &[u8]) {
        self.shared.wanted.lock().unwrap().add(matching);
    }

    /// How many messages were taken out so far.
    pub fn dropped(&self) -> u64 {
        self.shared.wanted.lock().unwrap().taken()
    }

    /// Waits until the proxy's thread has done it. It waits for nobody, so this takes no time worth naming.
    fn order(&self, order: Order) {
        let (done, waiting) = std::sync::mpsc::channel();
        let orders = self.orders.as_ref().expect("kept until the end");
        orders.send((order, done)).ok().and_then(|()| waiting.recv().ok()).expect("the proxy's thread runs");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Without anybody to take orders from the thread ends, and its connections with it.
        self.orders.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(port: u16) -> io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(loopback(port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The proxy's thread: accepts, and does what it is told.
async fn serve(
    port: u16,
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
    mut orders: mpsc::UnboundedReceiver<(Order, Done)>,
) {
    let mut listener = TcpListener::from_std(listener).ok();
    // Connections end with the proxy, because the set is dropped with this function.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some((order, done)) = order else { return };
                match order {
                    Order::Cut => {
                        listener = None;
                        connections.shutdown().await;
                    }
                    Order::Heal if listener.is_some() => {}
                    Order::Heal => {
                        let opened = listen(port).and_then(TcpListener::from_std);
                        listener = Some(opened.expect("the port, which is held for the proxy"));
                    }
                    Order::Reset => {
                        shared.resetting.store(true, Ordering::SeqCst);
                        connections.shutdown().await;
                        shared.resetting.store(false, Ordering::SeqCst);
                    }
                }
                let _ = done.send(());
            }
            Some((client, from)) = accept(listener.as_ref()) => {
                let link = Link::new(client, from.ip(), Arc::clone(&shared));
                connections.spawn(link.run());
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> Option<(tokio::net::TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await.ok(),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "proxy/tests.rs"]
mod tests;
