//! The bus: messages between hubs over Redis' pub/sub, which may lose some.
//!
//! Whoever listens is told when that may have happened: a connection broke, a slot moved, too much came at once. It
//! is told after the channel is subscribed again, so that reading the log from there on leaves no hole. Channels of
//! a slot are published to by the script that writes the slot's keys; channels everywhere are for other programs.

mod keeper;
mod line;

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::task::{OnEnd, Supervisor};
use bytes::Bytes;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::error::Error;
use crate::{PATIENCE, Redis};
use keeper::Keeper;

/// What one can listen to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Lives on the server that has its name's slot.
    OfSlot(Arc<str>),
    /// Heard wherever it is published.
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

/// Who is told. Called on the bus's own task: it must not wait.
pub trait Listener: Send + Sync + 'static {
    fn message(&self, channel: &Channel, payload: Bytes);

    /// From now on messages on this channel may be lost; [`Listener::doubt`] follows once it is heard again. For those
    /// who have to stop until then.
    fn lost(&self, _channel: &Channel) {}

    /// Messages on this channel may have been lost until now.
    fn doubt(&self, channel: &Channel);
}

enum Command {
    Subscribe(Channel, oneshot::Sender<()>),
    Unsubscribe(Channel),
}

/// A handle on the bus. Cheap to clone.
#[derive(Clone)]
pub struct Bus(mpsc::UnboundedSender<Command>);

impl Bus {
    pub fn start(redis: Redis, listener: Arc<dyn Listener>, supervisor: &Supervisor) -> Self {
        let (commands, queue) = mpsc::unbounded_channel();
        // Should the task ever fail, the next one goes on with the same queue.
        let queue = Arc::new(Mutex::new(queue));
        let stop = supervisor.stop();
        supervisor.spawn("bus", OnEnd::Fatal, move || {
            let (redis, listener) = (redis.clone(), listener.clone());
            let (queue, stop) = (queue.clone(), stop.clone());
            async move {
                let mut queue = queue.lock().await;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = Keeper::new(redis, listener).run(&mut queue) => {}
                }
            }
        });
        Self(commands)
    }

    /// Returns when everything that is published from now on arrives. Until it is unsubscribed the bus goes on
    /// trying, also when this gave up waiting.
    pub async fn subscribe(&self, channel: Channel) -> Result<(), Error> {
        let (done, confirmed) = oneshot::channel();
        let gone = || Error::Unreachable("the bus has ended".to_owned());
        self.0.send(Command::Subscribe(channel, done)).map_err(|_| gone())?;
        match tokio::time::timeout(PATIENCE, confirmed).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(Error::Unreachable("the bus is not connected".to_owned())),
        }
    }

    pub fn unsubscribe(&self, channel: Channel) {
        // When the bus has ended there is nothing to unsubscribe from.
        let _ = self.0.send(Command::Unsubscribe(channel));
    }
}

/// When to try again: at once, then after 3 s, 6 s, 12 s and so on up to a minute, each a little off so that a fleet does
/// not come back in step.
fn pause(attempt: u32) -> Duration {
    match attempt {
        0 => Duration::ZERO,
        _ => {
            let whole = 3_000_u64.saturating_mul(1 << (attempt - 1).min(10)).min(60_000);
            Duration::from_millis(bongsu_kernel::random::between(whole * 4 / 5, whole))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute() {
        let seconds = |attempt| pause(attempt).as_secs_f64();
        assert!(seconds(0) == 0.0);
        for (attempt, whole) in [(1, 3.0), (2, 6.0), (3, 12.0), (5, 48.0), (6, 60.0), (1_000, 60.0)] {
            assert!((whole * 0.8..=whole).contains(&seconds(attempt)), "{attempt}");
        }
    }
}
