//! A cache of unread states and settings in Redis, for reads while the records are unavailable: a string
//! `unread_count:<id>` and a hash `notif:settings:<id>` per person.
//!
//! Every read tries the records first, so an outdated value is returned only during an outage of the database. Unread
//! states are stored in the background in batches, so that no request waits for the cache.

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, Outage};
use bongsu_redis::redis::{FromRedisValue, cmd};
use bongsu_redis::{Redis, Repeat, Script};
use bongsu_sql::Error;
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::marks::redis::read;
use crate::settings::Settings;
use crate::{Inbox, UnreadState};

static STORE_UNREAD_STATE: Script =
    Script::new("unread_remember", include_str!("../lua/store_unread_state.lua"));
static SUBTRACT_ONE_UNREAD: Script =
    Script::new("unread_one_read", include_str!("../lua/subtract_one_unread.lua"));
static STORE_SETTINGS: Script = Script::new("settings_keep", include_str!("../lua/store_settings.lua"));

/// Expiry of a cached unread state: one day, in milliseconds.
const UNREAD_STATE_TTL_MS: &[u8] = b"86400000";
/// Expiry of cached settings: one hour, in seconds.
const SETTINGS_TTL_SECS: &[u8] = b"3600";

/// Unread states that wait to be stored. When the queue is full, a new state is not cached.
const QUEUE_SIZE: usize = 4_096;
/// Unread states stored at the same time.
const BATCH_SIZE: usize = 64;

/// Unread states and settings in Redis. A lost value only means that a read fails while the records are unavailable.
pub struct Cache {
    redis: Redis,
    queue: mpsc::Sender<(Id, UnreadState)>,
}

impl Cache {
    pub fn start(redis: Redis, supervisor: &Supervisor) -> Self {
        let writer = redis.clone();
        let queue = supervisor
            .queue("inbox-cache", (QUEUE_SIZE, BATCH_SIZE), move |batch| store_batch(writer.clone(), batch));
        Self { redis, queue }
    }

    fn settings_key(&self, person: &Id) -> String {
        self.redis.key(format_args!("notif:settings:{person}"))
    }

    async fn query<T: FromRedisValue>(&self, name: &'static str, key: &str) -> Result<T, Outage> {
        read(self.redis.query(name, key, cmd(name).arg(key), Repeat::Safe).await?)
    }

    /// Queues an unread state to be stored, unless the cached one is newer. The state is dropped when the queue is
    /// full.
    pub(crate) fn store_later(&self, person: &Id, state: UnreadState) {
        let _ = self.queue.try_send((person.clone(), state));
    }

    async fn unread_state(&self, person: &Id) -> Result<Option<UnreadState>, Outage> {
        let cached: Option<String> = self.query("get", &unread_state_key(&self.redis, person)).await?;
        Ok(cached.as_deref().and_then(parse_unread_state))
    }

    /// Subtracts one from the cached unread count, because an entry has a new buffered mark.
    pub(crate) async fn subtract_one_unread(&self, person: &Id) -> Result<(), Outage> {
        // Not repeated: a repeated call would subtract the entry twice.
        self.redis
            .run(&SUBTRACT_ONE_UNREAD, Repeat::Never, &[&unread_state_key(&self.redis, person)], &[])
            .await?;
        Ok(())
    }

    pub(crate) async fn store_settings(&self, person: &Id, settings: &Settings) -> Result<(), Outage> {
        let invalid = |_| Outage("the settings cannot be serialized".to_owned());
        let Value::Object(fields) = serde_json::to_value(settings).map_err(invalid)? else {
            return Ok(());
        };
        let fields: Vec<[String; 2]> =
            fields.into_iter().map(|(name, value)| [name, value.to_string()]).collect();
        let mut arguments = vec![SETTINGS_TTL_SECS];
        arguments.extend(fields.iter().flatten().map(String::as_bytes));
        self.redis.run(&STORE_SETTINGS, Repeat::Safe, &[&self.settings_key(person)], &arguments).await?;
        Ok(())
    }

    pub(crate) async fn settings(&self, person: &Id) -> Result<Option<Settings>, Outage> {
        let fields: Vec<(String, String)> = self.query("hgetall", &self.settings_key(person)).await?;
        let fields: Option<Map<String, Value>> = fields
            .into_iter()
            .map(|(name, value)| Some((name, serde_json::from_str(&value).ok()?)))
            .collect();
        // When another program wrote a field in another format, all cached settings are ignored.
        let cached = fields.filter(|fields| !fields.is_empty());
        Ok(cached.and_then(|fields| serde_json::from_value(Value::Object(fields)).ok()))
    }

    /// Removes the cached settings, because they were changed in the records.
    pub(crate) async fn remove_settings(&self, person: &Id) -> Result<(), Outage> {
        self.query::<i64>("del", &self.settings_key(person)).await.map(drop)
    }
}

fn unread_state_key(redis: &Redis, person: &Id) -> String {
    redis.key(format_args!("unread_count:{person}"))
}

async fn store_batch(redis: Redis, batch: Vec<(Id, UnreadState)>) {
    let redis = &redis;
    let writing = batch.into_iter().map(|(person, state)| async move {
        let UnreadState { last_seq, unread, version } = state;
        let numbers = [unread, version, last_seq].map(|number| number.to_string());
        let [unread, version, last] = numbers.each_ref().map(String::as_bytes);
        let (key, arguments) =
            (unread_state_key(redis, &person), [unread, version, last, UNREAD_STATE_TTL_MS]);
        // A failure is ignored: the cached state is read only while the records are unavailable.
        let _ = redis.run(&STORE_UNREAD_STATE, Repeat::Safe, &[&key], &arguments).await;
    });
    futures_util::future::join_all(writing).await;
}

/// Parses the text that `store_unread_state.lua` writes: unread count, version and last sequence number.
fn parse_unread_state(text: &str) -> Option<UnreadState> {
    let mut numbers = text.split(' ').map(|number| number.parse().ok());
    let (unread, version, last_seq) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(UnreadState { last_seq, unread, version })
}

/// A person's unread state, and where it was read from. Devices are sent only a current one: any other count could have
/// the version of a different count that they have.
pub(crate) enum StateReading {
    /// From the records, with the buffered marks applied.
    Current(UnreadState),
    /// From the records, because the buffered marks cannot be read.
    WithoutMarks(UnreadState),
    /// From the cache, because the records are unavailable.
    Cached(UnreadState),
}

impl Inbox {
    /// Reads the unread state from the records and caches it. While the records are unavailable, returns the cached
    /// state.
    pub(crate) async fn read_state(&self, person: &Id) -> Result<StateReading, Error> {
        let found = self.recorded_state(person).await;
        if let (Ok(StateReading::Current(state)), Some(cache)) = (&found, self.cache()) {
            cache.store_later(person, *state);
        }
        match found {
            Err(error) if error.is_transient() => {
                self.cached_state(person).await.map(StateReading::Cached).ok_or(error)
            }
            found => found,
        }
    }

    /// The unread state that was cached last. None when no state is cached, or when the cache cannot be read.
    pub(crate) async fn cached_state(&self, person: &Id) -> Option<UnreadState> {
        self.cache()?.unread_state(person).await.ok().flatten()
    }
}
