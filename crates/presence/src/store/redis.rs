//! Presence in Redis, for a fleet. One script applies a report and announces its changes on a channel of the room's
//! slot.
//!
//! `presence:42` is a hash of the people in a room and when each was last seen; the keys `{presence:42}:...` share its
//! slot. All times are those of Redis. `lua/report_people.lua` describes the keys and decides the changes, also with the list
//! of instances that are alive; `redis/bus.rs` parses the announcements.

mod bus;

use std::sync::Arc;
use std::time::Duration;

use bongsu_coordination::registry::Fleet;
use bongsu_kernel::{Id, Millis};
use bongsu_redis::redis::{self as client, FromRedisValue, Value};
use bongsu_redis::{Channel, Redis, Repeat, Script, Subscriber};
use tokio::sync::watch;

use super::{
    CHANGE_BATCH_INTERVAL, Error, MAX_LISTED, MAX_PAGE_SIZE, Occupant, Occupants, PresenceListener,
    PresenceStore, ReportOutcome, StoreFuture, millis,
};
use crate::Options;
use bus::{BusListener, CHANNEL_NAME};

static REPORT: Script = Script::new("presence", include_str!("../../lua/report_people.lua"));

/// The source of heartbeat leases. The source of a stream's lease is the id of its instance.
const HEARTBEAT_SOURCE: &str = "*";
/// An instance renews its leases this many times per `user_ttl`, so that no lease expires when one renewal
/// fails.
const RENEWALS_PER_LEASE: u32 = 3;
/// Maximum number of calls of the script for one page. Each call removes a batch of people whose leases have
/// ended; the page is read when all of them are removed.
const MAX_LIST_CALLS: usize = 1_000;

/// The presence store of a fleet.
pub struct RedisStore {
    redis: Redis,
    fleet: watch::Receiver<Fleet>,
    bus: Subscriber,
    renewal_interval: Duration,
    /// The arguments that are the same in every call of the script.
    settings: [String; 4],
}

/// The arguments of one call of the script.
struct ScriptCall<'a> {
    source: &'a str,
    repeat: Repeat,
    present: &'a [Id],
    left: &'a [Id],
    /// The number of people to list, and the id after which the list begins.
    limit: usize,
    after: Option<&'a Id>,
}

/// The reply of the script: ms until the next report or -1, the current time in ms, the version or "", the
/// number of people in the room, and the listed ids, each with the time last seen in ms.
type ScriptReply = (i64, String, String, usize, Vec<(String, String)>);

impl RedisStore {
    /// Creates the store. People of instances that are no longer in `fleet` leave.
    pub fn new(
        options: Options,
        redis: Redis,
        fleet: watch::Receiver<Fleet>,
        listener: Arc<dyn PresenceListener>,
    ) -> Self {
        let bus = redis.subscriber(Arc::new(BusListener { redis: redis.clone(), listener }));
        let [lease_ttl, key_ttl, batch_interval] =
            [options.user_ttl, options.hash_ttl, CHANGE_BATCH_INTERVAL]
                .map(|duration| millis(duration).to_string());
        let settings = [lease_ttl, key_ttl, MAX_LISTED.to_string(), batch_interval];
        Self { redis, fleet, bus, renewal_interval: options.user_ttl / RENEWALS_PER_LEASE, settings }
    }

    async fn run(&self, room: &Id, call: ScriptCall<'_>) -> Result<ScriptReply, Error> {
        let ScriptCall { source, repeat, present, left, limit, after } = call;
        let keys = self.keys(room);
        let [lease_ttl, key_ttl, max_listed, batch_interval] = &self.settings;
        let (seen_at, alive) = {
            let fleet = self.fleet.borrow();
            let alive: Vec<String> = fleet.alive.iter().map(|instance| instance.id.clone()).collect();
            (fleet.seen_at.to_string(), alive)
        };
        let channel = self.redis.sibling_key(&keys[0], CHANNEL_NAME);
        let after = after.map_or_else(|| "-".to_owned(), |id| format!("({:03}{id}", id.as_str().len()));
        let [instances, limit, people] = [alive.len(), limit, present.len()].map(|number| number.to_string());
        let head = [
            source,
            lease_ttl,
            key_ttl,
            &channel,
            max_listed,
            batch_interval,
            &seen_at,
            &instances,
            &limit,
            &after,
            &people,
        ];
        let arguments = head.into_iter().chain(alive.iter().map(String::as_str));
        let arguments = arguments.chain(present.iter().chain(left).map(Id::as_str));
        let arguments: Vec<&[u8]> = arguments.map(str::as_bytes).collect();
        parse(self.redis.run(&REPORT, repeat, &keys.each_ref().map(String::as_str), &arguments).await?)
    }

    /// Reads a page after all people whose leases have ended were removed, so that the count does not include them.
    async fn list(&self, room: &Id, after: Option<&Id>, limit: usize) -> Result<Occupants, Error> {
        let page_size = limit.min(MAX_PAGE_SIZE);
        for _ in 0..MAX_LIST_CALLS {
            let (source, limit) = (self.redis.instance(), page_size + 1);
            let call = ScriptCall { source, repeat: Repeat::Safe, present: &[], left: &[], limit, after };
            let (next_report_ms, at, version, count, mut people) = self.run(room, call).await?;
            if next_report_ms == 0 {
                continue;
            }
            let has_more = people.len() > page_size;
            people.truncate(page_size);
            let at: Millis = at.parse().map_err(|_| unexpected("the time is not a number"))?;
            let online = people.iter().filter_map(|(user, last_seen)| {
                // Another program may have written a field that is not a valid id.
                Some(Occupant { user: Id::new(user).ok()?, last_seen: last_seen.parse().ok()? })
            });
            let version = version.parse().unwrap_or_default();
            return Ok(Occupants { version, at, count, online: online.collect(), has_more });
        }
        Err(Error::Unavailable(
            "more presence leases are expiring than can be removed for this list".to_owned(),
        ))
    }

    /// The keys of the script: last seen, leases, the schedule of their ends, and the people in the order of lists.
    fn keys(&self, room: &Id) -> [String; 4] {
        let people = self.redis.key(format_args!("presence:{room}"));
        let [leases, schedule, order] =
            ["signs", "agenda", "order"].map(|name| self.redis.sibling_key(&people, name));
        [people, leases, schedule, order]
    }

    fn channel(&self, room: &Id) -> Channel {
        Channel::OfSlot(self.redis.sibling_key(&self.keys(room)[0], CHANNEL_NAME).into())
    }
}

impl PresenceStore for RedisStore {
    fn report(&self, room: &Id, present: &[Id], left: &[Id]) -> StoreFuture<'_, ReportOutcome> {
        let (room, present, left) = (room.clone(), present.to_vec(), left.to_vec());
        Box::pin(async move {
            // Not repeated here: the caller retries with the people who are present at that time.
            let (source, repeat) = (self.redis.instance(), Repeat::Never);
            let call = ScriptCall { source, repeat, present: &present, left: &left, limit: 0, after: None };
            let (next_report_ms, _, version, count, _) = self.run(&room, call).await?;
            let next_report_within = u64::try_from(next_report_ms).ok().map(Duration::from_millis);
            Ok(ReportOutcome { next_report_within, version: version.parse().ok(), count })
        })
    }

    fn heartbeat(&self, room: &Id, person: &Id) -> StoreFuture<'_, ()> {
        let (room, person) = (room.clone(), [person.clone()]);
        Box::pin(async move {
            let (source, repeat) = (HEARTBEAT_SOURCE, Repeat::Safe);
            let call = ScriptCall { source, repeat, present: &person, left: &[], limit: 0, after: None };
            self.run(&room, call).await?;
            Ok(())
        })
    }

    fn occupants(&self, room: &Id, after: Option<&Id>, limit: usize) -> StoreFuture<'_, Occupants> {
        let (room, after) = (room.clone(), after.cloned());
        Box::pin(async move { self.list(&room, after.as_ref(), limit).await })
    }

    fn subscribe(&self, room: &Id) -> StoreFuture<'_, ()> {
        let channel = self.channel(room);
        Box::pin(async move { Ok(self.bus.subscribe(channel).await?) })
    }

    fn unsubscribe(&self, room: &Id) {
        self.bus.unsubscribe(self.channel(room));
    }

    fn renewal_interval(&self) -> Option<Duration> {
        Some(self.renewal_interval)
    }
}

fn parse<T: FromRedisValue>(value: Value) -> Result<T, Error> {
    client::from_redis_value(value).map_err(|error| unexpected(&error.to_string()))
}

fn unexpected(reason: &str) -> Error {
    Error::Refused(format!("the reply of the presence script cannot be parsed: {reason}"))
}

impl From<bongsu_redis::Error> for Error {
    fn from(error: bongsu_redis::Error) -> Self {
        if error.is_transient() {
            Self::Unavailable(error.to_string())
        } else {
            Self::Refused(error.to_string())
        }
    }
}
