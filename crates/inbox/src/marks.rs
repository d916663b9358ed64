//! Buffered read marks (write-behind): a mark is stored in Redis at once, applied to every list and count that is read,
//! and written to the records later in batches.
//!
//! Readers read the buffer before the records, so that a mark that is being written meanwhile is found in at least one
//! of the two. A mark is removed from the buffer after it was written and only if it is unchanged. After a crash
//! between the two steps it is written again, which changes nothing.

pub mod redis;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bongsu_kernel::{Id, Millis, Outage, crash_point};
use bongsu_sql::{Error, Result, Transaction};

use crate::Inbox;
use crate::read::subtract_read;
use crate::store::{self, json};

/// The future that a method of [`MarkBuffer`] returns.
pub type BufferFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = Result<T, Outage>> + Send + 'a>>;

/// Read marks of one person: read times by sequence number.
pub type Marks = BTreeMap<u64, Millis>;

/// Stores read marks that are not written to the records yet.
///
/// - **Durable:** when `put` returns, the mark is as durable as the engine makes it.
/// - **Idempotent:** a second mark of an entry changes nothing, and `put` returns the first read time.
pub trait MarkBuffer: Send + Sync {
    /// Stores a mark. Returns the read time of an earlier mark of the entry, if there is one.
    fn put<'a>(&'a self, person: &'a Id, seq: u64, at: Millis) -> BufferFuture<'a, Option<Millis>>;

    fn marks<'a>(&'a self, person: &'a Id) -> BufferFuture<'a, Marks>;

    /// Returns those of the persons who may have marks, or had marks within the last 30 seconds. The unread count of
    /// their row must not be sent to devices, because the same version may have been sent with another count, which
    /// included a buffered mark.
    fn recently_marked<'a>(&'a self, persons: &'a [&'a Id]) -> BufferFuture<'a, HashSet<Id>>;

    /// All persons who may have marks.
    fn persons_with_marks(&self) -> BufferFuture<'_, Vec<PendingPerson>>;

    /// Removes marks that were written to the records, unless they have changed since.
    fn remove_written<'a>(&'a self, person: &'a Id, marks: &'a Marks) -> BufferFuture<'a, ()>;

    /// Removes a person without marks from the index.
    fn unindex(&self, pending: PendingPerson) -> BufferFuture<'_, ()>;
}

/// A person who may have buffered marks, with the person's index entry.
pub struct PendingPerson {
    pub person: Id,
    pub(crate) index_mark: bongsu_redis::PendingMark,
}

/// How buffered marks are written to the records.
#[derive(Clone, Copy, Debug)]
pub struct WriteBehindOptions {
    pub interval: Duration,
    /// Marks of one person written in one transaction.
    pub batch_size: usize,
}

impl Inbox {
    /// The person's buffered marks; empty when there is no buffer or it is unavailable.
    pub(crate) async fn pending_marks(&self, person: &Id) -> Marks {
        self.try_pending_marks(person).await.unwrap_or_default()
    }

    /// The person's buffered marks; empty when there is no buffer.
    pub(crate) async fn try_pending_marks(&self, person: &Id) -> Result<Marks, Outage> {
        match self.buffer() {
            Some(buffer) => buffer.marks(person).await,
            None => Ok(Marks::new()),
        }
    }

    /// Writes buffered marks to the records until the future is dropped. A runner runs this on one instance of the
    /// fleet; a second one at the same time does no harm, because writing a mark again changes nothing.
    pub async fn write_behind(self) {
        loop {
            tokio::time::sleep(self.0.write_behind.interval).await;
            self.flush().await;
        }
    }

    /// Writes all buffered marks to the records. Marks that cannot be written stay in the buffer until the next flush.
    pub async fn flush(&self) {
        let Some(buffer) = self.buffer() else { return };
        metrics::counter!("write_behind_flush_total").increment(1);
        let mut written = 0;
        let outcome = self.flush_all(buffer, &mut written).await;
        metrics::histogram!("write_behind_flush_entries").record(written as f64);
        if let Err(error) = outcome {
            tracing::warn!(%error, "failed to write buffered read marks; retrying at the next interval");
        }
    }

    async fn flush_all(&self, buffer: &dyn MarkBuffer, written: &mut usize) -> Result<(), MarksError> {
        for pending in buffer.persons_with_marks().await? {
            match self.flush_person(buffer, pending, written).await {
                // A failure that concerns one person's marks does not stop the flush of the others.
                Err(MarksError::Records(error)) if !error.is_transient() => {
                    tracing::error!(%error, "failed to write the read marks of one person; retrying at the next interval");
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    async fn flush_person(
        &self,
        buffer: &dyn MarkBuffer,
        pending: PendingPerson,
        written: &mut usize,
    ) -> Result<(), MarksError> {
        loop {
            let marks = buffer.marks(&pending.person).await?;
            if marks.is_empty() {
                return Ok(buffer.unindex(pending).await?);
            }
            let batch: Marks = marks.into_iter().take(self.0.write_behind.batch_size).collect();
            *written += batch.len();
            self.write_marks(&pending.person, &batch).await?;
            buffer.remove_written(&pending.person, &batch).await?;
            crash_point!("after-marks-removed");
        }
    }

    /// Writes one person's buffered marks to the records at once. Callers do this before they change the
    /// person's entries.
    pub(crate) async fn write_pending_marks(&self, person: &Id) -> Result<()> {
        let (Some(buffer), mut marks) = (self.buffer(), self.pending_marks(person).await) else {
            return Ok(());
        };
        while !marks.is_empty() {
            let later = marks.keys().nth(self.0.write_behind.batch_size).copied();
            let rest = later.map(|later| marks.split_off(&later)).unwrap_or_default();
            self.write_marks(person, &marks).await?;
            // Marks that could not be removed are written again by the next flush, which changes nothing.
            let _ = buffer.remove_written(person, &marks).await;
            marks = rest;
        }
        Ok(())
    }

    async fn write_marks(&self, person: &Id, marks: &Marks) -> Result<()> {
        crash_point!("before-marks");
        self.0.records.write((person.clone(), marks.clone()), write).await?;
        crash_point!("after-marks");
        Ok(())
    }
}

/// Why records were not read or written together with buffered marks.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum MarksError {
    Buffer(#[from] Outage),
    Records(#[from] Error),
}

/// The marked entries that are unread in the records: marks change the count of only these.
pub(crate) async fn effective_marks(
    person: &Id,
    marks: &Marks,
    tx: &mut Transaction<'_>,
) -> Result<Vec<u64>> {
    if marks.is_empty() {
        return Ok(Vec::new());
    }
    let arguments = [("person", person.into()), ("seqs", numbers(marks.keys())?.into())];
    tx.rows(&store::UNREAD_AMONG, &arguments).await?.iter().map(|row| row.count(0)).collect()
}

/// Sequence numbers as a JSON array, for a query argument.
pub(crate) fn numbers<'a>(numbers: impl Iterator<Item = &'a u64>) -> Result<String> {
    json(&numbers.collect::<Vec<_>>())
}

async fn write((person, marks): &(Id, Marks), tx: &mut Transaction<'_>) -> Result<()> {
    tx.row(&store::PERSON_LOCK, &[("person", person.into())]).await?;
    let unread = effective_marks(person, marks, tx).await?;
    let read_times: Vec<(&u64, &Millis)> = marks.iter().collect();
    tx.run(&store::ENTRIES_MARK, &[("person", person.into()), ("marks", json(&read_times)?.into())]).await?;
    if !unread.is_empty() {
        subtract_read(person, unread.len(), tx).await?;
    }
    Ok(())
}
