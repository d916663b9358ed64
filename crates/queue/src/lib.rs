//! Queues: messages that are stored durably and handled later, at least once, in the order of their key.
//!
//! A message is published to a topic, and every queue that is bound to the topic gets a copy. One consumer in the fleet
//! handles a queue ([`Consumer`]); it keeps the order of each key, parks a message that fails, together with the later
//! messages of its key, and makes it a dead letter after the last attempt. All of this is stored in SQL, and an
//! unavailable engine costs a message no attempt.

mod announce;
mod consumer;
mod dead_letters;
mod domain_event;
mod exchange;
mod message;
mod publish;
pub mod store;

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use announce::Announcer;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, Millis};
use bongsu_redis::Redis;
use bongsu_sql::{Error, Records, Result, Transaction};
use tokio::sync::Notify;

pub use consumer::{Consumer, ConsumerOptions, MessageHandler, Rejection};
pub use dead_letters::GivenUpMessage;
pub use domain_event::DomainEvent;
pub use message::{QueueDelivery, QueueMessage, TopicPattern};
pub use publish::PublishFailure;

/// Messages that a depth counts at most.
const MAX_COUNTED_DEPTH: usize = 100_000;
/// Time between two measurements of the queues.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Age above which the oldest message that can be handled shows that its queue does not move, in milliseconds.
const MAX_READY_AGE: Millis = 60_000;

/// The queues of this process. Cheap to clone.
#[derive(Clone)]
pub struct Queues(Arc<Inner>);

struct Inner {
    records: Records,
    clock: Clock,
    queues: RwLock<Vec<Arc<Queue>>>,
    /// Tells the other instances of a fleet about published messages. Unset without a fleet.
    announcer: OnceLock<Announcer>,
}

/// A queue and the topics that it is bound to.
pub(crate) struct Queue {
    name: Cow<'static, str>,
    topics: Vec<TopicPattern>,
    /// Notified when a message was published to the queue.
    arrived: Notify,
    /// How long the oldest message that can be handled has waited when the queue was last measured.
    oldest_ready_age: AtomicU64,
}

/// How many messages a queue holds, and since when the oldest of those that can be handled waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    /// At most 100,000: a queue with more messages counts as this many.
    pub messages: u64,
    pub oldest_published_at: Option<u64>,
}

impl Queues {
    pub fn new(records: Records, clock: Clock) -> Self {
        Self(Arc::new(Inner { records, clock, queues: RwLock::default(), announcer: OnceLock::new() }))
    }

    /// Joins the fleet that shares a Redis: its instances tell each other about published messages.
    pub fn join_fleet(&self, redis: &Redis, supervisor: &Supervisor) {
        // Only the first call counts; a process belongs to one fleet.
        let _ = self.0.announcer.set(Announcer::start(redis, self, supervisor));
    }

    /// Starts the loop that measures the depths of the queues, for metrics and `/health`.
    pub fn start_upkeep(&self, supervisor: &Supervisor) {
        supervisor.every("queue-upkeep", UPKEEP_INTERVAL, self, |queues| async move {
            if let Err(error) = queues.upkeep().await {
                tracing::debug!(%error, "failed to measure the queues; retrying at the next interval");
            }
        });
    }

    async fn upkeep(&self) -> Result<()> {
        for queue in self.all() {
            let QueueDepth { messages, oldest_published_at } = self.depth(&queue.name).await?;
            let age = oldest_published_at.map_or(0, |at| self.0.clock.now().saturating_sub(at));
            let label = || queue.name.clone();
            metrics::gauge!("queue_depth", "queue" => label()).set(messages as f64);
            metrics::gauge!("queue_oldest_ready_age_seconds", "queue" => label()).set(age as f64 / 1_000.0);
            queue.oldest_ready_age.store(age, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Names a queue whose oldest message that can be handled waits for too long. None if all queues move.
    pub fn stuck_queue(&self) -> Option<Cow<'static, str>> {
        let queues = self.all();
        let stuck =
            queues.iter().find(|queue| queue.oldest_ready_age.load(Ordering::Relaxed) > MAX_READY_AGE)?;
        Some(format!("queue {}: its oldest message waits for over a minute", stuck.name).into())
    }

    fn all(&self) -> Vec<Arc<Queue>> {
        self.0.queues.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Wakes the consumer of a queue, on this instance or another.
    fn announce(&self, queue: &Queue) {
        queue.arrived.notify_one();
        if let Some(announcer) = self.0.announcer.get() {
            announcer.announce(&queue.name);
        }
    }

    fn notify_all(&self) {
        self.all().iter().for_each(|queue| queue.arrived.notify_one());
    }

    /// Declares a queue and binds it to topics. Every process declares all queues, because each may publish to them.
    pub fn declare(
        &self,
        name: impl Into<Cow<'static, str>>,
        topics: impl IntoIterator<Item = TopicPattern>,
    ) {
        let queue = Queue {
            name: name.into(),
            topics: topics.into_iter().collect(),
            arrived: Notify::new(),
            oldest_ready_age: AtomicU64::new(0),
        };
        self.0.queues.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(queue));
    }

    /// The queues that are bound to a topic.
    fn bound_to(&self, topic: &Id) -> Vec<Arc<Queue>> {
        let queues = self.0.queues.read().unwrap_or_else(PoisonError::into_inner);
        let is_bound = |queue: &&Arc<Queue>| queue.topics.iter().any(|pattern| pattern.matches(topic));
        queues.iter().filter(is_bound).cloned().collect()
    }

    fn queue(&self, name: &str) -> Result<Arc<Queue>> {
        let queues = self.0.queues.read().unwrap_or_else(PoisonError::into_inner);
        let found = queues.iter().find(|queue| queue.name == name).cloned();
        found.ok_or_else(|| Error::Failed(format!("the queue {name} is not declared")))
    }

    fn records(&self) -> &Records {
        &self.0.records
    }

    /// Reads the depth of a queue.
    pub async fn depth(&self, queue: &str) -> Result<QueueDepth> {
        let queue = self.queue(queue)?;
        self.records().read(queue, read_depth).await
    }
}

async fn read_depth(queue: &Arc<Queue>, tx: &mut Transaction<'_>) -> Result<QueueDepth> {
    let arguments = [("queue", (&*queue.name).into()), ("limit", MAX_COUNTED_DEPTH.into())];
    let row = tx.row(&store::DEPTH, &arguments).await?;
    let row = row.ok_or_else(|| Error::Failed("the depth query returned no row".to_owned()))?;
    Ok(QueueDepth { messages: row.count(0)?, oldest_published_at: row.maybe_count(1)? })
}
