//! Repairing rings: what the bus lost is read from the log.
//!
//! A ring is in doubt when a frame does not follow on, when the bus says that it may have lost something, and, to be
//! sure, when its end differs from the log's, which is compared every few seconds. The log is read once for all
//! readers of a subject; only when that cannot fill the gap does every reader go through the log by itself.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bongsu_kernel::random;
use bongsu_kernel::task::Supervisor;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::hub::Hub;
use crate::log::{LogError, Most, Start};
use crate::message::Item;
use crate::ring::{Pushed, RingEntry};
use crate::source::Family;
use crate::subject::Subject;
use crate::sync::Arc;
use crate::{Place, SubjectName};

/// Ends are compared so often.
const COMPARE: Duration = Duration::from_secs(4);
/// So many subjects are repaired at the same time.
const AT_ONCE: usize = 64;
/// So many subjects are asked about at once.
const COMPARED: usize = 512;
/// What is read at once to fill a gap.
const PAGE: Most = Most { entries: 256, bytes: 256 << 10 };
/// After the log could not be read, it is tried again.
const AGAIN: Duration = Duration::from_millis(500);

impl Hub {
    /// Has a subject compared with the log, soon.
    pub(crate) fn doubt_subject(&self, name: &SubjectName, subject: &Subject) {
        if subject.doubt() {
            // The loop that takes them lives as long as the hub.
            let _ = self.0.doubts.send(name.clone());
        }
    }

    pub(crate) fn start_repair(&self, supervisor: &Supervisor) {
        supervisor.run("repair", self, |hub| async move { hub.repair_all().await });
        supervisor.every("compare", COMPARE, self, |hub| async move { hub.compare_all().await });
    }

    async fn repair_all(&self) {
        let mut queue = self.0.doubted.lock().await;
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(name) = queue.recv(), if running.len() < AT_ONCE => running.push(self.repair(name)),
                Some(()) = running.next() => {}
            }
        }
    }

    /// Until a whole look at the log was not disturbed by a new doubt.
    async fn repair(&self, name: SubjectName) {
        while let Some(subject) = self.0.subject(&name) {
            if !subject.begin_repair() {
                return;
            }
            metrics::counter!("bus_repairs_total").increment(1);
            if let Err(error) = self.fill(&name, &subject).await {
                // For every room, twice a second: that the engine is away is said elsewhere, once.
                tracing::debug!(subject = ?name, %error, "a room could not be compared with its log");
                tokio::time::sleep(AGAIN).await;
                subject.doubt();
            }
        }
    }

    /// Reads what the ring does not have.
    async fn fill(&self, name: &SubjectName, subject: &Arc<Subject>) -> Result<(), LogError> {
        let (last, source) = (subject.last(), self.0.family(name)?.source);
        let page = source.read(name, last.id, PAGE).await?;
        self.pass_gate().await?;
        subject.pass_held(&self.0.inboxes);
        if page.start != Start::Known || page.more {
            // Too much is missing, or the log is not the one that the ring came from.
            tracing::info!(subject = ?name, start = ?page.start, "the streams of a room go through its log");
            subject.restart_at(page.head, &self.0.inboxes);
            return Ok(());
        }
        let mut previous = last.id;
        for item in page.entries {
            let place = item.place;
            let entry = RingEntry::new(item, Instant::now());
            // What came over the bus meanwhile is known already.
            if subject.push(previous, entry, &self.0.inboxes) == Pushed::Gap {
                subject.doubt();
                return Ok(());
            }
            previous = place.id;
        }
        if page.head.id > previous {
            // What follows up to there is nothing to be told of.
            let end = RingEntry::new(Item::silent(page.head), Instant::now());
            subject.push(previous, end, &self.0.inboxes);
        }
        Ok(())
    }

    async fn compare_all(&self) {
        let mut families: HashMap<String, Vec<(SubjectName, Arc<Subject>)>> = HashMap::new();
        for (name, subject) in self.0.listened_to() {
            families.entry(name.parts().0.to_owned()).or_default().push((name, subject));
        }
        for mut subjects in families.into_values() {
            // In another order each time, so that the same ones are not always the last.
            let start = random::between(0, subjects.len().max(1) as u64 - 1);
            subjects.rotate_left(usize::try_from(start).unwrap_or_default());
            for some in subjects.chunks(COMPARED) {
                if self.compare(some).await.is_err() {
                    // The log is away; when it is back, the bus is too, and doubts everything.
                    break;
                }
            }
        }
    }

    /// Compares subjects of one family.
    async fn compare(&self, subjects: &[(SubjectName, Arc<Subject>)]) -> Result<(), LogError> {
        let settled = subjects.iter().filter_map(|(name, subject)| Some((name, subject, subject.settled()?)));
        let settled: Vec<_> = settled.collect();
        let Some((first, ..)) = settled.first() else { return Ok(()) };
        let Family { source, bus } = self.0.family(first)?;
        if bus.is_none() && source.tells_everything() {
            return Ok(());
        }
        let names: Vec<SubjectName> = settled.iter().map(|(name, ..)| (*name).clone()).collect();
        let heads = source.heads(&names).await;
        for ((name, subject, last), head) in settled.into_iter().zip(heads) {
            match head {
                // A frame that is still on its way over the bus makes a harmless repair.
                Ok(head) if differs(head, last, subject.last()) => self.doubt_subject(name, subject),
                Err(error) if error.may_pass() => return Err(error),
                // One that the engine refuses to show says nothing of the others.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Whether the log's end is neither where the ring ended before the question nor where it ends after the answer.
fn differs(head: Place, before: Place, after: Place) -> bool {
    head.id < before.id || head.id > after.id
}
