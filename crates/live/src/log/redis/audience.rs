//! The audience of a subject over the fleet: every instance stores the number of its subscribers in Redis, with an
//! expiry.
//!
//! A publish returns the sum. The sum is only an estimate, so an instance writes its numbers a moment after they
//! changed, together for all subjects that changed, and again before they expire.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, lock, shrink};
use bongsu_redis::{Redis, Repeat, Script};
use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::stream_key;
use crate::SubjectName;

static AUDIENCE: Script = Script::new("audience", include_str!("../../../lua/audience.lua"));

/// Time after which the number of an instance expires, in milliseconds.
const COUNT_LIFETIME: u64 = 60_000;
/// Time between two writes of a number that does not change.
const REFRESH_INTERVAL: Duration = Duration::from_secs(20);
/// How long changes are collected before they are written together.
const BATCH_DELAY: Duration = Duration::from_millis(10);
/// Subjects whose numbers are written at the same time.
const MAX_CONCURRENT_WRITES: usize = 64;

#[derive(Default)]
struct Counts {
    current: HashMap<SubjectName, usize>,
    changed: HashMap<SubjectName, usize>,
}

/// Writes this instance's number of subscribers per subject. Cheap to clone.
#[derive(Clone)]
pub(super) struct Audience {
    redis: Redis,
    clock: Clock,
    counts: Arc<Mutex<Counts>>,
    change_added: Arc<Notify>,
}

impl Audience {
    pub(super) fn start(redis: Redis, clock: Clock, supervisor: &Supervisor) -> Self {
        let this = Self { redis, clock, counts: Arc::default(), change_added: Arc::default() };
        let run = |audience: Self| async move { audience.run().await };
        supervisor.run_until_stop("audience", &this, run, |audience| async move { audience.clear().await });
        this
    }

    pub(super) fn set(&self, subject: &SubjectName, count: usize) {
        let mut counts = lock(&self.counts);
        if count == 0 {
            counts.current.remove(subject);
            shrink(&mut counts.current);
        } else {
            counts.current.insert(subject.clone(), count);
        }
        counts.changed.insert(subject.clone(), count);
        drop(counts);
        self.change_added.notify_one();
    }

    /// Sets the number of a subject without subscribers to 0. The number may still be 1: when two streams end at the
    /// same time, the one that was counted first may have reported its count last.
    pub(super) fn remove(&self, subject: &SubjectName) {
        if lock(&self.counts).current.contains_key(subject) {
            self.set(subject, 0);
        }
    }

    /// Writes the number of a subject's subscribers on this instance to Redis, without waiting for a batch.
    pub(super) async fn announce(&self, subject: SubjectName, count: usize) {
        {
            let mut counts = lock(&self.counts);
            counts.changed.remove(&subject);
            counts.current.insert(subject.clone(), count);
        }
        self.write(subject, count).await;
    }

    async fn run(&self) {
        let mut refresh_at = Instant::now() + REFRESH_INTERVAL;
        loop {
            if timeout_at(refresh_at, self.change_added.notified()).await.is_ok() {
                sleep(BATCH_DELAY).await;
            }
            let mut due = std::mem::take(&mut lock(&self.counts).changed);
            // Checked after every batch, because numbers that are not written again expire, even while others
            // change.
            if Instant::now() >= refresh_at {
                due.extend(lock(&self.counts).current.clone());
                refresh_at = Instant::now() + REFRESH_INTERVAL;
            }
            self.write_all(due).await;
        }
    }

    async fn write_all(&self, counts: HashMap<SubjectName, usize>) {
        let writes = counts.into_iter().map(|(subject, count)| self.write(subject, count));
        futures_util::stream::iter(writes).buffer_unordered(MAX_CONCURRENT_WRITES).collect::<()>().await;
    }

    async fn write(&self, subject: SubjectName, count: usize) {
        let key = self.redis.sibling_key(&stream_key(&self.redis, &subject), "audience");
        let (count, expiry, lifetime) =
            (count.to_string(), (self.clock.now() + COUNT_LIFETIME).to_string(), COUNT_LIFETIME.to_string());
        let arguments = [self.redis.instance(), &count, &expiry, &lifetime].map(str::as_bytes);
        // After a failure the next change or refresh writes the number; an old number expires.
        let _ = self.redis.run(&AUDIENCE, Repeat::Never, &[&key], &arguments).await;
    }

    /// Removes the numbers of this instance at shutdown, when its streams have ended.
    async fn clear(&self) {
        let zeros = {
            let mut counts = lock(&self.counts);
            std::mem::take(&mut counts.current).into_keys().map(|subject| (subject, 0)).collect()
        };
        self.write_all(zeros).await;
    }
}
