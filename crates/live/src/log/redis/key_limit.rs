//! Limits the number of idempotency keys of all subjects together.
//!
//! A key is stored beside the stream of its subject, in the slot of the stream (`append.lua`). After the
//! publisher was answered, a note (expiry, subject, key) is added to one of 16 lists, each in the order of
//! age. Above the limit, the oldest notes and their keys are removed. Keys of an instance that was killed
//! before it wrote the notes are not counted; such keys are removed when twice their lifetime is over.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Millis, random};
use bongsu_redis::{Redis, Repeat, Script};
use futures_util::StreamExt;
use tokio::sync::mpsc;

use super::{IDEMPOTENCY_KEYS, decode, stream_key};
use crate::SubjectName;
use crate::log::LogError;

static NOTE: Script = Script::new("note_keys", include_str!("../../../lua/note_keys.lua"));
static DROP: Script = Script::new("drop_keys", include_str!("../../../lua/drop_keys.lua"));

/// How long an answer is kept under its idempotency key, in milliseconds.
pub(super) const KEY_LIFETIME: Millis = 24 * 60 * 60 * 1_000;
/// Time between the expiry of a key and its removal, in milliseconds: clocks of other instances may be behind.
const CLOCK_TOLERANCE: Millis = 60 * 60 * 1_000;
/// Lists of notes, in different slots of a Cluster. Notes are added to the lists in turn, so that all are equally long.
const LIST_COUNT: u64 = 16;
/// Stored keys that wait for their note. Beyond that, keys get no note.
const QUEUE_SIZE: usize = 65_536;
/// Notes written together.
const BATCH_SIZE: usize = 1_024;
/// Subjects whose keys are removed at the same time.
const MAX_CONCURRENT_REMOVALS: usize = 32;

/// The queue of the keys that this instance has stored and that need a note.
pub(super) struct KeyNotes(mpsc::Sender<StoredKey>);

struct StoredKey {
    subject: SubjectName,
    key: String,
    expires_at: Millis,
}

impl StoredKey {
    fn to_note(&self) -> String {
        format!("{} {} {}", self.expires_at, self.subject.as_str(), self.key)
    }

    fn from_note(note: &str) -> Option<Self> {
        let mut parts = note.splitn(3, ' ');
        let expires_at = parts.next()?.parse().ok()?;
        let (subject, key) = (SubjectName::from_stored(parts.next()?), parts.next()?.to_owned());
        Some(Self { subject, key, expires_at })
    }
}

impl KeyNotes {
    pub(super) fn start(redis: Redis, max_keys: u64, clock: Clock, supervisor: &Supervisor) -> Self {
        let max_per_list = max_keys.div_ceil(LIST_COUNT);
        let next_list = Arc::new(AtomicU64::new(random::between(0, LIST_COUNT - 1)));
        let queue = supervisor.queue("idempotency-keys", (QUEUE_SIZE, BATCH_SIZE), move |stored| {
            let (redis, next_list) = (redis.clone(), next_list.clone());
            let writer = NoteWriter { redis, max_per_list, next_list, now: clock.now() };
            async move {
                if let Err(error) = writer.write(stored).await {
                    // Keys without a note are removed later, when twice their lifetime is over.
                    tracing::debug!(%error, "failed to count idempotency keys towards their limit; leaving them uncounted");
                }
            }
        });
        Self(queue)
    }

    /// Queues a key that was stored at this time.
    pub(super) fn note(&self, subject: &SubjectName, key: &str, at: Millis) {
        let stored =
            StoredKey { subject: subject.clone(), key: key.to_owned(), expires_at: at + KEY_LIFETIME };
        let _ = self.0.try_send(stored);
    }
}

/// Writes one batch of notes, and removes the keys whose notes the script has removed.
struct NoteWriter {
    redis: Redis,
    max_per_list: u64,
    next_list: Arc<AtomicU64>,
    now: Millis,
}

impl NoteWriter {
    async fn write(&self, stored: Vec<StoredKey>) -> Result<(), LogError> {
        let first = self.next_list.fetch_add(stored.len() as u64, Ordering::Relaxed);
        let mut lists: Vec<Vec<String>> = vec![Vec::new(); LIST_COUNT as usize];
        for (list, key) in (first..).zip(&stored) {
            lists[(list % LIST_COUNT) as usize].push(key.to_note());
        }
        // An unavailable server does not prevent writing to the others; the last error is returned.
        let mut failed = None;
        let mut to_remove: HashMap<SubjectName, Vec<StoredKey>> = HashMap::new();
        for (list, notes) in lists.iter().enumerate().filter(|(_, notes)| !notes.is_empty()) {
            match self.write_to_list(list, notes).await {
                Ok(keys) => {
                    for key in keys {
                        to_remove.entry(key.subject.clone()).or_default().push(key);
                    }
                }
                Err(error) => failed = Some(error),
            }
        }
        let removals: Vec<_> =
            to_remove.iter().map(|(subject, keys)| self.remove_keys(subject, keys)).collect();
        let mut removals = futures_util::stream::iter(removals).buffer_unordered(MAX_CONCURRENT_REMOVALS);
        let mut removed = 0;
        while let Some(outcome) = removals.next().await {
            match outcome {
                Ok(count) => removed += count,
                Err(error) => failed = Some(error),
            }
        }
        if removed > 0 {
            metrics::counter!("idempotency_keys_dropped_early_total").increment(removed);
            let max_keys = self.max_per_list * LIST_COUNT;
            tracing::warn!(
                removed,
                max_keys,
                "the number of idempotency keys exceeded the limit; removed the oldest before they expired"
            );
        }
        failed.map_or(Ok(()), Err)
    }

    /// Adds notes to a list. Returns the keys whose notes were removed from it.
    async fn write_to_list(&self, list: usize, notes: &[String]) -> Result<Vec<StoredKey>, LogError> {
        let key = self.redis.key(format_args!("{{idempotency-keys:{list}}}"));
        let expired_before = self.now.saturating_sub(CLOCK_TOLERANCE).to_string();
        let (max_notes, lifetime) = (self.max_per_list.to_string(), (2 * KEY_LIFETIME).to_string());
        let mut arguments = vec![max_notes.as_bytes(), expired_before.as_bytes(), lifetime.as_bytes()];
        arguments.extend(notes.iter().map(String::as_bytes));
        let removed = self.redis.run(&NOTE, Repeat::Never, &[&key], &arguments).await?;
        let notes = decode::<Vec<String>>(removed)?;
        Ok(notes.iter().filter_map(|note| StoredKey::from_note(note)).collect())
    }

    /// Removes keys of one subject. Returns how many of them had not expired.
    async fn remove_keys(&self, subject: &SubjectName, keys: &[StoredKey]) -> Result<u64, LogError> {
        let stream = stream_key(&self.redis, subject);
        let [answers, expiries] = IDEMPOTENCY_KEYS.map(|name| self.redis.sibling_key(&stream, name));
        let now = self.now.to_string();
        let expiries_of_keys: Vec<String> = keys.iter().map(|key| key.expires_at.to_string()).collect();
        let mut arguments = vec![now.as_bytes()];
        for (key, expiry) in keys.iter().zip(&expiries_of_keys) {
            arguments.extend([expiry.as_bytes(), key.key.as_bytes()]);
        }
        decode(self.redis.run(&DROP, Repeat::Safe, &[&answers, &expiries], &arguments).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_back_whatever_the_key_contains() {
        for key in ["k", " k ", "a b c", "키", "5 room:1 k"] {
            let subject = SubjectName::from_stored("room:42");
            let note = StoredKey { subject: subject.clone(), key: key.to_owned(), expires_at: 7 }.to_note();
            let read = StoredKey::from_note(&note).unwrap();
            assert_eq!((read.subject, read.key.as_str(), read.expires_at), (subject, key, 7));
        }
    }
}
