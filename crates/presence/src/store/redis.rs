//! People in Redis, for a fleet: one script a change, which also announces it on a channel of the room's slot.
//!
//! `presence:42` is a hash of people and when they were last seen; the helpers `{presence:42}:...` share its slot. All
//! times are Redis' own. What the keys hold and how a change is decided is in `lua/tell.lua`, which is also told which
//! instances are alive; the messages are read in `redis/bus.rs`.

mod bus;

use std::sync::Arc;
use std::time::Duration;

use bongsu_coordination::registry::Fleet;
use bongsu_kernel::{Id, Millis};
use bongsu_live::log::Boxed;
use bongsu_redis::redis::{self as client, FromRedisValue, Value};
use bongsu_redis::{Channel, Redis, Repeat, Script, Subscriber};
use tokio::sync::watch;

use super::{Ears, Error, GATHER, MAX_PAGE_SIZE, MOST_LISTED, Online, Store, Told, Who, millis};
use crate::Options;
use bus::{BUS, Listener};

static TELL: Script = Script::new("presence", include_str!("../../lua/tell.lua"));

/// The source of heartbeats; those of streams are instances.
const BEATS: &str = "*";
/// A hub says so many times within the life of a sign that its people are here. The last word of a hub that died is
/// never older than that life, and one that missed two turns has not lost anybody yet.
const WORDS: u32 = 3;

/// Calls of the script for one list. Each lets some of those leave whose time is up, before the rest is counted.
const MAX_LIST_CALLS: usize = 1_000;

/// See the module.
pub struct RedisStore {
    redis: Redis,
    fleet: watch::Receiver<Fleet>,
    bus: Subscriber,
    renewal: Duration,
    /// What the script is told every time.
    settings: [String; 4],
}

/// What one call of the script says and asks for.
struct Call<'a> {
    source: &'a str,
    repeat: Repeat,
    here: &'a [Id],
    gone: &'a [Id],
    /// How many people to list, and after whom.
    listed: usize,
    after: Option<&'a Id>,
}

/// What the script answers: ms until the next look or -1, the time, the version or nothing, the count, and the list.
type Answered = (i64, String, String, usize, Vec<(String, String)>);

impl RedisStore {
    /// People of instances that are not in the fleet leave.
    pub fn new(options: Options, redis: Redis, fleet: watch::Receiver<Fleet>, ears: Arc<dyn Ears>) -> Self {
        let bus = redis.subscriber(Arc::new(Listener { redis: redis.clone(), ears }));
        let [life, keys, gather] =
            [options.user_ttl, options.hash_ttl, GATHER].map(|duration| millis(duration).to_string());
        let settings = [life, keys, MOST_LISTED.to_string(), gather];
        Self { redis, fleet, bus, renewal: options.user_ttl / WORDS, settings }
    }

    async fn run(&self, room: &Id, call: Call<'_>) -> Result<Answered, Error> {
        let Call { source, repeat, here, gone, listed, after } = call;
        let keys = self.keys(room);
        let [life, lives, most, gather] = &self.settings;
        let (seen_at, alive) = {
            let fleet = self.fleet.borrow();
            let alive: Vec<String> = fleet.alive.iter().map(|instance| instance.id.clone()).collect();
            (fleet.seen_at.to_string(), alive)
        };
        let channel = self.redis.beside(&keys[0], BUS);
        let after = after.map_or_else(|| "-".to_owned(), |id| format!("({:03}{id}", id.as_str().len()));
        let [instances, listed, count] = [alive.len(), listed, here.len()].map(|number| number.to_string());
        let head =
            [source, life, lives, &channel, most, gather, &seen_at, &instances, &listed, &after, &count];
        let words = head.into_iter().chain(alive.iter().map(String::as_str));
        let words = words.chain(here.iter().chain(gone).map(Id::as_str));
        let arguments: Vec<&[u8]> = words.map(str::as_bytes).collect();
        take(self.redis.run(&TELL, repeat, &keys.each_ref().map(String::as_str), &arguments).await?)
    }

    /// Lists people after everybody has left whose time is up, so that the count is right.
    async fn list(&self, room: &Id, after: Option<&Id>, most: usize) -> Result<Who, Error> {
        let most = most.min(MAX_PAGE_SIZE);
        for _ in 0..MAX_LIST_CALLS {
            let (source, listed) = (self.redis.instance(), most + 1);
            let call = Call { source, repeat: Repeat::Safe, here: &[], gone: &[], listed, after };
            let (look, at, version, count, mut people) = self.run(room, call).await?;
            if look == 0 {
                continue;
            }
            let has_more = people.len() > most;
            people.truncate(most);
            let at: Millis = at.parse().map_err(|_| unexpected("no time"))?;
            let online = people.iter().filter_map(|(user, seen)| {
                // What another program wrote into the hash is nobody that we know.
                Some(Online { user: Id::new(user).ok()?, last_seen: seen.parse().ok()? })
            });
            let version = version.parse().unwrap_or_default();
            return Ok(Who { version, at, count, online: online.collect(), has_more });
        }
        Err(Error::Away("people leave faster than the others can be counted".to_owned()))
    }

    /// People, signs, when to look at whom, and everybody in the order of lists.
    fn keys(&self, room: &Id) -> [String; 4] {
        let people = self.redis.key(format_args!("presence:{room}"));
        let [signs, agenda, order] =
            ["signs", "agenda", "order"].map(|name| self.redis.beside(&people, name));
        [people, signs, agenda, order]
    }

    fn channel(&self, room: &Id) -> Channel {
        Channel::OfSlot(self.redis.beside(&self.keys(room)[0], BUS).into())
    }
}

impl Store for RedisStore {
    fn tell(&self, room: &Id, here: &[Id], gone: &[Id]) -> Boxed<'_, Result<Told, Error>> {
        let (room, here, gone) = (room.clone(), here.to_vec(), gone.to_vec());
        Box::pin(async move {
            // Who calls this tries again with what is then the case.
            let (source, repeat) = (self.redis.instance(), Repeat::Never);
            let call = Call { source, repeat, here: &here, gone: &gone, listed: 0, after: None };
            let (look, _, version, count, _) = self.run(&room, call).await?;
            let look_within = u64::try_from(look).ok().map(Duration::from_millis);
            Ok(Told { look_within, version: version.parse().ok(), count })
        })
    }

    fn beat(&self, room: &Id, person: &Id) -> Boxed<'_, Result<(), Error>> {
        let (room, person) = (room.clone(), [person.clone()]);
        Box::pin(async move {
            let repeat = Repeat::Safe;
            let call = Call { source: BEATS, repeat, here: &person, gone: &[], listed: 0, after: None };
            self.run(&room, call).await?;
            Ok(())
        })
    }

    fn who(&self, room: &Id, after: Option<&Id>, most: usize) -> Boxed<'_, Result<Who, Error>> {
        let (room, after) = (room.clone(), after.cloned());
        Box::pin(async move { self.list(&room, after.as_ref(), most).await })
    }

    fn listen(&self, room: &Id) -> Boxed<'_, Result<(), Error>> {
        let channel = self.channel(room);
        Box::pin(async move { Ok(self.bus.subscribe(channel).await?) })
    }

    fn forget(&self, room: &Id) {
        self.bus.unsubscribe(self.channel(room));
    }

    fn renewal(&self) -> Option<Duration> {
        Some(self.renewal)
    }
}

fn take<T: FromRedisValue>(value: Value) -> Result<T, Error> {
    client::from_redis_value(value).map_err(|error| unexpected(&error.to_string()))
}

fn unexpected(why: &str) -> Error {
    Error::Refused(format!("an answer about presence is not readable: {why}"))
}

impl From<bongsu_redis::Error> for Error {
    fn from(error: bongsu_redis::Error) -> Self {
        if error.may_pass() { Self::Away(error.to_string()) } else { Self::Refused(error.to_string()) }
    }
}
