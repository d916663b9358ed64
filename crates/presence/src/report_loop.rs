//! The loop that reports the people on this instance to the store: when they join and leave, and regularly to renew
//! their leases. Every report also lets the store remove people of the room whose leases have expired.
//!
//! While the store is unavailable, the reports of each room are retried; once it is back, all people are reported
//! again, because the store may have lost their leases. An instance that shuts down reports its people as left. When
//! an instance is lost, the others report their rooms, and the store removes its people.

use std::time::{Duration, Instant};

use bongsu_coordination::registry::Fleet;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, lock};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;

use crate::local_presence::{MAX_PEOPLE_PER_REPORT, Report};
use crate::store::{Error, MAX_LISTED, ReportOutcome};
use crate::{Inner, Presence};

/// Maximum number of rooms that are reported at the same time.
const MAX_CONCURRENT_REPORTS: usize = 512;
/// The delay before a failed report is retried; a twelfth of `PRESENCE_USER_TTL_SECS` where that is shorter.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);
/// The time between two log lines about failed reports, because thousands of rooms fail together.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// After an instance was lost, all rooms are reported within this time.
const REPORT_SPREAD: Duration = Duration::from_secs(1);
/// Reporting the people as left delays the shutdown by at most this time.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

impl Presence {
    pub(crate) fn start_report_loop(&self, supervisor: &Supervisor) {
        let run = |presence: Self| async move { presence.0.run_reports().await };
        supervisor.run_until_stop("presence", self, run, |presence| async move {
            let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, presence.0.report_all_left()).await;
        });
    }

    /// Reports all rooms when an instance was lost from the fleet. When this instance, `own`, was lost
    /// itself, all its people are reported again, because other instances may have removed them.
    pub(crate) fn start_fleet_watch(
        &self,
        own: String,
        fleet: watch::Receiver<Fleet>,
        supervisor: &Supervisor,
    ) {
        let state = (self.0.local.clone(), own, fleet);
        supervisor.run("presence-fleet", &state, |(local, own, mut fleet)| async move {
            let mut last = fleet.borrow_and_update().clone();
            while fleet.changed().await.is_ok() {
                let current = fleet.borrow_and_update().clone();
                let lost: Vec<&str> = current.ended_since(&last).map(|lost| lost.id.as_str()).collect();
                if lost.contains(&own.as_str()) {
                    local.renew_all();
                } else if !lost.is_empty() {
                    local.schedule_all(REPORT_SPREAD);
                }
                last = current;
            }
            std::future::pending::<()>().await;
        });
    }
}

impl Inner {
    async fn run_reports(&self) {
        self.local.recover();
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < MAX_CONCURRENT_REPORTS
                && let Some((room, is_first)) = self.local.begin_due_report(Instant::now())
            {
                running.push(self.report_room(room, is_first));
            }
            let due = self.local.next_due().filter(|_| running.len() < MAX_CONCURRENT_REPORTS);
            let due = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(()) = running.next() => {}
                () = self.local.schedule_changed() => {}
                () = due => {}
            }
        }
    }

    async fn report_room(&self, room: Id, is_first: bool) {
        if is_first {
            // Before the report, so that a new stream receives the announcement of its own person. A room that cannot
            // be subscribed to now is reported all the same, and becomes stale once it is subscribed.
            let _ = self.store.subscribe(&room).await;
        }
        let report = self.local.take_report(&room, self.store.renewal_interval());
        let outcome = self.send(&room, &report).await.map_err(|error| {
            self.log_failure(&room, &error);
            MAX_RETRY_DELAY.min(self.options.user_ttl / 12)
        });
        if self.local.finish_report(&room, report, outcome, || self.store.unsubscribe(&room)) {
            self.announcer.remove(&room);
        }
    }

    async fn send(&self, room: &Id, report: &Report) -> Result<ReportOutcome, Error> {
        let outcome = self.store.report(room, &report.present, &report.left).await?;
        // After the report, so that the snapshot of a new stream includes its own person.
        if self.local.has_streams(room) && self.announcer.begin_refresh(room) {
            let occupants = self.store.occupants(room, None, MAX_LISTED).await?;
            self.announcer.finish_refresh(room, occupants);
        }
        self.announcer.apply_outcome(room, outcome);
        Ok(outcome)
    }

    fn log_failure(&self, room: &Id, error: &Error) {
        let mut last = lock(&self.last_failure_log);
        if last.is_none_or(|at| at.elapsed() > FAILURE_LOG_INTERVAL) {
            *last = Some(Instant::now());
            tracing::warn!(%room, %error, "failed to report or read the people in a room; retrying");
        }
    }

    async fn report_all_left(&self) {
        let reports = self.local.take_all().into_iter().map(|(room, people)| async move {
            for batch in people.chunks(MAX_PEOPLE_PER_REPORT) {
                // People who cannot be reported are removed when their leases expire.
                let _ = self.store.report(&room, &[], batch).await;
            }
        });
        futures_util::stream::iter(reports).buffer_unordered(MAX_CONCURRENT_REPORTS).collect::<()>().await;
    }
}
