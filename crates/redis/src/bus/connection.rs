//! One connection that carries messages from one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, Cmd, PushInfo, RedisError, Value};
use tokio::sync::mpsc;

use crate::node;

/// Maximum number of messages, of all connections, in the queue to the manager. Further messages are dropped,
/// and the channels of their connection are marked as stale.
pub(super) const QUEUE_SIZE: usize = 65_536;
/// Time between two pings.
const PING_INTERVAL: Duration = Duration::from_secs(1);

/// Distinguishes a connection from later ones to the same server.
pub(super) type ConnectionId = u64;

pub(super) struct Connection {
    pub(super) id: ConnectionId,
    connection: MultiplexedConnection,
    has_overflowed: Arc<AtomicBool>,
    last_ping: Instant,
}

/// A push that a server sent on a connection.
pub(super) type Received = (ConnectionId, PushInfo);

struct PushQueue {
    connection: ConnectionId,
    queue: mpsc::Sender<Received>,
    has_overflowed: Arc<AtomicBool>,
}

impl AsyncPushSender for PushQueue {
    fn send(&self, info: PushInfo) -> Result<(), SendError> {
        match self.queue.try_send((self.connection, info)) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.has_overflowed.store(true, Ordering::Release);
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
        let has_overflowed = Arc::new(AtomicBool::new(false));
        let queue = PushQueue { connection: id, queue, has_overflowed: has_overflowed.clone() };
        let connection = node::connect(url, AsyncConnectionConfig::new().set_push_sender(queue)).await?;
        Ok(Self { id, connection, has_overflowed, last_ping: Instant::now() })
    }

    /// Whether messages were dropped since the last call.
    pub(super) fn take_overflow(&self) -> bool {
        self.has_overflowed.swap(false, Ordering::AcqRel)
    }

    /// Sends a command. Callers learn its effect from the pushes that follow, not from the reply: a push for a
    /// subscription that the server ends by itself makes the client assign later replies to the wrong commands.
    pub(super) fn send(&self, command: Cmd) -> impl Future<Output = Result<(), RedisError>> + Send + 'static {
        let mut connection = self.connection.clone();
        async move {
            let _: Value = command.query_async(&mut connection).await?;
            Ok(())
        }
    }

    /// Sends a ping if one is due.
    pub(super) fn ping(&mut self) -> Option<impl Future<Output = Result<(), RedisError>> + Send + 'static> {
        if self.last_ping.elapsed() < PING_INTERVAL {
            return None;
        }
        self.last_ping = Instant::now();
        Some(self.send(redis::cmd("PING")))
    }
}
