//! Orders in Redis: a capped stream that every hub reads, a channel that tells of the next one, and a key for every
//! person who was revoked.
//!
//! Giving is one script. The stream is looked at several times a second, so that a silent loss on the bus costs less
//! than a second, and whenever somebody has to be certain. All of it is in one slot. What Redis has lost of revocations
//! is written back to it ([`restore`]).

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
use super::{Apply, Order, Orders, REVOCATION_LIFE};
use crate::{Boxed, Error};
use feed::{Feed, Page};

static GIVE: Script = Script::new("orders_give", include_str!("../../lua/give.lua"));
static CATCH_UP: Script = Script::new("orders_catch_up", include_str!("../../lua/catch_up.lua"));

/// The feed is looked at so often.
const LOOK: Duration = Duration::from_millis(250);
/// Until it is heard for the first time, the bus is asked again after so long.
const AGAIN: Duration = Duration::from_millis(100);
/// Who wants to be certain, or to know, waits so long.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many orders the feed holds; a hub that was away for more is told that it missed some.
const KEPT: usize = 10_000;
const PAGE: usize = 256;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct RedisOrders(Arc<Inner>);

struct Inner {
    redis: Redis,
    bus: Subscriber,
    channel: Channel,
    stream: String,
    feed: Arc<Feed>,
    /// None where nothing is recorded.
    records: Option<RevocationRecords>,
    calls: AtomicU64,
    /// The last look, and which calls it answered.
    looked: Mutex<(u64, Result<(), Error>)>,
}

impl RedisOrders {
    pub fn start(
        redis: Redis,
        records: Option<RevocationRecords>,
        apply: Arc<dyn Apply>,
        supervisor: &Supervisor,
    ) -> Self {
        let feed = Arc::new(Feed::new(apply));
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
            looked: Mutex::new((0, Ok(()))),
        }));
        supervisor.run("orders", &this.0, |orders| async move {
            tokio::join!(orders.listen(), orders.follow());
        });
        this
    }
}

impl Inner {
    /// Once it is heard, the bus itself tells what becomes of it.
    async fn listen(&self) {
        loop {
            let losses = self.feed.losses();
            if self.bus.subscribe(self.channel.clone()).await.is_ok() {
                self.feed.heard(losses);
                return std::future::pending().await;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn follow(&self) {
        let mut was_well = true;
        loop {
            let looked = async {
                self.read_feed().await?;
                self.restore_lost().await
            };
            let looked = looked.await;
            if let Err(error) = &looked
                && was_well
            {
                tracing::warn!(%error, "failed to read orders or to write revocations back; nothing is delivered");
            }
            was_well = looked.is_ok();
            tokio::select! {
                () = self.feed.bell.notified(), if was_well => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    async fn catch_up(&self) -> Result<(), Error> {
        self.read_feed().await?;
        self.wait_restored().await
    }

    /// Who comes while a look is under way waits for the next one, together with all others who do.
    async fn read_feed(&self) -> Result<(), Error> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let mut looked = self.looked.lock().await;
        if looked.0 >= call {
            return looked.1.clone();
        }
        let answered = self.calls.load(Ordering::SeqCst);
        let looked_at = tokio::time::timeout(PATIENCE, self.look()).await;
        let outcome = looked_at.unwrap_or_else(|_| Err(silent()));
        *looked = (answered, outcome.clone());
        outcome
    }

    async fn look(&self) -> Result<(), Error> {
        let look = self.feed.begin();
        let mut position = look.position;
        loop {
            let page = self.page(position).await?;
            position = self.feed.take(page);
            if position.is_none() {
                self.feed.finish(&look);
                return Ok(());
            }
        }
    }

    async fn page(&self, after: Option<StreamId>) -> Result<Page, Error> {
        let position = after.map(|id| id.to_string()).unwrap_or_default();
        let (most, kept) = (PAGE.to_string(), KEPT.to_string());
        let arguments = [&position, &most, &kept].map(String::as_bytes);
        let answer = self.redis.run(&CATCH_UP, Repeat::Safe, &[&self.stream], &arguments).await?;
        let unreadable = || Error::unreadable("the feed of orders");
        let (head, entries): (String, Option<Vec<(String, String)>>) =
            from_redis_value(answer).map_err(|_| unreadable())?;
        let id = |text: &str| text.parse().map_err(|_| unreadable());
        let Some(entries) = entries else { return Ok(Page::Lost(id(&head)?)) };
        let more = entries.len() == PAGE;
        let entries = entries.into_iter().map(|(at, order)| Ok((id(&at)?, order)));
        Ok(Page::Next(entries.collect::<Result<_, Error>>()?, more))
    }

    fn revoked_key(&self, user: &Id) -> String {
        self.redis.key(format_args!("{{orders}}:revoked:{user}"))
    }

    /// A revocation goes to Redis and to the records. What one of them could not take is in force by the other; after an error it
    /// may be given again.
    async fn give(&self, order: &Order) -> Result<(), Error> {
        let record = async {
            match (order, &self.records) {
                (Order::Revoke { user, issued_before }, Some(records)) => {
                    records.store(user, *issued_before).await
                }
                _ => Ok(()),
            }
        };
        let (recorded, sent) = tokio::join!(record, self.send(order, WriteCondition::Always));
        if let Order::Revoke { user, issued_before } = order {
            // Before it comes back by the feed: Redis may lose it until then. What it did not take it gets when it is back.
            self.feed.remember(user, *issued_before, sent.is_ok());
        }
        sent.and(recorded)
    }

    async fn send(&self, order: &Order, condition: WriteCondition) -> Result<(), Error> {
        // Only what it needs: while a slot moves, a script of one key goes on, and one of two has to wait.
        let (before, revoked) = match order {
            Order::Disconnect { .. } => (String::new(), None),
            Order::Revoke { user, issued_before } => {
                (issued_before.to_string(), Some(self.revoked_key(user)))
            }
        };
        let (text, kept) = (order.as_text(), KEPT.to_string());
        let life = REVOCATION_LIFE.as_millis().to_string();
        let arguments =
            [&text, &kept, self.channel.name(), &before, &life, condition.as_text()].map(str::as_bytes);
        let keys: Vec<&str> = std::iter::once(self.stream.as_str()).chain(revoked.as_deref()).collect();
        self.redis.run(&GIVE, Repeat::Never, &keys, &arguments).await?;
        Ok(())
    }

    async fn revoked_before(&self, user: &Id) -> Result<Option<Millis>, Error> {
        let (known, mark) = self.feed.revoked(user);
        if let Some(known) = known {
            return Ok(known);
        }
        match (self.ask_revoked(user).await, &self.records) {
            (Ok(before), _) => Ok(self.feed.learn(user, before, mark)),
            (Err(_), Some(records)) => records.find(user).await,
            (Err(error), None) => Err(error),
        }
    }

    /// Redis knows that somebody was revoked. That nobody was it knows only when it has not lost anything.
    async fn ask_revoked(&self, user: &Id) -> Result<Option<Millis>, Error> {
        let key = self.revoked_key(user);
        let mut question = redis::cmd("GET");
        question.arg(&key);
        loop {
            let asked = self.redis.ask("revoked", &key, &question, Repeat::Safe);
            let answer: Value = tokio::time::timeout(PATIENCE, asked).await.map_err(|_| silent())??;
            let before: Option<Millis> =
                from_redis_value(answer).map_err(|_| Error::unreadable("a revocation"))?;
            if before.is_some() || self.feed.is_restored() {
                return Ok(before);
            }
            self.wait_restored().await?;
        }
    }
}

/// When an order is written into the feed.
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

fn silent() -> Error {
    Error::Away("Redis does not answer".to_owned())
}

impl Orders for RedisOrders {
    fn give(&self, order: Order) -> Boxed<'_, Result<(), Error>> {
        Box::pin(async move { self.0.give(&order).await })
    }

    fn is_current(&self) -> bool {
        self.0.feed.is_current()
    }

    fn catch_up(&self) -> Boxed<'_, Result<(), Error>> {
        Box::pin(self.0.catch_up())
    }

    fn revoked_before<'a>(&'a self, user: &'a Id) -> Boxed<'a, Result<Option<Millis>, Error>> {
        Box::pin(self.0.revoked_before(user))
    }
}
