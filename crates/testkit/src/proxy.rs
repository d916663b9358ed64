//! A proxy in front of one TCP address that injects faults: it closes, resets, pauses, stalls and slows down
//! connections, and drops single pub/sub messages that a Redis server sends.
//!
//! The proxy has its own thread, so that a test that blocks its thread does not block the connections. A fault is in
//! effect when the method that requests it returns.

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
use messages::MessageDropper;

/// The direction of bytes.
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

/// A proxy in front of one address. Dropping it closes its connections and its port.
pub struct Proxy {
    port: Port,
    shared: Arc<ProxyState>,
    commands: Option<mpsc::UnboundedSender<(Command, Acknowledgement)>>,
    thread: Option<JoinHandle<()>>,
}

/// The faults that are in effect.
#[derive(Clone, Debug, Default)]
struct Faults {
    paused: Vec<Direction>,
    stalled: Vec<(Direction, Option<IpAddr>)>,
    bytes_per_second: Option<u64>,
}

impl Faults {
    fn is_paused(&self, direction: Direction) -> bool {
        self.paused.contains(&direction)
    }

    fn is_stalled(&self, direction: Direction, client: IpAddr) -> bool {
        self.stalled
            .iter()
            .any(|(stalled, from)| *stalled == direction && from.is_none_or(|from| from == client))
    }
}

/// State that the connections, the proxy's thread and the test share.
struct ProxyState {
    target: Mutex<SocketAddr>,
    faults: watch::Sender<Faults>,
    dropper: Mutex<MessageDropper>,
    open_count: AtomicUsize,
    accepted_count: AtomicUsize,
    /// Connections that are dropped while this is true are closed with a reset.
    is_resetting: AtomicBool,
}

enum Command {
    Cut,
    Heal,
    Reset,
}

type Acknowledgement = std::sync::mpsc::Sender<()>;

impl Proxy {
    /// Starts a proxy on a free loopback port.
    pub async fn start(target: SocketAddr) -> Self {
        let port = Port::pick();
        let listener = listen(port.number()).expect("cannot bind the port of the proxy");
        let shared = Arc::new(ProxyState {
            target: Mutex::new(target),
            faults: watch::Sender::new(Faults::default()),
            dropper: Mutex::default(),
            open_count: AtomicUsize::new(0),
            accepted_count: AtomicUsize::new(0),
            is_resetting: AtomicBool::new(false),
        });
        let (commands, receiver) = mpsc::unbounded_channel();
        let (number, thread_state) = (port.number(), Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("cannot build a runtime").block_on(serve(
                number,
                listener,
                thread_state,
                receiver,
            ));
        });
        Self { port, shared, commands: Some(commands), thread: Some(thread.expect("cannot start a thread")) }
    }

    pub fn addr(&self) -> SocketAddr {
        loopback(self.port.number())
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.open_count.load(Ordering::SeqCst)
    }

    /// The number of connections accepted so far.
    pub fn accepted_connections(&self) -> usize {
        self.shared.accepted_count.load(Ordering::SeqCst)
    }

    /// Connects new clients to another address, as a changed DNS record does. Open connections keep their server.
    pub fn set_target(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap() = target;
    }

    /// Closes all connections on both sides, and refuses new ones.
    pub fn cut(&self) {
        self.execute(Command::Cut);
    }

    /// Ends every fault. A connection that has lost bytes stays stalled in that direction; new connections work.
    pub fn heal(&self) {
        self.shared.faults.send_replace(Faults::default());
        self.execute(Command::Heal);
    }

    /// Resets all connections (RST) on both sides. New connections work.
    pub fn reset(&self) {
        self.execute(Command::Reset);
    }

    /// Stops forwarding in this direction until [`Proxy::resume`] or [`Proxy::heal`]. No bytes are lost: they stay in
    /// the socket buffers, and a sender blocks when these are full.
    pub fn pause(&self, direction: Direction) {
        self.shared.faults.send_modify(|faults| faults.paused.push(direction));
    }

    /// Ends [`Proxy::pause`] in both directions.
    pub fn resume(&self) {
        self.shared.faults.send_modify(|faults| faults.paused.clear());
    }

    /// Discards all bytes of this direction on open and new connections until [`Proxy::heal`]. A close by the sender is
    /// not forwarded either, so that connections are half-open.
    pub fn stall(&self, direction: Direction) {
        self.shared.faults.send_modify(|faults| faults.stalled.push((direction, None)));
    }

    /// As [`Proxy::stall`], only for connections from one client address.
    pub(crate) fn stall_from(&self, client: IpAddr, direction: Direction) {
        self.shared.faults.send_modify(|faults| faults.stalled.push((direction, Some(client))));
    }

    /// Ends [`Proxy::stall_from`] for a client address. Other faults stay.
    pub(crate) fn end_stall_from(&self, client: IpAddr) {
        self.shared.faults.send_modify(|faults| faults.stalled.retain(|(_, from)| *from != Some(client)));
    }

    /// Limits each connection and direction to about this number of bytes per second until [`Proxy::heal`].
    pub fn slow(&self, bytes_per_second: u64) {
        assert!(bytes_per_second > 0, "the speed must be greater than 0; use `pause` to stop forwarding");
        self.shared.faults.send_modify(|faults| faults.bytes_per_second = Some(bytes_per_second));
    }

    /// Drops the next pub/sub message from the server whose channel or payload contains these bytes. Each call drops
    /// one message, on one connection, which stays open. [`Proxy::dropped_messages`] counts them.
    pub fn drop_next_message(&self, matching: &[u8]) {
        self.shared.dropper.lock().unwrap().add(matching);
    }

    /// The number of messages dropped so far.
    pub fn dropped_messages(&self) -> u64 {
        self.shared.dropper.lock().unwrap().dropped_count()
    }

    /// Sends a command to the proxy's thread and blocks until the thread has executed it.
    fn execute(&self, command: Command) {
        let (done, receiver) = std::sync::mpsc::channel();
        let commands = self.commands.as_ref().expect("the sender lives until the proxy is dropped");
        commands
            .send((command, done))
            .ok()
            .and_then(|()| receiver.recv().ok())
            .expect("the proxy's thread has ended");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The thread ends when the sender is dropped, and closes its connections.
        self.commands.take();
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

/// The main loop of the proxy's thread: accepts connections and executes commands.
async fn serve(
    port: u16,
    listener: std::net::TcpListener,
    shared: Arc<ProxyState>,
    mut commands: mpsc::UnboundedReceiver<(Command, Acknowledgement)>,
) {
    let mut listener = TcpListener::from_std(listener).ok();
    // Dropping the set at the end of this function closes the connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            command = commands.recv() => {
                let Some((command, done)) = command else { return };
                match command {
                    Command::Cut => {
                        listener = None;
                        connections.shutdown().await;
                    }
                    Command::Heal if listener.is_some() => {}
                    Command::Heal => {
                        let opened = listen(port).and_then(TcpListener::from_std);
                        listener = Some(opened.expect("cannot bind the port of the proxy again"));
                    }
                    Command::Reset => {
                        shared.is_resetting.store(true, Ordering::SeqCst);
                        connections.shutdown().await;
                        shared.is_resetting.store(false, Ordering::SeqCst);
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
