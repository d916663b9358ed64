//! Appending: one job within the transaction of a group, and the deliveries and answers after the commit.
//!
//! Key, id, entry, stored answer, follow-up record and trimming are one transaction: a crash leaves all or none.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{Clock, Millis, StreamId, crash_point};
use bongsu_sql::Error;
use bongsu_sql::rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::{Notify, oneshot};

use super::membership::MembershipVersions;
use super::{from_sql, to_sql};
use crate::SubjectName;
use crate::log::{
    Append, AppendError, AppendOutcome, Delivery, FollowUp, Idempotency, LogEntry, LogPosition, Sink,
};

/// How long an answer is kept under its idempotency key, in milliseconds.
const KEY_LIFETIME: Millis = 24 * 60 * 60 * 1_000;

/// Entries above `keep` at which a subject is trimmed (`keep` if smaller), so that not every append deletes a row.
const MAX_EXCESS: u64 = 64;
/// Maximum number of entries that one append removes.
const MAX_TRIM_BATCH: u64 = 1_000;

type Reply = Result<Vec<Result<AppendOutcome, AppendError>>, Error>;

pub(super) struct Job {
    pub(super) events: Vec<Append>,
    pub(super) clock: Clock,
    pub(super) sink: Arc<dyn Sink>,
    /// Notified when a follow-up record was committed.
    pub(super) follow_up_added: Arc<Notify>,
    pub(super) memberships: Arc<MembershipVersions>,
    pub(super) reply: oneshot::Sender<Reply>,
    pub(super) accepted: Instant,
    pub(super) outcomes: Vec<Outcome>,
}

pub(super) enum Outcome {
    Stored { entry: LogEntry, previous: StreamId, audience: u32 },
    Repeated(AppendOutcome),
    Conflict,
    StaleMembership,
}

impl bongsu_sql::Job for Job {
    fn apply(&mut self, connection: &mut Connection) -> Result<(), Error> {
        self.outcomes.clear();
        // A clock that is set before 1970 reads 0. At least 1 ms, because no event may have the id 0-0.
        let now = self.clock.now().max(1);
        let mut stale_subjects = HashSet::new();
        for event in &self.events {
            let is_stale = stale_subjects.contains(&event.subject)
                || event
                    .membership_version
                    .is_some_and(|version| version != self.memberships.current(&event.subject));
            let outcome = append(connection, event, now, is_stale)?;
            if matches!(outcome, Outcome::StaleMembership) {
                stale_subjects.insert(&event.subject);
            }
            self.outcomes.push(outcome);
        }
        Ok(())
    }

    fn committed(self: Box<Self>) {
        let answers = self.events.iter().zip(self.outcomes).map(|(event, outcome)| match outcome {
            Outcome::Stored { entry, previous, audience } => {
                let (subject, accepted) = (&event.subject, self.accepted);
                self.sink.deliver(Delivery { subject, previous, entry: &entry, accepted });
                Ok(AppendOutcome { id: entry.position.id, at: entry.at, audience, duplicate: false })
            }
            Outcome::Repeated(first) => Ok(first),
            Outcome::Conflict => Err(AppendError::Conflict),
            Outcome::StaleMembership => Err(AppendError::StaleMembership),
        });
        let answers = answers.collect();
        crash_point!("after-deliver");
        if self.events.iter().any(|event| !event.recipients.is_empty()) {
            self.follow_up_added.notify_one();
        }
        // Fails if the caller has given up. A retry with the same key returns this answer.
        let _ = self.reply.send(Ok(answers));
    }

    fn failed(self: Box<Self>, error: &Error) {
        let _ = self.reply.send(Err(error.clone()));
    }
}

fn append(connection: &Connection, event: &Append, now: Millis, is_stale: bool) -> Result<Outcome, Error> {
    if let Some(idempotency) = &event.idempotency
        && let Some((digest, first)) = find_answer(connection, event.subject.as_str(), idempotency, now)?
    {
        let is_same_content = idempotency.is_same_content(digest);
        return Ok(if is_same_content { Outcome::Repeated(first) } else { Outcome::Conflict });
    }
    if is_stale {
        return Ok(Outcome::StaleMembership);
    }
    let head = advance(connection, event.subject.as_str(), now)?;
    crash_point!("after-id");
    connection
        .prepare_cached(
            "INSERT INTO entries (subject_id, ms, seq, number, type, payload, publisher_id, timestamp, traceparent)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            head.subject,
            to_sql(head.id.ms),
            to_sql(head.id.seq),
            to_sql(head.number),
            event.event_type.as_str(),
            event.data.as_str(),
            event.publisher.as_ref().map(bongsu_kernel::Id::as_str),
            to_sql(now),
            event.trace.as_ref().map(TraceParent::as_str),
        ])?;
    if let Some(idempotency) = &event.idempotency {
        store_answer(connection, &head, idempotency, event.audience, now)?;
    }
    crash_point!("after-entry");
    write_follow_up(connection, event, head.id, now)?;
    let kept = head.number - head.trimmed;
    if kept >= u64::from(event.keep) + MAX_EXCESS.min(u64::from(event.keep)) {
        trim(connection, head.subject, kept - u64::from(event.keep))?;
    }
    let entry = LogEntry {
        position: LogPosition { id: head.id, number: Some(head.number) },
        event_type: event.event_type.clone(),
        data: event.data.clone(),
        publisher: event.publisher.clone(),
        at: now,
        trace: event.trace,
    };
    Ok(Outcome::Stored { entry, previous: head.previous, audience: event.audience })
}

/// The digest and the answer that are stored under a key and have not expired.
fn find_answer(
    connection: &Connection,
    subject: &str,
    idempotency: &Idempotency,
    now: Millis,
) -> Result<Option<([u8; 32], AppendOutcome)>, Error> {
    let found = connection
        .prepare_cached(
            "SELECT i.digest, i.ms, i.seq, i.timestamp, i.audience FROM subjects s
             JOIN idempotency i ON i.subject_id = s.id AND i.key = ?2
             WHERE s.subject = ?1 AND i.expires_at > ?3",
        )?
        .query_row(params![subject, idempotency.key, to_sql(now)], |row| {
            let id = StreamId::new(from_sql(row.get(1)?), from_sql(row.get(2)?));
            let first =
                AppendOutcome { id, at: from_sql(row.get(3)?), audience: row.get(4)?, duplicate: true };
            Ok((row.get::<_, [u8; 32]>(0)?, first))
        })
        .optional()?;
    Ok(found)
}

/// The row of a subject after the next id was taken.
struct Head {
    subject: i64,
    id: StreamId,
    previous: StreamId,
    number: u64,
    trimmed: u64,
}

/// Takes the next id of a subject: the current time, or the successor of the last id if the clock has not advanced, as
/// in `StreamId::next`.
fn advance(connection: &Connection, subject: &str, now: Millis) -> Result<Head, Error> {
    let head = connection
        .prepare_cached(
            "INSERT INTO subjects (subject, ms, seq, number) VALUES (?1, ?2, 0, 1)
             ON CONFLICT (subject) DO UPDATE SET
                 previous_ms = ms, previous_seq = seq,
                 seq = CASE WHEN excluded.ms > ms THEN 0 ELSE seq + 1 END,
                 ms = max(ms, excluded.ms), number = number + 1
             RETURNING id, ms, seq, previous_ms, previous_seq, number, trimmed",
        )?
        .query_row(params![subject, to_sql(now)], |row| {
            Ok(Head {
                subject: row.get(0)?,
                id: StreamId::new(from_sql(row.get(1)?), from_sql(row.get(2)?)),
                previous: StreamId::new(from_sql(row.get(3)?), from_sql(row.get(4)?)),
                number: from_sql(row.get(5)?),
                trimmed: from_sql(row.get(6)?),
            })
        })?;
    Ok(head)
}

fn store_answer(
    connection: &Connection,
    head: &Head,
    idempotency: &Idempotency,
    audience: u32,
    now: Millis,
) -> Result<(), Error> {
    // REPLACE, because a row under this key can only be an expired one that was not swept yet.
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO idempotency (subject_id, key, digest, ms, seq, timestamp, audience, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            head.subject,
            idempotency.key,
            idempotency.digest,
            to_sql(head.id.ms),
            to_sql(head.id.seq),
            to_sql(now),
            audience,
            to_sql(now + KEY_LIFETIME),
        ])?;
    Ok(())
}

fn write_follow_up(connection: &Connection, event: &Append, id: StreamId, now: Millis) -> Result<(), Error> {
    let record = FollowUp::encode(event, id.to_string(), now);
    if let Some(record) = record.map_err(|error| Error::Failed(error.to_string()))? {
        connection.prepare_cached("INSERT INTO follow_ups (record) VALUES (?1)")?.execute([record])?;
    }
    Ok(())
}

/// Removes all entries of a subject except the newest, and the answers stored under its keys.
pub(super) fn purge(connection: &Connection, subject: &SubjectName) -> Result<(), Error> {
    let kept =
        "SELECT 1 FROM subjects s WHERE s.id = subject_id AND s.ms = entries.ms AND s.seq = entries.seq";
    let id = "(SELECT id FROM subjects WHERE subject = ?1)";
    let subject = [subject.as_str()];
    connection
        .execute(&format!("DELETE FROM entries WHERE subject_id = {id} AND NOT EXISTS ({kept})"), subject)?;
    connection.execute(&format!("DELETE FROM idempotency WHERE subject_id = {id}"), subject)?;
    connection.execute("UPDATE subjects SET trimmed = number - 1 WHERE subject = ?1", subject)?;
    Ok(())
}

/// Removes the `excess` oldest entries, but at most [`MAX_TRIM_BATCH`].
fn trim(connection: &Connection, subject: i64, excess: u64) -> Result<(), Error> {
    let count = to_sql(excess.min(MAX_TRIM_BATCH));
    let removed = connection
        .prepare_cached(
            "DELETE FROM entries WHERE subject_id = ?1 AND (ms, seq) <=
                 (SELECT ms, seq FROM entries WHERE subject_id = ?1 ORDER BY ms, seq LIMIT 1 OFFSET ?2)",
        )?
        .execute([subject, count - 1])?;
    connection
        .prepare_cached("UPDATE subjects SET trimmed = trimmed + ?2 WHERE id = ?1")?
        .execute([subject, to_sql(removed as u64)])?;
    crash_point!("after-trim");
    Ok(())
}
