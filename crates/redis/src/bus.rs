//! The bus: messages between hubs over Redis pub/sub, which may lose some. A process has one bus, started by [`Redis`].
//!
//! A [`Subscriber`] subscribes its [`Listener`] to channels. When messages may have been lost (a connection broke, a slot
//! moved, the queue was full), the bus informs the listeners of the channel after it is subscribed again, so a listener
//! that then reads the log misses no message. Scripts that write the keys of a slot publish to channels of that slot;
//! other programs publish to channels that are independent of slots.

mod connection;
mod manager;

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::Backoff;
use bongsu_kernel::task::{OnEnd, Supervisor};
use tokio::sync::{mpsc, oneshot};

use crate::error::{Error, Result};
use crate::{COMMAND_TIMEOUT, Redis};
use manager::SubscriptionManager;

/// The delay before a server is tried again: none, then 3 s, 6 s, 12 s and so on up to a minute.
const RECONNECT_BACKOFF: Backoff = Backoff::new(Duration::from_secs(3), Duration::from_secs(60), (80, 100));

/// A pub/sub channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// A sharded channel, on the server that has the slot of its name.
    OfSlot(Arc<str>),
    /// A channel that every server delivers, whichever server a message was published to.
    Everywhere(Arc<str>),
}

impl Channel {
    pub fn name(&self) -> &str {
        match self {
            Self::OfSlot(name) | Self::Everywhere(name) => name,
        }
    }

    fn subscribe(&self) -> &'static str {
        match self {
            Self::OfSlot(_) => "SSUBSCRIBE",
            Self::Everywhere(_) => "SUBSCRIBE",
        }
    }

    fn unsubscribe(&self) -> &'static str {
        match self {
            Self::OfSlot(_) => "SUNSUBSCRIBE",
            Self::Everywhere(_) => "UNSUBSCRIBE",
        }
    }
}

/// Receives the messages of the channels that it is subscribed to. The bus calls all listeners on its one task, so a
/// listener must return quickly and start a task for longer work.
pub trait Listener: Send + Sync + 'static {
    fn message(&self, channel: &Channel, payload: &[u8]);

    /// The subscription to this channel is lost, and messages may be lost until [`Listener::mark_stale`] is called
    /// after the next subscription.
    fn lost(&self, _channel: &Channel) {}

    /// Messages on this channel may have been lost until now.
    fn mark_stale(&self, channel: &Channel);
}

pub(crate) enum Command {
    Subscribe(Channel, Arc<dyn Listener>, oneshot::Sender<()>),
    Unsubscribe(Channel, Arc<dyn Listener>),
}

/// The sender of the queue from which the bus receives commands.
pub(crate) type Commands = mpsc::UnboundedSender<Command>;

/// Runs the bus until shutdown. The bus opens a connection when there is a subscription for its server.
pub(crate) fn start(redis: Redis, commands: mpsc::UnboundedReceiver<Command>, supervisor: &Supervisor) {
    let (stop, mut parts) = (supervisor.stop(), Some((redis, commands)));
    supervisor.spawn("bus", OnEnd::Fatal, move || {
        let (stop, parts) = (stop.clone(), parts.take());
        async move {
            if let Some((redis, mut commands)) = parts {
                let running = SubscriptionManager::new(redis).run(&mut commands);
                let _ = stop.run_until_cancelled(running).await;
            }
        }
    });
}

/// Subscribes one listener to channels. Another listener of the same channel is not affected. Cheap to clone.
#[derive(Clone)]
pub struct Subscriber {
    commands: Commands,
    listener: Arc<dyn Listener>,
}

impl Subscriber {
    pub(crate) fn new(commands: Commands, listener: Arc<dyn Listener>) -> Self {
        Self { commands, listener }
    }

    /// Returns when the server has confirmed the subscription, or an error after a timeout. The bus then
    /// retries until the channel is unsubscribed, and calls [`Listener::mark_stale`] once the channel is
    /// subscribed.
    pub async fn subscribe(&self, channel: Channel) -> Result<()> {
        let (done, confirmed) = oneshot::channel();
        let ended = || Error::Unreachable("the bus has ended".to_owned());
        let command = Command::Subscribe(channel, self.listener.clone(), done);
        self.commands.send(command).map_err(|_| ended())?;
        match tokio::time::timeout(COMMAND_TIMEOUT, confirmed).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(ended()),
            Err(_) => Err(Error::Unreachable("the bus is not connected".to_owned())),
        }
    }

    pub fn unsubscribe(&self, channel: Channel) {
        // An error means that the bus has ended, and its subscriptions with it.
        let _ = self.commands.send(Command::Unsubscribe(channel, self.listener.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconnect_delays_grow_to_a_minute() {
        let seconds = |attempt| RECONNECT_BACKOFF.delay(attempt).as_secs_f64();
        assert!(seconds(0) == 0.0);
        for (attempt, whole) in [(1, 3.0), (2, 6.0), (3, 12.0), (5, 48.0), (6, 60.0), (1_000, 60.0)] {
            assert!((whole * 0.8..=whole).contains(&seconds(attempt)), "{attempt}");
        }
    }
}
