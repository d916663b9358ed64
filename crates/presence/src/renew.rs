//! Renewing: the loop that tells the store who is here, when they come and leave and every now and then, and looks
//! whose time is up.
//!
//! While the store is away it goes on trying, room by room; when the store is back, everybody here is told of again,
//! whatever it has forgotten meanwhile. When the hub ends in order its people leave; when it dies, the others look at
//! their rooms once it is no longer in the fleet.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use bongsu_coordination::registry::Fleet;
use bongsu_kernel::Id;
use bongsu_kernel::task::{OnEnd, Supervisor};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;

use crate::here::{BATCH, Work};
use crate::store::{Error, MOST_LISTED, Told};
use crate::{Inner, Presence};

/// So many rooms are looked at at the same time.
const AT_ONCE: usize = 512;
/// After the store could not be told, it is tried again; sooner where signs live shorter.
const AGAIN: Duration = Duration::from_secs(1);
/// Thousands of rooms fail together: that is said once in a while.
const COMPLAIN: Duration = Duration::from_secs(10);
/// After an instance was lost, all rooms are looked at within this.
const LOOK_SPREAD: Duration = Duration::from_secs(1);
/// Saying goodbye must not hold up the end of the process.
const GOODBYE: Duration = Duration::from_secs(2);

impl Presence {
    pub(crate) fn start_renewing(&self, supervisor: &Supervisor) {
        let (presence, stop) = (self.clone(), supervisor.stop());
        supervisor.spawn("presence", OnEnd::Restart, move || {
            let (presence, stop) = (presence.clone(), stop.clone());
            async move {
                let inner = &presence.0;
                tokio::select! {
                    () = stop.cancelled() => {
                        let _ = tokio::time::timeout(GOODBYE, inner.say_goodbye()).await;
                    }
                    () = inner.look_after_all() => {}
                }
            }
        });
    }

    /// Looks at all rooms when an instance is lost. When others gave up this one, `own`, everybody here is told of again.
    pub(crate) fn start_following(
        &self,
        own: String,
        fleet: watch::Receiver<Fleet>,
        supervisor: &Supervisor,
    ) {
        let (presence, stop) = (self.clone(), supervisor.stop());
        supervisor.spawn("presence-fleet", OnEnd::Restart, move || {
            let (here, own) = (presence.0.here.clone(), own.clone());
            let (mut fleet, stop) = (fleet.clone(), stop.clone());
            async move {
                let mut last = fleet.borrow_and_update().clone();
                while let Some(Ok(())) = stop.run_until_cancelled(fleet.changed()).await {
                    let seen = fleet.borrow_and_update().clone();
                    let ended: Vec<&str> = seen.ended_since(&last).map(|ended| ended.id.as_str()).collect();
                    if ended.contains(&own.as_str()) {
                        here.renew_all();
                    } else if !ended.is_empty() {
                        here.look_at_all(LOOK_SPREAD);
                    }
                    last = seen;
                }
                stop.cancelled().await;
            }
        });
    }
}

impl Inner {
    async fn look_after_all(&self) {
        self.here.begin_again();
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < AT_ONCE
                && let Some((room, is_first_look)) = self.here.take_due(Instant::now())
            {
                running.push(self.look_after(room, is_first_look));
            }
            let due = self.here.next_due().filter(|_| running.len() < AT_ONCE);
            let due = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(()) = running.next() => {}
                () = self.here.rung() => {}
                () = due => {}
            }
        }
    }

    /// One look at a room.
    async fn look_after(&self, room: Id, is_first_look: bool) {
        if is_first_look {
            // Before the store is told, so that a stream hears of its own coming. A room whose changes cannot be heard yet is
            // told of all the same: once they can, the room is in doubt, and is told as it is then.
            let _ = self.store.listen(&room).await;
        }
        let work = self.here.take_work(&room, self.store.renewal());
        let outcome = self.tell(&room, &work).await;
        let outcome = outcome.map_err(|error| {
            self.complain(&room, &error);
            AGAIN.min(self.options.user_ttl / 12)
        });
        if self.here.done(&room, work, outcome, || self.store.forget(&room)) {
            self.announcer.forget(&room);
        }
    }

    async fn tell(&self, room: &Id, work: &Work) -> Result<Told, Error> {
        let told = self.store.tell(room, &work.here, &work.gone).await?;
        // After the store was told: a new stream's snapshot includes its person.
        if self.here.has(room) && self.announcer.begin_asking(room) {
            let who = self.store.who(room, None, MOST_LISTED).await?;
            self.announcer.settle(room, who);
        }
        self.announcer.told(room, told);
        Ok(told)
    }

    fn complain(&self, room: &Id, error: &Error) {
        let mut last = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|at| at.elapsed() > COMPLAIN) {
            *last = Some(Instant::now());
            tracing::warn!(%room, %error, "who is here cannot be told, and is tried again");
        }
    }

    async fn say_goodbye(&self) {
        let told = self.here.everybody().into_iter().map(|(room, people)| async move {
            for batch in people.chunks(BATCH) {
                // Those who cannot be told of now are gone when their signs expire.
                let _ = self.store.tell(&room, &[], batch).await;
            }
        });
        futures_util::stream::iter(told).buffer_unordered(AT_ONCE).collect::<()>().await;
    }
}
