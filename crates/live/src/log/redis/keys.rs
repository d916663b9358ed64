//! Bounds the idempotency keys of all subjects together.
//!
//! A key is kept beside its subject's stream, in that slot (`append.lua`). Which keys are the oldest of all is noted in lists of
//! their own, after the publisher was answered; past the bound the keys of the oldest notes are dropped. Keys of a hub that was
//! killed before it noted them are not counted, and go when twice their life is over.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Millis, random};
use bongsu_redis::{Redis, Repeat, Script};
use futures_util::StreamExt;
use tokio::sync::mpsc;

use super::{KEY_STORES, stream_key, take};
use crate::SubjectName;
use crate::log::LogError;

static NOTE: Script = Script::new("note_keys", include_str!("../../../lua/note_keys.lua"));
static DROP: Script = Script::new("drop_keys", include_str!("../../../lua/drop_keys.lua"));

/// How long an answer is kept under its key, in milliseconds.
pub(super) const KEY_LIFE: Millis = 24 * 60 * 60 * 1_000;
/// A key is dropped so long after its life ended, in milliseconds: the clocks of other hubs may be behind.
const CLOCK_TOLERANCE: Millis = 60 * 60 * 1_000;
/// Lists of notes. Keys go to them in turn, so that all are equally long wherever a Cluster keeps them.
const LISTS: u64 = 16;
/// Keys that wait to be noted at most. Beyond it they are kept without a note.
const QUEUE_SIZE: usize = 65_536;
/// Keys noted in one turn.
const BATCH_SIZE: usize = 1_024;
/// Subjects whose keys are dropped at the same time.
const MAX_CONCURRENT_DROPS: usize = 32;

/// Notes the keys that this hub stores.
pub(super) struct KeyNotes(mpsc::Sender<StoredKey>);

struct StoredKey {
    subject: SubjectName,
    key: String,
    ends: Millis,
}

impl StoredKey {
    fn note(&self) -> String {
        format!("{} {} {}", self.ends, self.subject.as_str(), self.key)
    }

    fn read(note: &str) -> Option<Self> {
        let mut parts = note.splitn(3, ' ');
        let (ends, subject, key) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { subject: SubjectName::known(subject), key: key.to_owned(), ends: ends.parse().ok()? })
    }
}

impl KeyNotes {
    pub(super) fn start(redis: Redis, most_keys: u64, clock: Clock, supervisor: &Supervisor) -> Self {
        let per_list = most_keys.div_ceil(LISTS);
        let next_list = Arc::new(AtomicU64::new(random::between(0, LISTS - 1)));
        let queue = supervisor.queue("idempotency-keys", (QUEUE_SIZE, BATCH_SIZE), move |stored| {
            let (redis, next_list) = (redis.clone(), next_list.clone());
            let bound = KeyBound { redis, per_list, next_list, now: clock.now() };
            async move {
                if let Err(error) = bound.note(stored).await {
                    // Nothing is lost: these keys only go by themselves later.
                    tracing::debug!(%error, "idempotency keys could not be noted");
                }
            }
        });
        Self(queue)
    }

    /// Notes a key that was stored at this time.
    pub(super) fn note(&self, subject: &SubjectName, key: &str, at: Millis) {
        let stored = StoredKey { subject: subject.clone(), key: key.to_owned(), ends: at + KEY_LIFE };
        let _ = self.0.try_send(stored);
    }
}

/// One turn.
struct KeyBound {
    redis: Redis,
    per_list: u64,
    next_list: Arc<AtomicU64>,
    now: Millis,
}

impl KeyBound {
    async fn note(&self, stored: Vec<StoredKey>) -> Result<(), LogError> {
        let first = self.next_list.fetch_add(stored.len() as u64, Ordering::Relaxed);
        let mut lists: Vec<Vec<String>> = vec![Vec::new(); LISTS as usize];
        for (list, key) in (first..).zip(&stored) {
            lists[(list % LISTS) as usize].push(key.note());
        }
        // One server that is away does not keep the others from their turn.
        let mut failed = None;
        let mut dropped: HashMap<SubjectName, Vec<StoredKey>> = HashMap::new();
        for (list, notes) in lists.iter().enumerate().filter(|(_, notes)| !notes.is_empty()) {
            match self.note_in(list, notes).await {
                Ok(keys) => {
                    for key in keys {
                        dropped.entry(key.subject.clone()).or_default().push(key);
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        let dropping: Vec<_> = dropped.iter().map(|(subject, keys)| self.drop_keys(subject, keys)).collect();
        let mut dropping = futures_util::stream::iter(dropping).buffer_unordered(MAX_CONCURRENT_DROPS);
        let mut early = 0;
        while let Some(outcome) = dropping.next().await {
            match outcome {
                Ok(count) => early += count,
                Err(error) => failed = Some(error),
            }
        }
        if early > 0 {
            metrics::counter!("idempotency_keys_dropped_early_total").increment(early);
            let most = self.per_list * LISTS;
            tracing::warn!(early, most, "idempotency keys were dropped before their 24 hours");
        }
        failed.map_or(Ok(()), Err)
    }

    /// Gives the keys that have to go for these.
    async fn note_in(&self, list: usize, notes: &[String]) -> Result<Vec<StoredKey>, LogError> {
        let key = self.redis.key(format_args!("{{idempotency-keys:{list}}}"));
        let ended = self.now.saturating_sub(CLOCK_TOLERANCE).to_string();
        let (most, life) = (self.per_list.to_string(), (2 * KEY_LIFE).to_string());
        let mut arguments = vec![most.as_bytes(), ended.as_bytes(), life.as_bytes()];
        arguments.extend(notes.iter().map(String::as_bytes));
        let taken = self.redis.run(&NOTE, Repeat::Never, &[&key], &arguments).await?;
        Ok(take::<Vec<String>>(taken)?.iter().filter_map(|note| StoredKey::read(note)).collect())
    }

    async fn drop_keys(&self, subject: &SubjectName, keys: &[StoredKey]) -> Result<u64, LogError> {
        let stream = stream_key(&self.redis, subject);
        let [answers, expiries] = KEY_STORES.map(|name| self.redis.beside(&stream, name));
        let (now, ends) =
            (self.now.to_string(), keys.iter().map(|key| key.ends.to_string()).collect::<Vec<_>>());
        let mut arguments = vec![now.as_bytes()];
        for (key, ends) in keys.iter().zip(&ends) {
            arguments.extend([ends.as_bytes(), key.key.as_bytes()]);
        }
        take(self.redis.run(&DROP, Repeat::Safe, &[&answers, &expiries], &arguments).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_whatever_the_key_holds() {
        for key in ["k", " k ", "a b c", "키", "5 room:1 k"] {
            let subject = SubjectName::known("room:42");
            let note = StoredKey { subject: subject.clone(), key: key.to_owned(), ends: 7 }.note();
            let read = StoredKey::read(&note).unwrap();
            assert_eq!((read.subject, read.key.as_str(), read.ends), (subject, key, 7));
        }
    }
}
