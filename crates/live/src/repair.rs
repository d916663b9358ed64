//! Repairs ring buffers: reads the entries that a ring buffer lacks from the log.
//!
//! A ring buffer is marked stale when a pushed entry does not follow the last one, when the bus may have lost messages,
//! and when its end differs from the head of the log; ends and heads are compared every few seconds. A repair reads the
//! log once for all readers of a subject. If a repair cannot fill the gap, every reader reads the log by itself.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bongsu_kernel::random;
use bongsu_kernel::task::Supervisor;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::hub::Hub;
use crate::log::{LogError, ReadLimits, StartPosition};
use crate::message::Item;
use crate::ring::{PushOutcome, RingEntry};
use crate::source::SubjectKind;
use crate::subject::Subject;
use crate::sync::Arc;
use crate::{LogPosition, SubjectName};

/// Time between two comparisons of ring buffers with the heads of their logs.
const COMPARE_INTERVAL: Duration = Duration::from_secs(4);
/// Subjects repaired at the same time.
const MAX_CONCURRENT_REPAIRS: usize = 64;
/// Subjects whose heads are read by one call.
const COMPARE_BATCH_SIZE: usize = 512;
/// The size of the page that fills a gap.
const PAGE_LIMITS: ReadLimits = ReadLimits { entries: 256, bytes: 256 << 10 };
/// Delay after a failed read of the log.
const RETRY_DELAY: Duration = Duration::from_millis(500);

impl Hub {
    /// Queues a subject for comparison with its log.
    pub(crate) fn mark_subject_stale(&self, name: &SubjectName, subject: &Subject) {
        if subject.mark_stale() {
            // Cannot fail: the loop that receives lives as long as the hub.
            let _ = self.0.stale_sender.send(name.clone());
        }
    }

    pub(crate) fn start_repair(&self, supervisor: &Supervisor) {
        supervisor.run("repair", self, |hub| async move { hub.repair_all().await });
        supervisor.every("compare", COMPARE_INTERVAL, self, |hub| async move { hub.compare_all().await });
    }

    async fn repair_all(&self) {
        let mut queue = self.0.stale_receiver.lock().await;
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(name) = queue.recv(), if running.len() < MAX_CONCURRENT_REPAIRS => running.push(self.repair(name)),
                Some(()) = running.next() => {}
            }
        }
    }

    /// Repairs a subject until it was not marked stale during the last repair.
    async fn repair(&self, name: SubjectName) {
        while let Some(subject) = self.0.subject(&name) {
            if !subject.begin_repair() {
                return;
            }
            metrics::counter!("bus_repairs_total").increment(1);
            if let Err(error) = self.fill(&name, &subject).await {
                // At debug level, because every subject logs this line twice a second. The outage itself is
                // logged once elsewhere.
                tracing::debug!(subject = ?name, %error, "failed to compare a subject with its log; retrying");
                tokio::time::sleep(RETRY_DELAY).await;
                subject.mark_stale();
            }
        }
    }

    /// Fills the gap between the ring buffer and the head of the log.
    async fn fill(&self, name: &SubjectName, subject: &Arc<Subject>) -> Result<(), LogError> {
        let (last, source) = (subject.last(), self.0.subject_kind(name)?.source);
        let page = source.read(name, last.id, PAGE_LIMITS).await?;
        self.wait_for_revocations().await?;
        if page.start != StartPosition::Known || page.more {
            // More is missing than one page holds, or the log does not know the last position of the ring buffer.
            tracing::info!(subject = ?name, start = ?page.start, "failed to fill the gap of a ring buffer from one page of the log; its streams read the log");
            subject.restart_at(page.head, &self.0.wake_queues);
            // The held messages are released after the restart, because the restart empties the ring buffer.
            subject.release_held(&self.0.wake_queues);
            return Ok(());
        }
        subject.release_held(&self.0.wake_queues);
        let mut previous = last.id;
        for item in page.entries {
            let position = item.position;
            let entry = RingEntry::new(item, Instant::now());
            // Entries that arrived over the bus meanwhile are already known.
            if subject.push(previous, entry, &self.0.wake_queues) == PushOutcome::Gap {
                subject.mark_stale();
                return Ok(());
            }
            previous = position.id;
        }
        if page.head.id > previous {
            // The log has no further message between the last entry and the head.
            let end = RingEntry::new(Item::without_message(page.head), Instant::now());
            subject.push(previous, end, &self.0.wake_queues);
        }
        Ok(())
    }

    async fn compare_all(&self) {
        let mut by_kind: HashMap<String, Vec<(SubjectName, Arc<Subject>)>> = HashMap::new();
        for (name, subject) in self.0.subscribed_subjects() {
            by_kind.entry(name.parts().0.to_owned()).or_default().push((name, subject));
        }
        for mut subjects in by_kind.into_values() {
            // Start at a random subject, so that the same ones are not always the last.
            let start = random::between(0, subjects.len().max(1) as u64 - 1);
            subjects.rotate_left(usize::try_from(start).unwrap_or_default());
            for batch in subjects.chunks(COMPARE_BATCH_SIZE) {
                if self.compare(batch).await.is_err() {
                    // The log is unavailable; the next comparison tries again.
                    break;
                }
            }
        }
    }

    /// Compares ring buffers of one subject kind with the heads of their logs.
    async fn compare(&self, subjects: &[(SubjectName, Arc<Subject>)]) -> Result<(), LogError> {
        let settled =
            subjects.iter().filter_map(|(name, subject)| Some((name, subject, subject.settled_position()?)));
        let settled: Vec<_> = settled.collect();
        let Some((first, ..)) = settled.first() else { return Ok(()) };
        let SubjectKind { source, bus } = self.0.subject_kind(first)?;
        if bus.is_none() && source.has_reliable_delivery() {
            return Ok(());
        }
        let names: Vec<SubjectName> = settled.iter().map(|(name, ..)| (*name).clone()).collect();
        let heads = source.heads(&names).await;
        for ((name, subject, last), head) in settled.into_iter().zip(heads) {
            match head {
                // An entry that is still on its way over the bus causes a harmless repair.
                Ok(head) if differs(head, last, subject.last()) => self.mark_subject_stale(name, subject),
                Err(error) if error.is_transient() => return Err(error),
                // After an error about one subject, the other subjects are still compared.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Whether the head is outside the ends that the ring buffer had before and after the query.
fn differs(head: LogPosition, before: LogPosition, after: LogPosition) -> bool {
    head.id < before.id || head.id > after.id
}
