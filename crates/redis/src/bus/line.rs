//! A line: one connection that carries messages from one server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use redis::aio::{AsyncPushSender, MultiplexedConnection, SendError};
use redis::{AsyncConnectionConfig, Cmd, PushInfo, RedisError, Value};
use tokio::sync::mpsc;

use crate::node;

/// Messages that wait for the keeper, over all lines. What comes beyond is dropped, and the line doubted.
pub(super) const QUEUE: usize = 65_536;
/// A line that has been silent for so long is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(1);

/// Tells one connection from the next to the same server.
pub(super) type LineId = u64;

pub(super) struct Line {
    pub(super) id: LineId,
    connection: MultiplexedConnection,
    overflowed: Arc<AtomicBool>,
    asked: Instant,
}

/// What comes from a line.
pub(super) type Heard = (LineId, PushInfo);

struct Ear {
    line: LineId,
    queue: mpsc::Sender<Heard>,
    overflowed: Arc<AtomicBool>,
}

impl AsyncPushSender for Ear {
    fn send(&self, info: PushInfo) -> Result<(), SendError> {
        match self.queue.try_send((self.line, info)) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.overflowed.store(true, Ordering::Release);
                Ok(())
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(SendError),
        }
    }
}

impl Line {
    pub(super) async fn open(id: LineId, url: String, queue: mpsc::Sender<Heard>) -> Result<Self, String> {
        let overflowed = Arc::new(AtomicBool::new(false));
        let ear = Ear { line: id, queue, overflowed: overflowed.clone() };
        let connection = node::connect(url, AsyncConnectionConfig::new().set_push_sender(ear)).await?;
        Ok(Self { id, connection, overflowed, asked: Instant::now() })
    }

    /// Whether messages were dropped since this was asked last.
    pub(super) fn take_overflow(&self) -> bool {
        self.overflowed.swap(false, Ordering::AcqRel)
    }

    /// Sends a command. What it did is told by what is heard, not by its answer: a server that ends a subscription by
    /// itself says so in between, and answers are then counted wrongly.
    pub(super) fn send(&self, command: Cmd) -> impl Future<Output = Result<(), RedisError>> + Send + 'static {
        let mut connection = self.connection.clone();
        async move {
            let _: Value = command.query_async(&mut connection).await?;
            Ok(())
        }
    }

    /// A question to a line that is due to be asked.
    pub(super) fn knock(&mut self) -> Option<impl Future<Output = Result<(), RedisError>> + Send + 'static> {
        if self.asked.elapsed() < SILENCE {
            return None;
        }
        self.asked = Instant::now();
        Some(self.send(redis::cmd("PING")))
    }
}
