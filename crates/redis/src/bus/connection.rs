//! One connection that carries messages from one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, Cmd, PushInfo, RedisError, Value};
use tokio::sync::mpsc;

use crate::node;

/// Messages that wait for the manager, over all connections. What comes beyond is dropped, and the channels of the
/// connection are marked as stale.
pub(super) const QUEUE_SIZE: usize = 65_536;
/// Time between two pings.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// Tells one connection from the next to the same server.
pub(super) type ConnectionId = u64;

pub(super) struct Connection {
    pub(super) id: ConnectionId,
    connection: MultiplexedConnection,
    overflowed: Arc<AtomicBool>,
    pinged: Instant,
}

/// What a server sent on a connection.
pub(super) type Received = (ConnectionId, PushInfo);

struct PushQueue {
    connection: ConnectionId,
    queue: mpsc::Sender<Received>,
    overflowed: Arc<AtomicBool>,
}

impl AsyncPushSender for PushQueue {
    fn send(&self, info: PushInfo) -> Result<(), SendError> {
        match self.queue.try_send((self.connection, info)) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.overflowed.store(true, Ordering::Release);
                Ok(())
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(SendError),
        }
    }
}

impl Connection {
    pub(super) async fn open(
        id: ConnectionId,
        url: String,
        queue: mpsc::Sender<Received>,
    ) -> Result<Self, String> {
        let overflowed = Arc::new(AtomicBool::new(false));
        let queue = PushQueue { connection: id, queue, overflowed: overflowed.clone() };
        let connection = node::connect(url, AsyncConnectionConfig::new().set_push_sender(queue)).await?;
        Ok(Self { id, connection, overflowed, pinged: Instant::now() })
    }

    /// Whether messages were dropped since this was asked last.
    pub(super) fn take_overflow(&self) -> bool {
        self.overflowed.swap(false, Ordering::AcqRel)
    }

    /// Sends a command. Its effect is known from the pushes that follow, not from its reply: a server that ends a
    /// subscription by itself says so in between, and replies are then counted wrongly.
    pub(super) fn send(&self, command: Cmd) -> impl Future<Output = Result<(), RedisError>> + Send + 'static {
        let mut connection = self.connection.clone();
        async move {
            let _: Value = command.query_async(&mut connection).await?;
            Ok(())
        }
    }

    /// A ping, if one is due.
    pub(super) fn ping(&mut self) -> Option<impl Future<Output = Result<(), RedisError>> + Send + 'static> {
        if self.pinged.elapsed() < PING_INTERVAL {
            return None;
        }
        self.pinged = Instant::now();
        Some(self.send(redis::cmd("PING")))
    }
}
