//! The log in Redis, which a fleet shares, and the bus between its instances.
//!
//! An append is one script in one round trip: it stores the event in the stream of the subject and publishes it on a
//! channel of the same slot. The bus ([`bus`]) delivers the event to every instance that has subscribers, also to the
//! one that appended. The keys of a subject share a slot: `room:events:42` and its siblings `{room:events:42}:...`,
//! each after the prefix.

mod append;
mod audience;
mod bus;
mod event_trace;
mod follow_ups;
mod key_limit;
mod read;

use std::collections::BTreeMap;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Millis, StreamId, random};
use bongsu_redis::redis::{self, FromRedisValue, Value};
use bongsu_redis::{Error, PendingIndex, Redis, Repeat, Script};
use futures_util::future::join_all;

pub use bus::RedisBus;
pub use event_trace::trace_event;
pub use follow_ups::RedisFollowUps;

use self::key_limit::KeyNotes;
use super::{Append, AppendError, AppendOutcome, Log, LogError, LogFuture, LogPosition, Page, ReadLimits};
use crate::SubjectName;

static PURGE: Script = Script::new("purge", include_str!("../../lua/purge.lua"));
static MEMBERSHIP_VERSION: Script =
    Script::new("membership_version", include_str!("../../lua/membership_version.lua"));

/// The name of the list of follow-up records beside a stream, of the index of the subjects that have such a
/// list, and of the channel on which appends announce records.
const FOLLOW_UPS: &str = "follow-ups";
/// Names of two keys beside a stream: the answers by idempotency key, and the idempotency keys by expiry.
const IDEMPOTENCY_KEYS: [&str; 2] = ["answers", "expiries"];
/// Name of the key beside a stream that holds its membership version, a random number. The first read creates
/// it and a change deletes it, so that no version is used twice, even if a change is repeated or Redis loses
/// the key.
const MEMBERSHIP: &str = "membership";
/// Time after which a membership version that is not read expires, in milliseconds.
const MEMBERSHIP_LIFETIME: Millis = 24 * 60 * 60 * 1_000;
/// The channel beside a stream, on which its appends publish events.
const BUS: &str = "bus";

/// The log of a fleet.
pub struct RedisLog {
    redis: Redis,
    clock: Clock,
    keys: KeyNotes,
    /// The subjects that may have follow-up records.
    index: PendingIndex,
}

impl RedisLog {
    /// Keeps at most `max_keys` idempotency keys of all subjects together, also if that removes keys that have not
    /// expired.
    pub fn start(redis: Redis, max_keys: u64, clock: Clock, supervisor: &Supervisor) -> Self {
        let index = PendingIndex::new(redis.clone(), FOLLOW_UPS);
        index.start_mark_refresh(supervisor);
        let keys = KeyNotes::start(redis.clone(), max_keys, clock.clone(), supervisor);
        Self { redis, clock, keys, index }
    }
}

impl Log for RedisLog {
    fn append(&self, events: Vec<Append>) -> LogFuture<'_, Vec<Result<AppendOutcome, AppendError>>> {
        Box::pin(async move {
            // One call per subject: the order counts only within a subject, and subjects may be on different servers.
            let mut by_subject: BTreeMap<&SubjectName, Vec<usize>> = BTreeMap::new();
            for (at, event) in events.iter().enumerate() {
                by_subject.entry(&event.subject).or_default().push(at);
            }
            let appending = by_subject.values().map(async |indices| {
                let subject_events: Vec<&Append> = indices.iter().map(|at| &events[*at]).collect();
                self.append_to_subject(&subject_events).await
            });
            let outcomes = join_all(appending).await;
            let mut answers: Vec<_> =
                by_subject.values().flatten().copied().zip(outcomes.into_iter().flatten()).collect();
            answers.sort_by_key(|(at, _)| *at);
            let answers: Vec<_> = answers.into_iter().map(|(_, answer)| answer).collect();
            let is_final = |answer: &_| matches!(answer, Err(AppendError::Failed(_) | AppendError::Conflict));
            match &answers[..] {
                // No event is known to be stored and none is stale, so the error is returned for the whole batch.
                [Err(AppendError::Failed(error)), rest @ ..] if rest.iter().all(is_final) => {
                    Err(error.clone())
                }
                _ => Ok(answers),
            }
        })
    }

    fn read(&self, subject: &SubjectName, after: StreamId, limits: ReadLimits) -> LogFuture<'_, Page> {
        let subject = subject.clone();
        Box::pin(async move { read::page(&self.redis, &subject, after, limits).await })
    }

    fn head(&self, subject: &SubjectName) -> LogFuture<'_, LogPosition> {
        let subject = subject.clone();
        Box::pin(async move { read::head(&self.redis, &subject).await })
    }

    fn purge(&self, subject: &SubjectName) -> LogFuture<'_, ()> {
        let stream = stream_key(&self.redis, subject);
        Box::pin(async move {
            let [answers, expiries] = IDEMPOTENCY_KEYS.map(|name| self.redis.sibling_key(&stream, name));
            self.redis.run(&PURGE, Repeat::Safe, &[&stream, &answers, &expiries], &[]).await?;
            Ok(())
        })
    }

    fn membership_version(&self, subject: &SubjectName) -> LogFuture<'_, u64> {
        let key = self.redis.sibling_key(&stream_key(&self.redis, subject), MEMBERSHIP);
        Box::pin(async move {
            let (new, lifetime) =
                (random::between(0, u64::MAX - 1).to_string(), MEMBERSHIP_LIFETIME.to_string());
            let arguments = [new.as_bytes(), lifetime.as_bytes()];
            // Never repeated, because a repeated call could restore a version that was deleted meanwhile.
            decode(self.redis.run(&MEMBERSHIP_VERSION, Repeat::Never, &[&key], &arguments).await?)
        })
    }

    fn change_membership_version(&self, subject: &SubjectName) -> LogFuture<'_, ()> {
        let key = self.redis.sibling_key(&stream_key(&self.redis, subject), MEMBERSHIP);
        Box::pin(async move {
            self.redis.query("del", &key, redis::cmd("DEL").arg(&key), Repeat::Safe).await?;
            Ok(())
        })
    }

    fn outage(&self) -> Option<&'static str> {
        (!self.redis.is_connected()).then_some(
            "redis: some servers cannot be reached; rooms on those servers cannot be published to or read",
        )
    }
}

fn stream_key(redis: &Redis, subject: &SubjectName) -> String {
    let (kind, id) = subject.parts();
    redis.key(format_args!("{kind}:events:{id}"))
}

/// The channel on which the events of a stream are published, in the order of the stream.
fn bus_channel(redis: &Redis, stream: &str) -> String {
    redis.sibling_key(stream, BUS)
}

/// The channel on which appends of all subjects announce follow-up records.
fn follow_up_channel(redis: &Redis) -> String {
    redis.key(FOLLOW_UPS)
}

fn decode<T: FromRedisValue>(value: Value) -> Result<T, LogError> {
    redis::from_redis_value(value).map_err(|error| LogError::Failed(error.to_string()))
}

impl From<Error> for LogError {
    fn from(error: Error) -> Self {
        match error {
            Error::Unreachable(_) | Error::ReadOnly(_) => Self::Unavailable(error.to_string()),
            Error::Unanswered(_) => Self::Unanswered(error.to_string()),
            Error::Refused(_) => Self::Refused(error.to_string()),
            Error::UnknownScript | Error::Unexpected(_) => Self::Failed(error.to_string()),
        }
    }
}
