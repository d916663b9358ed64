//! The log in Redis, which a fleet of hubs shares, and the bus that joins them.
//!
//! An append is one script in one round trip: it stores the event in the subject's stream and publishes it on a
//! channel of the same slot. The bus ([`bus`]) hears it on every hub that has listeners, also on the one that
//! appended. Keys of a subject share its slot: `room:events:42` and helpers named `{room:events:42}:...`,
//! each after the prefix.

mod append;
mod audience;
mod bus;
mod follow_ups;
mod keys;
mod look;
mod read;

use std::collections::BTreeMap;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Millis, StreamId, random};
use bongsu_redis::redis::{self, FromRedisValue, Value};
use bongsu_redis::{Error, Index, Redis, Repeat, Script};
use futures_util::future::join_all;

pub use bus::RedisBus;
pub use follow_ups::RedisFollowUps;
pub use look::look;

use self::keys::KeyNotes;
use super::{Append, AppendError, Appended, Boxed, Log, LogError, Most, Page, Place};
use crate::SubjectName;

static PURGE: Script = Script::new("purge", include_str!("../../lua/purge.lua"));
static MEMBERSHIP_VERSION: Script =
    Script::new("membership_version", include_str!("../../lua/membership_version.lua"));

/// The list beside a stream, the index of those that have one, and the channel for news of them.
const FOLLOW_UPS: &str = "follow-ups";
/// Beside a stream: the answers kept under its idempotency keys, and the keys by the end of their life.
const KEY_STORES: [&str; 2] = ["answers", "expiries"];
/// Beside a stream: the version of its membership, a random number. It is made by whoever reads it first and removed by a change,
/// so that none ever comes back, also when a change is repeated or Redis has lost it.
const MEMBERSHIP: &str = "membership";
/// A version that nobody has read for so long is forgotten, in milliseconds.
const MEMBERSHIP_LIFE: Millis = 24 * 60 * 60 * 1_000;
/// The channel beside a stream.
const BUS: &str = "bus";

/// See the module.
pub struct RedisLog {
    redis: Redis,
    clock: Clock,
    keys: KeyNotes,
    /// Of subjects with follow-ups.
    index: Index,
}

impl RedisLog {
    /// Keeps at most so many idempotency keys, of all subjects together and whatever their age.
    pub fn start(redis: Redis, most_keys: u64, clock: Clock, supervisor: &Supervisor) -> Self {
        let index = Index::new(redis.clone(), FOLLOW_UPS);
        index.keep_marks(supervisor);
        let keys = KeyNotes::start(redis.clone(), most_keys, clock.clone(), supervisor);
        Self { redis, clock, keys, index }
    }
}

impl Log for RedisLog {
    fn append(&self, events: Vec<Append>) -> Boxed<'_, Result<Vec<Result<Appended, AppendError>>, LogError>> {
        Box::pin(async move {
            // Order counts within a subject; different ones may be on different servers.
            let mut by_subject: BTreeMap<&SubjectName, Vec<usize>> = BTreeMap::new();
            for (at, event) in events.iter().enumerate() {
                by_subject.entry(&event.subject).or_default().push(at);
            }
            let appending = by_subject.values().map(async |places| {
                let own: Vec<&Append> = places.iter().map(|at| &events[*at]).collect();
                self.append_to_subject(&own).await
            });
            let outcomes = join_all(appending).await;
            let mut answers: Vec<_> =
                by_subject.values().flatten().copied().zip(outcomes.into_iter().flatten()).collect();
            answers.sort_by_key(|(at, _)| *at);
            let answers: Vec<_> = answers.into_iter().map(|(_, answer)| answer).collect();
            match &answers[..] {
                // When nothing was appended, the error stands for all, unless some are to be appended again.
                [Err(AppendError::Failed(error)), rest @ ..]
                    if rest.iter().all(|answer| {
                        matches!(answer, Err(AppendError::Failed(_) | AppendError::Conflict))
                    }) =>
                {
                    Err(error.clone())
                }
                _ => Ok(answers),
            }
        })
    }

    fn read(&self, subject: &SubjectName, after: StreamId, most: Most) -> Boxed<'_, Result<Page, LogError>> {
        let subject = subject.clone();
        Box::pin(async move { read::page(&self.redis, &subject, after, most).await })
    }

    fn head(&self, subject: &SubjectName) -> Boxed<'_, Result<Place, LogError>> {
        let subject = subject.clone();
        Box::pin(async move { read::head(&self.redis, &subject).await })
    }

    fn purge(&self, subject: &SubjectName) -> Boxed<'_, Result<(), LogError>> {
        let stream = stream_key(&self.redis, subject);
        Box::pin(async move {
            let [answers, expiries] = KEY_STORES.map(|name| self.redis.beside(&stream, name));
            self.redis.run(&PURGE, Repeat::Safe, &[&stream, &answers, &expiries], &[]).await?;
            Ok(())
        })
    }

    fn membership_version(&self, subject: &SubjectName) -> Boxed<'_, Result<u64, LogError>> {
        let key = self.redis.beside(&stream_key(&self.redis, subject), MEMBERSHIP);
        Box::pin(async move {
            let (new, life) = (random::between(0, u64::MAX - 1).to_string(), MEMBERSHIP_LIFE.to_string());
            let arguments = [new.as_bytes(), life.as_bytes()];
            // Sent again, it could bring back a version that was removed meanwhile.
            take(self.redis.run(&MEMBERSHIP_VERSION, Repeat::Never, &[&key], &arguments).await?)
        })
    }

    fn change_membership_version(&self, subject: &SubjectName) -> Boxed<'_, Result<(), LogError>> {
        let key = self.redis.beside(&stream_key(&self.redis, subject), MEMBERSHIP);
        Box::pin(async move {
            self.redis.ask("del", &key, redis::cmd("DEL").arg(&key), Repeat::Safe).await?;
            Ok(())
        })
    }

    fn trouble(&self) -> Option<&'static str> {
        (!self.redis.is_connected()).then_some(
            "redis: not every server can be reached; what is kept there cannot be published to or read",
        )
    }
}

fn stream_key(redis: &Redis, subject: &SubjectName) -> String {
    let (family, id) = subject.parts();
    redis.key(format_args!("{family}:events:{id}"))
}

/// What is published on it follows the stream's order.
fn bus_channel(redis: &Redis, stream: &str) -> String {
    redis.beside(stream, BUS)
}

/// Whoever sees to follow-ups listens to it, wherever the stream is.
fn news_channel(redis: &Redis) -> String {
    redis.key(FOLLOW_UPS)
}

fn take<T: FromRedisValue>(value: Value) -> Result<T, LogError> {
    redis::from_redis_value(value).map_err(|error| LogError::Failed(error.to_string()))
}

impl From<Error> for LogError {
    fn from(error: Error) -> Self {
        match error {
            Error::Unreachable(_) | Error::ReadOnly(_) => Self::Away(error.to_string()),
            Error::Unanswered(_) => Self::Unanswered(error.to_string()),
            Error::Refused(_) => Self::Refused(error.to_string()),
            Error::UnknownScript | Error::Unexpected(_) => Self::Failed(error.to_string()),
        }
    }
}
