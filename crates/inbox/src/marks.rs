//! Marks that wait to be written: what was read is taken down at once in Redis, laid over every list and count, and written
//! to the records later, a few at a time.
//!
//! Marks are looked at before the records: one that is being written meanwhile is then found there. Writing removes only what
//! it wrote, so that a crash between the two writes it again, which changes nothing.

pub mod redis;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bongsu_kernel::{Id, Millis, Outage, crash_point};
use bongsu_sql::{Error, Transaction};

use crate::Inbox;
use crate::read::change;
use crate::store::{self, json};

/// A future that a trait object can give.
pub type Boxed<'a, T> = std::pin::Pin<Box<dyn Future<Output = Result<T, Outage>> + Send + 'a>>;

/// Entries of a person by number, and when they were read.
pub type Marks = BTreeMap<u64, Millis>;

/// Marks that are not written yet.
///
/// - **Durable** when it answers, as far as its engine is.
/// - **Once.** A second mark of an entry changes nothing and gives the first time.
pub trait Buffer: Send + Sync {
    /// Takes a mark down. Gives when the entry was read before, if it was.
    fn put<'a>(&'a self, person: &'a Id, seq: u64, at: Millis) -> Boxed<'a, Option<Millis>>;

    fn of<'a>(&'a self, person: &'a Id) -> Boxed<'a, Marks>;

    /// Those of these people who may have some, or had some within the last half minute. The count of their row at some
    /// moment of that time is not to be sent: together with a mark that waited, its version had another count.
    fn recently_marked<'a>(&'a self, people: &'a [&'a Id]) -> Boxed<'a, HashSet<Id>>;

    /// Everybody who may have some.
    fn people(&self) -> Boxed<'_, Vec<Waiting>>;

    /// These were written: they go, unless they were changed meanwhile.
    fn written<'a>(&'a self, person: &'a Id, marks: &'a Marks) -> Boxed<'a, ()>;

    /// A person has none left.
    fn none_left(&self, waiting: Waiting) -> Boxed<'_, ()>;
}

/// Somebody who may have marks.
pub struct Waiting {
    pub person: Id,
    pub(crate) marked: bongsu_redis::Marked,
}

/// How marks are written.
#[derive(Clone, Copy, Debug)]
pub struct WriteBehind {
    pub interval: Duration,
    pub at_once: usize,
}

impl Inbox {
    /// The marks of a person; none where there is no buffer, or it cannot be asked.
    pub(crate) async fn marks(&self, person: &Id) -> Marks {
        match self.buffer() {
            Some(buffer) => buffer.of(person).await.unwrap_or_default(),
            None => Marks::new(),
        }
    }

    /// Writes marks, until it is dropped: a loop that one hub of the fleet runs. Two at once do no harm: a mark that is
    /// written again changes nothing.
    pub async fn write_behind(self) {
        loop {
            tokio::time::sleep(self.0.pace.interval).await;
            self.flush().await;
        }
    }

    /// Writes all marks that there are now. What cannot be written waits for the next time.
    pub async fn flush(&self) {
        let Some(buffer) = self.buffer() else { return };
        metrics::counter!("write_behind_flush_total").increment(1);
        let mut written = 0;
        let outcome = self.flush_all(buffer, &mut written).await;
        metrics::histogram!("write_behind_flush_entries").record(written as f64);
        if let Err(error) = outcome {
            tracing::warn!(%error, "marks of what was read wait to be written");
        }
    }

    async fn flush_all(&self, buffer: &dyn Buffer, written: &mut usize) -> Result<(), Unwritten> {
        for waiting in buffer.people().await? {
            match self.flush_person(buffer, waiting, written).await {
                // The fault of one person's marks is not everybody's.
                Err(Unwritten::Records(error)) if !error.may_pass() => {
                    tracing::error!(%error, "marks of what somebody read cannot be written");
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    async fn flush_person(
        &self,
        buffer: &dyn Buffer,
        waiting: Waiting,
        written: &mut usize,
    ) -> Result<(), Unwritten> {
        loop {
            let marks = buffer.of(&waiting.person).await?;
            if marks.is_empty() {
                return Ok(buffer.none_left(waiting).await?);
            }
            let some: Marks = marks.into_iter().take(self.0.pace.at_once).collect();
            *written += some.len();
            self.write_marks(&waiting.person, &some).await?;
            buffer.written(&waiting.person, &some).await?;
            crash_point!("after-marks-removed");
        }
    }

    /// Writes the marks of one person now: before what has to come after them.
    pub(crate) async fn settle(&self, person: &Id) -> Result<(), Error> {
        let (Some(buffer), mut marks) = (self.buffer(), self.marks(person).await) else { return Ok(()) };
        while !marks.is_empty() {
            let later = marks.keys().nth(self.0.pace.at_once).copied();
            let rest = later.map(|later| marks.split_off(&later)).unwrap_or_default();
            self.write_marks(person, &marks).await?;
            // Those that stay are written again, which changes nothing.
            let _ = buffer.written(person, &marks).await;
            marks = rest;
        }
        Ok(())
    }

    async fn write_marks(&self, person: &Id, marks: &Marks) -> Result<(), Error> {
        crash_point!("before-marks");
        self.0.records.write((person.clone(), marks.clone()), write).await?;
        crash_point!("after-marks");
        Ok(())
    }
}

/// What kept marks from being written.
#[derive(Debug, thiserror::Error)]
enum Unwritten {
    #[error(transparent)]
    Buffer(#[from] Outage),
    #[error(transparent)]
    Records(#[from] Error),
}

/// Which of these are unread in the records: what a mark changes.
pub(crate) async fn effective(
    person: &Id,
    marks: &Marks,
    tx: &mut Transaction<'_>,
) -> Result<Vec<u64>, Error> {
    if marks.is_empty() {
        return Ok(Vec::new());
    }
    let arguments = [("person", person.into()), ("seqs", numbers(marks.keys())?.into())];
    tx.rows(&store::UNREAD_AMONG, &arguments).await?.iter().map(|row| row.count(0)).collect()
}

/// Numbers as a JSON list.
pub(crate) fn numbers<'a>(numbers: impl Iterator<Item = &'a u64>) -> Result<String, Error> {
    json(&numbers.collect::<Vec<_>>())
}

async fn write(given: &(Id, Marks), tx: &mut Transaction<'_>) -> Result<(), Error> {
    let (person, marks) = given;
    tx.row(&store::PERSON_HOLD, &[("person", person.into())]).await?;
    let unread = effective(person, marks, tx).await?;
    let times: Vec<(u64, Millis)> =
        unread.iter().map(|seq| (*seq, marks.get(seq).copied().unwrap_or_default())).collect();
    tx.run(&store::ENTRIES_MARK, &[("person", person.into()), ("marks", json(&times)?.into())]).await?;
    if !unread.is_empty() {
        change(person, unread.len(), tx).await?;
    }
    Ok(())
}
