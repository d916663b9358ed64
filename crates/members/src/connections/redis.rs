//! A person's connections in Redis, for the fleet.
//!
//! A hub says of a person which connections it holds, all of them in one script, each with the time that Redis gave it: when
//! one comes, when one has gone, after every doubt of the bus, and now and then. So whatever Redis has forgotten is put back,
//! and nothing stays that nobody holds. The script also tells who has to go. Before anybody goes because of what a silent hub
//! holds, that hub is asked: it may have been killed a moment ago, and its people are just those who are coming.

mod held;
mod sweep;

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bongsu_coordination::registry::Fleet;
use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_kernel::{Id, Millis, random};
use bongsu_live::Ender;
use bongsu_redis::redis::from_redis_value;
use bongsu_redis::{Channel, Error, Listener, Redis, Repeat, Script, Subscriber};
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::sync::{Notify, watch};

use super::{Away, Boxed, Connections, Place};
use crate::Options;
use held::{Connection, Held, Word};
use sweep::Notes;

static TIME: Script = Script::new("member_time", include_str!("../../lua/time.lua"));
static HOLD: Script = Script::new("member_hold", include_str!("../../lua/hold.lua"));

/// All connections of this hub are looked up so often.
const LOOK: Duration = Duration::from_secs(30);
/// What could not be told is told again after so long.
const AGAIN: Duration = Duration::from_millis(500);
const AT_ONCE: usize = 64;
/// So many people are taken in hand at a time.
const GATHERED: usize = 1_024;
/// A connection that Redis lets in later than this, by its own clock, has been given up.
const IN_TIME: Millis = 5_000;
/// A hub that is asked has so long to say what it holds.
const ANSWER: Duration = Duration::from_millis(400);
/// A connection waits so long until it is noted whose it is.
const NOTE_TIMEOUT: Duration = Duration::from_millis(500);
/// So many people's hubs are asked at the same time; what is beyond is seen to when their streams are looked up next.
const MOST_ASKED: usize = 65_536;
/// While Redis has to be told of so many people, nobody is let in who would add to them.
const MOST_UNTOLD: usize = 65_536;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct RedisConnections(Arc<Inner>);

struct Inner {
    redis: Redis,
    fleet: watch::Receiver<Fleet>,
    notes: Notes,
    most: String,
    lifetime: String,
    held: Mutex<Held>,
    /// Of whom other hubs were asked, since when by Redis's clock, and when that is decided.
    asked: Mutex<VecDeque<(Instant, Id, Millis)>>,
    /// Of whom another hub asks.
    questions: Mutex<HashSet<Id>>,
    /// Rings when Redis has to be told of somebody.
    bell: Notify,
    /// Rings when another hub asks, and when this one has.
    asking: Notify,
    deciding: Notify,
    doubt: Notify,
}

impl RedisConnections {
    /// What instances held that are no longer in `fleet` is given back.
    pub fn start(
        redis: Redis,
        fleet: watch::Receiver<Fleet>,
        options: &Options,
        supervisor: &Supervisor,
    ) -> Self {
        let this = Self(Arc::new(Inner {
            notes: Notes::new(redis.clone(), options.lifetime),
            redis,
            fleet,
            most: options.most.to_string(),
            lifetime: options.lifetime.as_millis().to_string(),
            held: Mutex::default(),
            asked: Mutex::default(),
            questions: Mutex::default(),
            bell: Notify::new(),
            asking: Notify::new(),
            deciding: Notify::new(),
            doubt: Notify::new(),
        }));
        let bus = this.0.redis.subscriber(Arc::new(Ears(this.clone())));
        let (looking, stop) = (this.clone(), supervisor.stop());
        supervisor.spawn("member-connections", OnEnd::Restart, move || {
            let (this, stop, bus) = (looking.clone(), stop.clone(), bus.clone());
            async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = this.0.listen(&bus) => {}
                    () = this.0.look_for_ever() => {}
                    () = this.0.tell_for_ever() => {}
                    () = this.0.answer_for_ever() => {}
                    () = this.0.decide_for_ever() => {}
                    () = this.0.sweep_for_ever() => {}
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

    /// Which hubs are alive, and when they were, by Redis's clock.
    fn alive(&self) -> (Millis, Vec<String>) {
        let fleet = self.fleet.borrow();
        (fleet.seen_at, fleet.alive.iter().map(|instance| instance.id.clone()).collect())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        lock(&self.held)
    }

    /// By which hubs ask each other.
    fn question(&self) -> String {
        self.redis.key("sse:notification:ask")
    }

    /// Once it is heard, the bus itself tells what becomes of it.
    async fn listen(&self, bus: &Subscriber) {
        for channel in [self.channel(), self.question()] {
            while bus.subscribe(Channel::Everywhere(channel.clone().into())).await.is_err() {
                tokio::time::sleep(AGAIN).await;
            }
        }
        std::future::pending::<()>().await;
    }

    async fn answer_for_ever(&self) {
        loop {
            let people: Vec<Id> = lock(&self.questions).drain().collect();
            if people.is_empty() {
                self.asking.notified().await;
                continue;
            }
            let answering: Vec<_> = people
                .iter()
                .map(async |person| {
                    let word = self.held().word(person);
                    // Who gets no answer takes it for one; the next look puts that right.
                    let _ = self.say(person, word, Others::Answered).await;
                })
                .collect();
            futures_util::stream::iter(answering).buffer_unordered(AT_ONCE).collect::<()>().await;
        }
    }

    /// Says it again once those who were asked have had their time.
    async fn decide_for_ever(&self) {
        loop {
            let Some((when, person, since)) = lock(&self.asked).pop_front() else {
                self.deciding.notified().await;
                continue;
            };
            tokio::time::sleep_until(when.into()).await;
            let word = self.held().word(&person);
            if self.say(&person, word, Others::Asked(since)).await.is_err() {
                self.held().tell_of(&person);
                self.bell.notify_one();
            }
        }
    }

    async fn look_for_ever(&self) {
        loop {
            let people = self.held().people();
            // What cannot be noted now is noted with the next look.
            let _ = self.notes.add_all(&people).await;
            let looking: Vec<_> = people.iter().map(|person| self.look(person)).collect();
            let mut looking = futures_util::stream::iter(looking).buffer_unordered(AT_ONCE);
            while let Some(outcome) = looking.next().await {
                if outcome.is_err() {
                    break;
                }
            }
            // Whether it was in time or not: both are a reason to look.
            let _ = tokio::time::timeout(LOOK, self.doubt.notified()).await;
        }
    }

    /// Until it is told: one that nobody holds would push out one that somebody does.
    async fn tell_for_ever(&self) {
        loop {
            let people = self.held().take_untold(GATHERED);
            if people.is_empty() {
                self.bell.notified().await;
                continue;
            }
            let telling: Vec<_> = people
                .iter()
                .map(async |person| {
                    let told = self.tell(person).await.is_ok();
                    if !told {
                        self.held().tell_of(person);
                    }
                    told
                })
                .collect();
            // To the end, whatever becomes of some: who is not asked any more would not be put back.
            let told = futures_util::stream::iter(telling).buffer_unordered(AT_ONCE);
            if !told.fold(true, async |all, told| all && told).await {
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Says what is left of a person's connections here.
    async fn tell(&self, person: &Id) -> Result<(), Error> {
        self.look(person).await?;
        if self.held().holds(person) {
            return Ok(());
        }
        self.notes.remove(person).await?;
        // A connection that has come meanwhile may have been noted before that.
        if self.held().holds(person) { self.notes.add(person).await } else { Ok(()) }
    }

    /// Says what this hub holds of a person.
    async fn look(&self, person: &Id) -> Result<(), Error> {
        let word = self.held().word(person);
        self.say(person, word, Others::Unasked).await
    }

    /// Says it, and does what is answered.
    async fn say(&self, person: &Id, word: Word, others: Others) -> Result<(), Error> {
        let [streams, hubs] = self.keys(person);
        let named = serde_json::to_string(person).unwrap_or_default();
        let (channel, until, (seen_at, alive)) = (self.channel(), word.until.to_string(), self.alive());
        let seen_at = seen_at.to_string();
        let (number, count) = (word.number.to_string(), word.connections.len().to_string());
        let (asked, question) = (others.written(), self.question());
        let head = [
            self.redis.instance(),
            &number,
            &self.most,
            &self.lifetime,
            &channel,
            &named,
            &until,
            &asked,
            &question,
            &seen_at,
            &count,
        ];
        let mut arguments: Vec<&[u8]> = head.map(str::as_bytes).to_vec();
        for (id, time) in &word.connections {
            arguments.extend([id.as_bytes(), time.as_bytes()]);
        }
        arguments.extend(alive.iter().map(String::as_bytes));
        // Repeated, it is the same word.
        let answer = self.redis.run(&HOLD, Repeat::Safe, &[&streams, &hubs], &arguments).await?;
        let replaced: Option<Vec<String>> = from_redis_value(answer).map_err(unexpected)?;
        let replaced = replaced.ok_or_else(|| Error::Unreachable("it stood still meanwhile".to_owned()))?;
        let (asked, replaced) = replaced.split_first().ok_or_else(|| unexpected("no answer to a word"))?;
        if let Ok(since) = asked.parse() {
            let mut waiting = lock(&self.asked);
            if waiting.len() < MOST_ASKED {
                waiting.push_back((Instant::now() + ANSWER, person.clone(), since));
                self.deciding.notify_one();
            }
        }
        let mut held = self.held();
        for (id, _) in &word.connections {
            held.is_counted(person, id);
        }
        for id in replaced {
            held.replaced(person, id);
        }
        Ok(())
    }

    async fn enter(self: Arc<Self>, person: Id, ender: Ender) -> Result<Entered, Error> {
        if self.held().untold() >= MOST_UNTOLD {
            return Err(Error::Unreachable("too many have gone of whom it was not told".to_owned()));
        }
        // Apart from counting it: who finds no Redis here leaves nothing there, and whatever is repeated or comes late from
        // here on names the same time.
        let [streams, _] = &self.keys(&person);
        let is_noted = self.held().holds(&person);
        let noting = async {
            // Not for long: should it fail, it is noted with the next look.
            if !is_noted {
                let _ = tokio::time::timeout(NOTE_TIMEOUT, self.notes.add(&person)).await;
            }
        };
        let asking = async { self.redis.run(&TIME, Repeat::Safe, &[streams], &[]).await };
        let (answer, ()) = tokio::join!(asking, noting);
        let answer = answer?;
        let (time, now): (String, Millis) = from_redis_value(answer).map_err(unexpected)?;
        let id = random::uuid();
        let word = self.held().comes(&person, Connection::new(&id, ender, time, now + IN_TIME));
        // From here on it is counted out again, whatever happens.
        let entered = Entered { inner: self.clone(), person, id };
        self.say(&entered.person, word, Others::Unasked).await?;
        Ok(entered)
    }
}

/// What is known of the other hubs that hold something of a person.
#[derive(Clone, Copy)]
enum Others {
    Unasked,
    /// This is what one of them asked for.
    Answered,
    /// Since then, by Redis's clock.
    Asked(Millis),
}

impl Others {
    fn written(self) -> String {
        match self {
            Self::Unasked => "0".to_owned(),
            Self::Answered => "-1".to_owned(),
            Self::Asked(since) => since.to_string(),
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unexpected(error: impl std::fmt::Display) -> Error {
    Error::Unexpected(error.to_string())
}

impl Connections for RedisConnections {
    fn enter(&self, person: &Id, ender: Ender) -> Boxed<'_, Place> {
        let entering = self.0.clone().enter(person.clone(), ender);
        Box::pin(async move {
            let entered = entering.await.map_err(|error| Away(error.to_string()))?;
            Ok(Place::held_by(entered))
        })
    }
}

/// A connection is counted out when this is dropped.
struct Entered {
    inner: Arc<Inner>,
    person: Id,
    id: String,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.inner.held().goes(&self.person, &self.id);
        self.inner.bell.notify_one();
    }
}

struct Ears(RedisConnections);

impl Ears {
    /// Only who holds something has an answer.
    fn asked(&self, payload: &[u8]) {
        let inner = &self.0.0;
        match serde_json::from_slice::<Id>(payload) {
            Ok(person) if inner.held().holds(&person) => {
                lock(&inner.questions).insert(person);
                inner.asking.notify_one();
            }
            Ok(_) => {}
            Err(_) => metrics::counter!("bus_malformed_total").increment(1),
        }
    }
}

impl Listener for Ears {
    fn message(&self, channel: &Channel, payload: &[u8]) {
        if channel.name() == self.0.0.question() {
            return self.asked(payload);
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Disconnect {
            member_id: Id,
            connection_id: String,
        }
        match serde_json::from_slice::<Disconnect>(payload) {
            Ok(one) => self.0.0.held().replaced(&one.member_id, &one.connection_id),
            Err(_) => metrics::counter!("bus_malformed_total").increment(1),
        }
    }

    fn mark_stale(&self, _: &Channel) {
        self.0.0.doubt.notify_one();
    }
}
