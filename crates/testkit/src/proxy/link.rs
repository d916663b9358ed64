//! One connection through the proxy: two sockets and a pump for each direction.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::TcpStream;

use super::pump::pump;
use super::{Direction, Faults, Shared};

/// A connection and what it has to know about the proxy's faults.
pub(super) struct Link {
    client: TcpStream,
    server: Option<TcpStream>,
    from: IpAddr,
    pub(super) shared: Arc<Shared>,
    lost: Flags,
    finished: Flags,
}

/// One for each direction.
#[derive(Default)]
struct Flags {
    to_server: AtomicBool,
    to_client: AtomicBool,
}

impl Flags {
    fn of(&self, direction: Direction) -> &AtomicBool {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

impl Link {
    pub(super) fn new(client: TcpStream, from: IpAddr, shared: Arc<Shared>) -> Self {
        shared.open.fetch_add(1, Ordering::SeqCst);
        shared.accepted.fetch_add(1, Ordering::SeqCst);
        Self { client, server: None, from, shared, lost: Flags::default(), finished: Flags::default() }
    }

    /// Passes bytes until both sides have ended or one of them broke.
    pub(super) async fn run(mut self) {
        if self.connect().await.is_err() {
            // The nearest thing to being refused that is left once the connection was accepted.
            let _ = self.client.set_zero_linger();
            return;
        }
        let _ = tokio::try_join!(pump(&self, Direction::ToServer), pump(&self, Direction::ToClient));
    }

    async fn connect(&mut self) -> io::Result<()> {
        let target = *self.shared.target.lock().unwrap();
        let server = TcpStream::connect(target).await?;
        server.set_nodelay(true)?;
        self.client.set_nodelay(true)?;
        self.server = Some(server);
        Ok(())
    }

    /// Where bytes of this direction come from, and where they go to.
    pub(super) fn ends(&self, direction: Direction) -> (&TcpStream, &TcpStream) {
        let server = self.server.as_ref().expect("connected before anything is pumped");
        match direction {
            Direction::ToServer => (&self.client, server),
            Direction::ToClient => (server, &self.client),
        }
    }

    /// Whether nothing of this direction may arrive, not even its end: now, or for good because bytes were lost.
    pub(super) fn silent(&self, direction: Direction, faults: &Faults) -> bool {
        self.lost.of(direction).load(Ordering::Relaxed) || faults.stalls(direction, self.from)
    }

    /// Bytes of this direction are gone, so that what comes after them would make no sense.
    pub(super) fn lose(&self, direction: Direction) {
        self.lost.of(direction).store(true, Ordering::Relaxed);
    }

    /// Nothing more comes from this direction's sender; an error when nothing more comes from the other one either,
    /// so that the connection has nobody left.
    pub(super) fn finish(&self, direction: Direction) -> io::Result<()> {
        self.finished.of(direction).store(true, Ordering::Relaxed);
        let other = self.finished.of(direction.reverse()).load(Ordering::Relaxed);
        if other { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.shared.resetting.load(Ordering::SeqCst) {
            for socket in std::iter::once(&self.client).chain(&self.server) {
                let _ = socket.set_zero_linger();
            }
        }
        self.shared.open.fetch_sub(1, Ordering::SeqCst);
    }
}
