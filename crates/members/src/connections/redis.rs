//! A person's connections in Redis, for the fleet.
//!
//! Entering is one script, which also tells who has to go; whoever holds that connection hears it and ends it. A message that
//! was lost is made up for by looking: after every doubt of the bus, and now and then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_kernel::{Close, Id, random};
use bongsu_live::Ender;
use bongsu_redis::redis::{cmd, from_redis_value};
use bongsu_redis::{Bus, Channel, Error, Listener, Redis, Repeat, Script};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::sync::{Notify, mpsc};

use super::{Away, Boxed, Connections, Place};

static ENTER: Script = Script::new("member_enter", include_str!("../../lua/enter.lua"));
static LEAVE: Script = Script::new("member_leave", include_str!("../../lua/leave.lua"));

/// All connections of this hub are looked up so often.
const LOOK: Duration = Duration::from_secs(30);
/// What could not be told is told again after so long.
const AGAIN: Duration = Duration::from_millis(500);
const AT_ONCE: usize = 64;

/// Says which hubs are alive.
pub type Alive = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct RedisConnections(Arc<Inner>);

struct Inner {
    redis: Redis,
    alive: Alive,
    lifetime: Duration,
    open: Mutex<HashMap<Id, Vec<Open>>>,
    left: mpsc::UnboundedSender<Left>,
    doubt: Notify,
}

/// A connection that this hub holds.
#[derive(Clone)]
struct Open {
    id: String,
    ender: Ender,
    most: usize,
    /// Redis knows of it.
    counted: bool,
}

/// One that has gone.
type Left = (Id, String);

impl RedisConnections {
    pub fn start(redis: Redis, alive: Alive, lifetime: Duration, supervisor: &Supervisor) -> Self {
        let (left, leaving) = mpsc::unbounded_channel();
        let inner = Inner { redis, alive, lifetime, open: Mutex::default(), left, doubt: Notify::new() };
        let this = Self(Arc::new(inner));
        let bus = Bus::start(this.0.redis.clone(), Arc::new(Ears(this.clone())), supervisor);
        let leaving = Arc::new(tokio::sync::Mutex::new(leaving));
        let (looking, stop) = (this.clone(), supervisor.stop());
        supervisor.spawn("member-connections", OnEnd::Restart, move || {
            let (this, stop) = (looking.clone(), stop.clone());
            let (bus, leaving) = (bus.clone(), leaving.clone());
            async move {
                let mut leaving = leaving.lock().await;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = this.0.listen(&bus) => {}
                    () = this.0.look_for_ever() => {}
                    () = this.0.count_out(&mut leaving) => {}
                }
            }
        });
        this
    }
}

impl Inner {
    fn channel(&self) -> String {
        self.redis.key("sse:notification:disconnect")
    }

    fn keys(&self, person: &Id) -> [String; 2] {
        let key = |end: &str| self.redis.key(format_args!("sse:notification:{{{person}}}{end}"));
        [key(""), key(":hubs")]
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Id, Vec<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Once it is heard, the bus itself tells what becomes of it.
    async fn listen(&self, bus: &Bus) {
        while bus.subscribe(Channel::Everywhere(self.channel().into())).await.is_err() {
            tokio::time::sleep(AGAIN).await;
        }
        std::future::pending::<()>().await;
    }

    async fn look_for_ever(&self) {
        loop {
            // Whether it was in time or not: both are a reason to look.
            let _ = tokio::time::timeout(LOOK, self.doubt.notified()).await;
            let people: Vec<Id> = self.open().keys().cloned().collect();
            let looking: Vec<_> = people.iter().map(|person| self.look(person)).collect();
            let mut looking = futures_util::stream::iter(looking).buffer_unordered(AT_ONCE);
            while let Some(outcome) = looking.next().await {
                if outcome.is_err() {
                    break;
                }
            }
        }
    }

    /// Ends what others have replaced, and counts in again what Redis has forgotten altogether.
    async fn look(&self, person: &Id) -> Result<(), Error> {
        let counted = |open: &&Open| open.counted;
        let own: Vec<Open> = self
            .open()
            .get(person)
            .map(|open| open.iter().filter(counted).cloned().collect())
            .unwrap_or_default();
        if own.is_empty() {
            return Ok(());
        }
        let [key, _] = self.keys(person);
        let (mut scores, mut there) = (cmd("ZMSCORE"), cmd("EXISTS"));
        scores.arg(&key).arg(own.iter().map(|open| open.id.as_str()).collect::<Vec<_>>());
        there.arg(&key);
        let scores = self.redis.ask("zmscore", &key, &scores, Repeat::Safe).await?;
        let scores: Vec<Option<f64>> = from_redis_value(scores).unwrap_or_default();
        let there = self.redis.ask("exists", &key, &there, Repeat::Safe).await?;
        let there: bool = from_redis_value(there).unwrap_or(true);
        for (open, score) in own.iter().zip(scores) {
            match score {
                Some(_) => {}
                None if there => open.ender.end(Close::Replaced),
                None => self.count_in(person, &open.id, open.most).await?,
            }
        }
        Ok(())
    }

    async fn count_in(&self, person: &Id, id: &str, most: usize) -> Result<(), Error> {
        let keys = self.keys(person);
        let (most, lifetime) = (most.to_string(), self.lifetime.as_millis().to_string());
        let named = serde_json::to_string(person).unwrap_or_default();
        let (channel, alive) = (self.channel(), (self.alive)());
        let mut arguments: Vec<&[u8]> =
            [id, self.redis.instance(), &most, &lifetime, &channel, &named].map(str::as_bytes).to_vec();
        arguments.push(self.redis.instance().as_bytes());
        arguments.extend(alive.iter().map(String::as_bytes));
        // Repeated it is the same connection, a moment younger.
        self.redis.run(&ENTER, Repeat::Safe, &[&keys[0], &keys[1]], &arguments).await?;
        Ok(())
    }

    /// Until it is told: one that nobody holds would push out one that somebody does.
    async fn count_out(&self, leaving: &mut mpsc::UnboundedReceiver<Left>) {
        let mut some = Vec::new();
        loop {
            if some.is_empty() && leaving.recv_many(&mut some, AT_ONCE).await == 0 {
                return std::future::pending::<()>().await;
            }
            let telling: Vec<_> = some
                .drain(..)
                .map(async |(person, id): Left| {
                    let [connections, hubs] = self.keys(&person);
                    let (keys, gone) = ([connections.as_str(), &hubs], [id.as_bytes()]);
                    let told = self.redis.run(&LEAVE, Repeat::Safe, &keys, &gone).await;
                    told.err().map(|_| (person, id))
                })
                .collect();
            let untold = futures_util::stream::iter(telling).buffer_unordered(AT_ONCE);
            some = untold.filter_map(std::future::ready).collect().await;
            if !some.is_empty() {
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    fn end(&self, person: &Id, id: &str) {
        let open = self.open();
        let own = open.get(person).and_then(|own| own.iter().find(|open| open.id == id));
        if let Some(own) = own {
            own.ender.end(Close::Replaced);
        }
    }
}

impl Connections for RedisConnections {
    fn enter(&self, person: &Id, ender: Ender, most: usize) -> Boxed<'_, Place> {
        let person = person.clone();
        Box::pin(async move {
            let id = random::uuid();
            // Before it is counted: who is replaced at once has to be found.
            let open = Open { id: id.clone(), ender, most, counted: false };
            self.0.open().entry(person.clone()).or_default().push(open);
            let held = Held { inner: self.0.clone(), person, id };
            let counted = self.0.count_in(&held.person, &held.id, most).await;
            counted.map_err(|error| Away(error.to_string()))?;
            let mut open = self.0.open();
            let own =
                open.get_mut(&held.person).and_then(|own| own.iter_mut().find(|open| open.id == held.id));
            if let Some(own) = own {
                own.counted = true;
            }
            drop(open);
            Ok(Place::held_by(held))
        })
    }
}

/// A connection is counted out when this is dropped.
struct Held {
    inner: Arc<Inner>,
    person: Id,
    id: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut open = self.inner.open();
        if let Some(own) = open.get_mut(&self.person) {
            own.retain(|open| open.id != self.id);
            if own.is_empty() {
                open.remove(&self.person);
            }
        }
        drop(open);
        // The loop that takes them lives as long as the process.
        let _ = self.inner.left.send((self.person.clone(), std::mem::take(&mut self.id)));
    }
}

struct Ears(RedisConnections);

impl Listener for Ears {
    fn message(&self, _: &Channel, payload: Bytes) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Disconnect {
            member_id: Id,
            connection_id: String,
        }
        match serde_json::from_slice::<Disconnect>(&payload) {
            Ok(one) => self.0.0.end(&one.member_id, &one.connection_id),
            Err(_) => metrics::counter!("bus_malformed_total").increment(1),
        }
    }

    fn doubt(&self, _: &Channel) {
        self.0.0.doubt.notify_one();
    }
}
