//! One connection through the proxy: two sockets, and a pump for each direction.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::TcpStream;

use super::pump::pump;
use super::{Direction, Faults, ProxyState};

/// A connection and the state of its two directions.
pub(super) struct Link {
    client: TcpStream,
    server: Option<TcpStream>,
    from: IpAddr,
    pub(super) shared: Arc<ProxyState>,
    has_lost_bytes: Flags,
    has_finished: Flags,
}

/// A flag for each direction.
#[derive(Default)]
struct Flags {
    to_server: AtomicBool,
    to_client: AtomicBool,
}

impl Flags {
    fn get(&self, direction: Direction) -> &AtomicBool {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

impl Link {
    pub(super) fn new(client: TcpStream, from: IpAddr, shared: Arc<ProxyState>) -> Self {
        shared.open_count.fetch_add(1, Ordering::SeqCst);
        shared.accepted_count.fetch_add(1, Ordering::SeqCst);
        Self {
            client,
            server: None,
            from,
            shared,
            has_lost_bytes: Flags::default(),
            has_finished: Flags::default(),
        }
    }

    /// Connects to the server and forwards bytes until both sides have ended, or one of them fails.
    pub(super) async fn run(mut self) {
        if self.connect().await.is_err() {
            // The client's connection is accepted already, so it cannot be refused any more. It is reset instead.
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

    /// The sockets from which bytes of this direction are read, and to which they are written.
    pub(super) fn ends(&self, direction: Direction) -> (&TcpStream, &TcpStream) {
        let server = self.server.as_ref().expect("the pumps start after the connection to the server");
        match direction {
            Direction::ToServer => (&self.client, server),
            Direction::ToClient => (server, &self.client),
        }
    }

    /// Whether no bytes of this direction may be forwarded, and no close either: because of a stall, or because bytes
    /// were lost earlier.
    pub(super) fn is_silent(&self, direction: Direction, faults: &Faults) -> bool {
        self.has_lost_bytes.get(direction).load(Ordering::Relaxed) || faults.is_stalled(direction, self.from)
    }

    /// Records that bytes of this direction are lost. Later bytes are then discarded as well, because the receiver
    /// could not interpret them.
    pub(super) fn mark_lost(&self, direction: Direction) {
        self.has_lost_bytes.get(direction).store(true, Ordering::Relaxed);
    }

    /// Records that the sender of this direction has closed. Returns an error, which ends the connection, when the
    /// sender of the other direction has closed, too.
    pub(super) fn finish(&self, direction: Direction) -> io::Result<()> {
        self.has_finished.get(direction).store(true, Ordering::Relaxed);
        let other = self.has_finished.get(direction.reverse()).load(Ordering::Relaxed);
        if other { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.shared.is_resetting.load(Ordering::SeqCst) {
            for socket in std::iter::once(&self.client).chain(&self.server) {
                let _ = socket.set_zero_linger();
            }
        }
        self.shared.open_count.fetch_sub(1, Ordering::SeqCst);
    }
}
