//! How many streams listen to a subject over the fleet: every hub says how many it has, for a while.
//!
//! A publisher is told the sum. It is an estimate for people, so a hub says it a moment later, together for all
//! subjects that changed, and again before it runs out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_kernel::{Clock, shrink};
use bongsu_redis::{Redis, Repeat, Script};
use futures_util::StreamExt;
use tokio::sync::Notify;

use super::stream_key;
use crate::SubjectName;

static AUDIENCE: Script = Script::new("audience", include_str!("../../../lua/audience.lua"));

/// How long a hub's word is good, in milliseconds, and when it is said again.
const LIFE: u64 = 60_000;
const REFRESH: Duration = Duration::from_secs(20);
/// Changes are gathered so long.
const GATHER: Duration = Duration::from_millis(10);
const AT_ONCE: usize = 64;

#[derive(Default)]
struct Counts {
    current: HashMap<SubjectName, usize>,
    changed: HashMap<SubjectName, usize>,
}

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Audience {
    redis: Redis,
    clock: Clock,
    counts: Arc<Mutex<Counts>>,
    bell: Arc<Notify>,
}

impl Audience {
    pub(super) fn start(redis: Redis, clock: Clock, supervisor: &Supervisor) -> Self {
        let this = Self { redis, clock, counts: Arc::default(), bell: Arc::default() };
        let (teller, stop) = (this.clone(), supervisor.stop());
        supervisor.spawn("audience", OnEnd::Restart, move || {
            let (teller, stop) = (teller.clone(), stop.clone());
            async move {
                tokio::select! {
                    () = stop.cancelled() => teller.leave().await,
                    () = teller.tell_for_ever() => {}
                }
            }
        });
        this
    }

    pub(super) fn set(&self, subject: &SubjectName, count: usize) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if count == 0 {
            counts.current.remove(subject);
            shrink(&mut counts.current);
        } else {
            counts.current.insert(subject.clone(), count);
        }
        counts.changed.insert(subject.clone(), count);
        drop(counts);
        self.bell.notify_one();
    }

    /// Nobody here listens to a subject any more. Of two streams that leave together, the one that counted first may have
    /// told its count last.
    pub(super) fn forget(&self, subject: &SubjectName) {
        if self.counts.lock().unwrap_or_else(PoisonError::into_inner).current.contains_key(subject) {
            self.set(subject, 0);
        }
    }

    pub(super) async fn announce(&self, subject: SubjectName, count: usize) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).current.insert(subject.clone(), count);
        self.tell_one(subject, count).await;
    }

    async fn tell_for_ever(&self) {
        let mut refresh = Instant::now() + REFRESH;
        loop {
            let changed = tokio::time::timeout_at(refresh.into(), self.bell.notified()).await.is_ok();
            let due = if changed {
                tokio::time::sleep(GATHER).await;
                std::mem::take(&mut self.counts.lock().unwrap_or_else(PoisonError::into_inner).changed)
            } else {
                refresh = Instant::now() + REFRESH;
                self.counts.lock().unwrap_or_else(PoisonError::into_inner).current.clone()
            };
            self.tell(due).await;
        }
    }

    async fn tell(&self, counts: HashMap<SubjectName, usize>) {
        let told = counts.into_iter().map(|(subject, count)| self.tell_one(subject, count));
        futures_util::stream::iter(told).buffer_unordered(AT_ONCE).collect::<()>().await;
    }

    async fn tell_one(&self, subject: SubjectName, count: usize) {
        let key = self.redis.beside(&stream_key(&self.redis, &subject), "audience");
        let (count, ends, life) =
            (count.to_string(), (self.clock.now() + LIFE).to_string(), LIFE.to_string());
        let arguments = [self.redis.instance(), &count, &ends, &life].map(str::as_bytes);
        // What does not arrive is said again with the next change, or at the next turn.
        let _ = self.redis.run(&AUDIENCE, Repeat::Never, &[&key], &arguments).await;
    }

    /// The streams of this hub have gone.
    async fn leave(&self) {
        let gone = {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut counts.current).into_keys().map(|subject| (subject, 0)).collect()
        };
        self.tell(gone).await;
    }
}
