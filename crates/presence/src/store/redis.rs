//! People in Redis, for a fleet: one script a change, which also announces it on a channel of the room's slot.
//!
//! `presence:42` is a hash of people and when they were last seen; the helpers `{presence:42}:...` share its slot. All
//! times are Redis' own. What the keys hold and how a change is decided is in `lua/tell.lua`; the messages are read in
//! `redis/bus.rs`.

mod bus;

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, Millis};
use bongsu_live::log::Boxed;
use bongsu_redis::redis::{self as client, FromRedisValue, Value};
use bongsu_redis::{Bus, Channel, Redis, Repeat, Script};

use super::{Ears, Error, GATHER, MOST_LISTED, Online, Store, Told, Who};
use crate::Options;
use bus::{BUS, Listener};

static TELL: Script = Script::new("presence", include_str!("../../lua/tell.lua"));
static WHO: Script = Script::new("presence_who", include_str!("../../lua/who.lua"));

/// The source of heartbeats; those of streams are instances.
const BEATS: &str = "*";
/// A hub says so many times within the life of a sign that its people are here. The last word of a hub that died is
/// never older than that life, and one that missed two turns has not lost anybody yet.
const WORDS: u32 = 3;

/// See the module.
pub struct RedisStore {
    redis: Redis,
    bus: Bus,
    life: Millis,
    renewal: Duration,
    /// What the script is told every time.
    settings: [String; 4],
}

impl RedisStore {
    pub fn start(options: Options, redis: Redis, ears: Arc<dyn Ears>, supervisor: &Supervisor) -> Self {
        let listener = Listener::new(redis.clone(), ears);
        let bus = Bus::start(redis.clone(), Arc::new(listener), supervisor);
        let [life, keys, gather] = [options.user_ttl, options.hash_ttl, GATHER]
            .map(|duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX >> 1));
        let settings = [life.to_string(), keys.to_string(), MOST_LISTED.to_string(), gather.to_string()];
        Self { redis, bus, life, renewal: options.user_ttl / WORDS, settings }
    }

    async fn run_tell(
        &self,
        room: &Id,
        source: &str,
        repeat: Repeat,
        here: &[Id],
        gone: &[Id],
    ) -> Result<Told, Error> {
        let keys = self.keys(room);
        let [life, lives, most, gather] = &self.settings;
        let (channel, count) = (self.redis.beside(&keys[0], BUS), here.len().to_string());
        let mut arguments: Vec<&[u8]> = Vec::with_capacity(7 + here.len() + gone.len());
        arguments.extend([source, life, lives, &channel, most, gather, &count].map(str::as_bytes));
        arguments.extend(here.iter().chain(gone).map(|person| person.as_str().as_bytes()));
        let answer = self.redis.run(&TELL, repeat, &keys.each_ref().map(String::as_str), &arguments).await?;
        let look: i64 = take(answer)?;
        Ok(Told { look_within: u64::try_from(look).ok().map(Duration::from_millis) })
    }

    async fn run_who(&self, room: &Id, most: usize) -> Result<Who, Error> {
        let [people, signs, _] = self.keys(room);
        let most = most.to_string();
        let answer = self.redis.run(&WHO, Repeat::Safe, &[&people, &signs], &[most.as_bytes()]).await?;
        let (at, version, count, people): (String, String, usize, Vec<(String, String)>) = take(answer)?;
        let at: Millis = at.parse().map_err(|_| unexpected("no time"))?;
        let version = version.parse().unwrap_or_default();
        if people.is_empty() && count > 0 {
            return Ok(Who { version, at, count, online: None });
        }
        let online = people.iter().filter_map(|(user, seen)| {
            // What another program wrote into the hash is nobody that we know.
            let (user, last_seen) = (Id::new(user).ok()?, seen.parse::<Millis>().ok()?);
            // Whose time is up has gone, also when nobody has looked since.
            (last_seen + self.life > at).then_some(Online { user, last_seen })
        });
        let online: Vec<Online> = online.collect();
        Ok(Who { version, at, count: online.len(), online: Some(online) })
    }

    /// People, signs, and when to look at whom.
    fn keys(&self, room: &Id) -> [String; 3] {
        let people = self.redis.key(format_args!("presence:{room}"));
        let (signs, agenda) = (self.redis.beside(&people, "signs"), self.redis.beside(&people, "agenda"));
        [people, signs, agenda]
    }

    fn channel(&self, room: &Id) -> Channel {
        Channel::OfSlot(self.redis.beside(&self.keys(room)[0], BUS).into())
    }
}

impl Store for RedisStore {
    fn tell(&self, room: &Id, here: &[Id], gone: &[Id]) -> Boxed<'_, Result<Told, Error>> {
        let (room, here, gone) = (room.clone(), here.to_vec(), gone.to_vec());
        // Who calls this tries again with what is then the case.
        Box::pin(
            async move { self.run_tell(&room, self.redis.instance(), Repeat::Never, &here, &gone).await },
        )
    }

    fn beat(&self, room: &Id, person: &Id) -> Boxed<'_, Result<(), Error>> {
        let (room, person) = (room.clone(), [person.clone()]);
        Box::pin(async move {
            self.run_tell(&room, BEATS, Repeat::Safe, &person, &[]).await?;
            Ok(())
        })
    }

    fn who(&self, room: &Id, most: usize) -> Boxed<'_, Result<Who, Error>> {
        let room = room.clone();
        Box::pin(async move { self.run_who(&room, most).await })
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
