//! Access commands in Redis: a capped stream (the feed) that every instance reads, a channel on which each new command is
//! published, and a key for every person with a revocation.
//!
//! Issuing a command is one script. Every instance polls the feed several times a second, so that a command
//! whose message the bus lost is found within a second, and also reads the feed for every `catch_up`. All
//! keys share one slot. Revocations that Redis has lost are written back to it ([`restore`]).

mod feed;
mod restore;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, Millis, StreamId};
use bongsu_redis::redis::{self, Value, from_redis_value};
use bongsu_redis::{Channel, Redis, Repeat, Script, Subscriber};
use tokio::sync::Mutex;

use super::records::RevocationRecords;
use super::{AccessCommand, AccessCommandHandler, AccessCommands, REVOCATION_RETENTION};
use crate::{BoxFuture, Error};
use feed::{Feed, Page};

static ISSUE: Script = Script::new("orders_give", include_str!("../../lua/issue.lua"));
static CATCH_UP: Script = Script::new("orders_catch_up", include_str!("../../lua/catch_up.lua"));

/// Time between two reads of the feed.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Time between two attempts to subscribe to the bus, until the first one succeeds.
const SUBSCRIBE_RETRY_DELAY: Duration = Duration::from_millis(100);
/// How long a caller waits for an answer about the feed or a revocation.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Commands kept in the feed. An instance that missed more than these calls [`AccessCommandHandler::handle_missed`].
const MAX_FEED_LEN: usize = 10_000;
/// Commands read by one call of the script.
const PAGE_SIZE: usize = 256;

/// Access commands of a fleet, in Redis. Cheap to clone.
#[derive(Clone)]
pub struct RedisAccessCommands(Arc<Inner>);

struct Inner {
    redis: Redis,
    bus: Subscriber,
    channel: Channel,
    /// The key of the feed.
    stream: String,
    feed: Arc<Feed>,
    /// None without records.
    records: Option<RevocationRecords>,
    /// The number of calls of `read_feed`.
    calls: AtomicU64,
    /// The outcome of the last read of the feed, and the last call that it answers.
    last_read: Mutex<(u64, Result<(), Error>)>,
}

impl RedisAccessCommands {
    pub fn start(
        redis: Redis,
        records: Option<RevocationRecords>,
        handler: Arc<dyn AccessCommandHandler>,
        supervisor: &Supervisor,
    ) -> Self {
        let feed = Arc::new(Feed::new(handler));
        let name = |name: &str| redis.key(format_args!("{{orders}}:{name}"));
        let (stream, channel) = (name("feed"), Channel::OfSlot(name("bus").into()));
        let this = Self(Arc::new(Inner {
            bus: redis.subscriber(feed.clone()),
            redis,
            channel,
            stream,
            feed,
            records,
            calls: AtomicU64::new(0),
            last_read: Mutex::new((0, Ok(()))),
        }));
        supervisor.run("orders", &this.0, |inner| async move {
            tokio::join!(inner.listen(), inner.poll());
        });
        this
    }
}

impl Inner {
    /// Subscribes to the channel. Once subscribed, the bus reports interruptions to the feed itself.
    async fn listen(&self) {
        loop {
            let losses = self.feed.bus_losses();
            if self.bus.subscribe(self.channel.clone()).await.is_ok() {
                self.feed.subscribed(losses);
                return std::future::pending().await;
            }
            tokio::time::sleep(SUBSCRIBE_RETRY_DELAY).await;
        }
    }

    /// Reads the feed at every interval, and at once when the feed asks for it.
    async fn poll(&self) {
        let mut was_ok = true;
        loop {
            let read = async {
                self.read_feed().await?;
                self.restore_lost().await
            };
            let outcome = read.await;
            if let Err(error) = &outcome
                && was_ok
            {
                tracing::warn!(%error, "failed to read access commands or to write revocations back; pausing delivery and retrying");
            }
            was_ok = outcome.is_ok();
            tokio::select! {
                () = self.feed.read_requested.notified(), if was_ok => {}
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    async fn catch_up(&self) -> Result<(), Error> {
        self.read_feed().await?;
        self.wait_restored().await
    }

    /// Reads the feed to its end. Calls that arrive during a read wait, and then share the next one.
    async fn read_feed(&self) -> Result<(), Error> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last_read = self.last_read.lock().await;
        if last_read.0 >= call {
            return last_read.1.clone();
        }
        let answered = self.calls.load(Ordering::SeqCst);
        let read = tokio::time::timeout(ANSWER_TIMEOUT, self.read_to_end()).await;
        let outcome = read.unwrap_or_else(|_| Err(no_answer()));
        *last_read = (answered, outcome.clone());
        outcome
    }

    async fn read_to_end(&self) -> Result<(), Error> {
        let read = self.feed.begin_read();
        let mut position = read.position;
        loop {
            let page = self.page(position).await?;
            position = self.feed.apply_page(page);
            if position.is_none() {
                self.feed.finish_read(&read);
                return Ok(());
            }
        }
    }

    async fn page(&self, after: Option<StreamId>) -> Result<Page, Error> {
        let position = after.map(|id| id.to_string()).unwrap_or_default();
        let (limit, max_len) = (PAGE_SIZE.to_string(), MAX_FEED_LEN.to_string());
        let arguments = [&position, &limit, &max_len].map(String::as_bytes);
        let answer = self.redis.run(&CATCH_UP, Repeat::Safe, &[&self.stream], &arguments).await?;
        let unreadable = || Error::unreadable("the feed of access commands");
        let (head, entries): (String, Option<Vec<(String, String)>>) =
            from_redis_value(answer).map_err(|_| unreadable())?;
        let id = |text: &str| text.parse().map_err(|_| unreadable());
        let Some(entries) = entries else { return Ok(Page::PositionLost { head: id(&head)? }) };
        let has_more = entries.len() == PAGE_SIZE;
        let entries = entries.into_iter().map(|(at, command)| Ok((id(&at)?, command)));
        Ok(Page::Entries { entries: entries.collect::<Result<_, Error>>()?, has_more })
    }

    fn revoked_key(&self, user: &Id) -> String {
        self.redis.key(format_args!("{{orders}}:revoked:{user}"))
    }

    /// Sends a command to Redis, and a revocation to the records as well. A revocation that only one of the two has
    /// stored is in force; after an error the command may be issued again.
    async fn issue(&self, command: &AccessCommand) -> Result<(), Error> {
        let record = async {
            match (command, &self.records) {
                (AccessCommand::Revoke { user, issued_before }, Some(records)) => {
                    records.store(user, *issued_before).await
                }
                _ => Ok(()),
            }
        };
        let (recorded, sent) = tokio::join!(record, self.send(command, WriteCondition::Always));
        if let AccessCommand::Revoke { user, issued_before } = command {
            // Remembers the revocation before it arrives through the feed, because Redis may lose it until then. A
            // revocation that Redis did not store is written back when Redis is reachable again.
            self.feed.remember(user, *issued_before, sent.is_ok());
        }
        sent.and(recorded)
    }

    async fn send(&self, command: &AccessCommand, condition: WriteCondition) -> Result<(), Error> {
        // Only the keys that the command needs: while a slot migrates, Redis runs a script with one key, but
        // may refuse one with two.
        let (before, revoked) = match command {
            AccessCommand::Disconnect { .. } => (String::new(), None),
            AccessCommand::Revoke { user, issued_before } => {
                (issued_before.to_string(), Some(self.revoked_key(user)))
            }
        };
        let (text, max_len) = (command.as_text(), MAX_FEED_LEN.to_string());
        let retention = REVOCATION_RETENTION.as_millis().to_string();
        let arguments = [&text, &max_len, self.channel.name(), &before, &retention, condition.as_text()]
            .map(str::as_bytes);
        let keys: Vec<&str> = std::iter::once(self.stream.as_str()).chain(revoked.as_deref()).collect();
        self.redis.run(&ISSUE, Repeat::Never, &keys, &arguments).await?;
        Ok(())
    }

    async fn revoked_before(&self, user: &Id) -> Result<Option<Millis>, Error> {
        let (known, changes) = self.feed.revocation(user);
        if let Some(known) = known {
            return Ok(known);
        }
        match (self.query_revocation(user).await, &self.records) {
            (Ok(before), _) => Ok(self.feed.learn(user, before, changes)),
            (Err(_), Some(records)) => records.find(user).await,
            (Err(error), None) => Err(error),
        }
    }

    /// Reads a person's revocation from Redis. Returns None only once Redis has every known revocation.
    async fn query_revocation(&self, user: &Id) -> Result<Option<Millis>, Error> {
        let key = self.revoked_key(user);
        let command = redis::cmd("GET").arg(&key).take();
        loop {
            let query = self.redis.query("revoked", &key, &command, Repeat::Safe);
            let answer: Value =
                tokio::time::timeout(ANSWER_TIMEOUT, query).await.map_err(|_| no_answer())??;
            let before: Option<Millis> =
                from_redis_value(answer).map_err(|_| Error::unreadable("a revocation"))?;
            if before.is_some() || self.feed.is_restored() {
                return Ok(before);
            }
            self.wait_restored().await?;
        }
    }
}

/// When a command is written into the feed.
#[derive(Clone, Copy)]
enum WriteCondition {
    Always,
    /// Unless Redis has this revocation, or a later one of the same person.
    IfMissing,
}

impl WriteCondition {
    fn as_text(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::IfMissing => "missing",
        }
    }
}

fn no_answer() -> Error {
    Error::Unavailable("Redis does not answer".to_owned())
}

impl AccessCommands for RedisAccessCommands {
    fn issue(&self, command: AccessCommand) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move { self.0.issue(&command).await })
    }

    fn is_current(&self) -> bool {
        self.0.feed.is_current()
    }

    fn catch_up(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.0.catch_up())
    }

    fn revoked_before<'a>(&'a self, user: &'a Id) -> BoxFuture<'a, Result<Option<Millis>, Error>> {
        Box::pin(self.0.revoked_before(user))
    }
}
