//! Appending: what one job does within the group's transaction, and whom it tells afterwards.
//!
//! Key, id, entry, kept answer, follow-up and trimming are one transaction: a crash leaves all of it or none.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{Clock, Millis, StreamId, crash_point};
use bongsu_sql::Error;
use bongsu_sql::rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::{Notify, oneshot};

use super::membership::MembershipVersions;
use super::{signed, unsigned};
use crate::SubjectName;
use crate::log::{Append, AppendError, Appended, Delivery, Entry, FollowUp, Once, Place, Sink};

/// How long an answer is kept under its key.
const KEY_LIFE: Millis = 24 * 60 * 60 * 1_000;

/// A subject is trimmed when it has so many more events than it keeps, so that not every append deletes one.
const SLACK: u64 = 64;
/// So many entries are removed by one append at most.
const TRIM_AT_ONCE: u64 = 1_000;

type Reply = Result<Vec<Result<Appended, AppendError>>, Error>;

pub(super) struct Job {
    pub(super) events: Vec<Append>,
    pub(super) clock: Clock,
    pub(super) sink: Arc<dyn Sink>,
    /// Raised when something was written down for people.
    pub(super) news: Arc<Notify>,
    pub(super) memberships: Arc<MembershipVersions>,
    pub(super) reply: oneshot::Sender<Reply>,
    pub(super) accepted: Instant,
    pub(super) outcomes: Vec<Outcome>,
}

pub(super) enum Outcome {
    Stored { entry: Entry, previous: StreamId, audience: u32 },
    Repeated(Appended),
    Conflict,
    StaleMembership,
}

impl bongsu_sql::Job for Job {
    fn apply(&mut self, connection: &mut Connection) -> Result<(), Error> {
        self.outcomes.clear();
        // Before 1970 no clock is right, and 0-0 is no event.
        let now = self.clock.now().max(1);
        let mut stale_subjects = HashSet::new();
        for event in &self.events {
            let is_stale = stale_subjects.contains(&event.subject)
                || event.membership_version.is_some_and(|of| of != self.memberships.current(&event.subject));
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
                self.sink.deliver(Delivery {
                    subject: &event.subject,
                    previous,
                    entry: &entry,
                    accepted: self.accepted,
                });
                Ok(Appended { id: entry.place.id, at: entry.at, audience, duplicate: false })
            }
            Outcome::Repeated(first) => Ok(first),
            Outcome::Conflict => Err(AppendError::Conflict),
            Outcome::StaleMembership => Err(AppendError::StaleMembership),
        });
        let answers = answers.collect();
        crash_point!("after-deliver");
        if self.events.iter().any(|event| !event.recipients.is_empty()) {
            self.news.notify_one();
        }
        // A caller that went away is answered by the key when it asks again.
        let _ = self.reply.send(Ok(answers));
    }

    fn failed(self: Box<Self>, error: &Error) {
        let _ = self.reply.send(Err(error.clone()));
    }
}

fn append(connection: &Connection, event: &Append, now: Millis, is_stale: bool) -> Result<Outcome, Error> {
    if let Some(once) = &event.once
        && let Some((digest, first)) = answered(connection, event.subject.as_str(), once, now)?
    {
        return Ok(if once.is_same_content(digest) { Outcome::Repeated(first) } else { Outcome::Conflict });
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
            signed(head.id.ms),
            signed(head.id.seq),
            signed(head.number),
            event.event_type.as_str(),
            event.data.as_str(),
            event.publisher.as_ref().map(bongsu_kernel::Id::as_str),
            signed(now),
            event.trace.as_ref().map(TraceParent::as_str),
        ])?;
    if let Some(once) = &event.once {
        keep_answer(connection, &head, once, event.audience, now)?;
    }
    crash_point!("after-entry");
    write_follow_up(connection, event, head.id, now)?;
    let kept = head.number - head.trimmed;
    if kept >= u64::from(event.keep) + SLACK.min(u64::from(event.keep)) {
        trim(connection, head.subject, kept - u64::from(event.keep))?;
    }
    let entry = Entry {
        place: Place { id: head.id, number: Some(head.number) },
        event_type: event.event_type.clone(),
        data: event.data.clone(),
        publisher: event.publisher.clone(),
        at: now,
        trace: event.trace,
    };
    Ok(Outcome::Stored { entry, previous: head.previous, audience: event.audience })
}

/// The answer that was kept under a key.
fn answered(
    connection: &Connection,
    subject: &str,
    once: &Once,
    now: Millis,
) -> Result<Option<([u8; 32], Appended)>, Error> {
    let found = connection
        .prepare_cached(
            "SELECT i.digest, i.ms, i.seq, i.timestamp, i.audience FROM subjects s
             JOIN idempotency i ON i.subject_id = s.id AND i.key = ?2
             WHERE s.subject = ?1 AND i.expires_at > ?3",
        )?
        .query_row(params![subject, once.key, signed(now)], |row| {
            let id = StreamId::new(unsigned(row.get(1)?), unsigned(row.get(2)?));
            let first = Appended { id, at: unsigned(row.get(3)?), audience: row.get(4)?, duplicate: true };
            Ok((row.get::<_, [u8; 32]>(0)?, first))
        })
        .optional()?;
    Ok(found)
}

/// What a subject's row says after it gave the next id.
struct Head {
    subject: i64,
    id: StreamId,
    previous: StreamId,
    number: u64,
    trimmed: u64,
}

/// Gives the next id: the time, or the next number within it when the clock stands still or went back
/// (`StreamId::next` says the same).
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
        .query_row(params![subject, signed(now)], |row| {
            Ok(Head {
                subject: row.get(0)?,
                id: StreamId::new(unsigned(row.get(1)?), unsigned(row.get(2)?)),
                previous: StreamId::new(unsigned(row.get(3)?), unsigned(row.get(4)?)),
                number: unsigned(row.get(5)?),
                trimmed: unsigned(row.get(6)?),
            })
        })?;
    Ok(head)
}

fn keep_answer(
    connection: &Connection,
    head: &Head,
    once: &Once,
    audience: u32,
    now: Millis,
) -> Result<(), Error> {
    // A row under this key can only be one that ran out and was not swept yet.
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO idempotency (subject_id, key, digest, ms, seq, timestamp, audience, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            head.subject,
            once.key,
            once.digest,
            signed(head.id.ms),
            signed(head.id.seq),
            signed(now),
            audience,
            signed(now + KEY_LIFE),
        ])?;
    Ok(())
}

fn write_follow_up(connection: &Connection, event: &Append, id: StreamId, now: Millis) -> Result<(), Error> {
    let record = FollowUp::written(event, id.to_string(), now);
    if let Some(record) = record.map_err(|error| Error::Failed(error.to_string()))? {
        connection.prepare_cached("INSERT INTO follow_ups (record) VALUES (?1)")?.execute([record])?;
    }
    Ok(())
}

/// Removes all but the newest entry, and the answers kept for its keys.
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

/// Removes the oldest entries.
fn trim(connection: &Connection, subject: i64, excess: u64) -> Result<(), Error> {
    let count = signed(excess.min(TRIM_AT_ONCE));
    let removed = connection
        .prepare_cached(
            "DELETE FROM entries WHERE subject_id = ?1 AND (ms, seq) <=
                 (SELECT ms, seq FROM entries WHERE subject_id = ?1 ORDER BY ms, seq LIMIT 1 OFFSET ?2)",
        )?
        .execute([subject, count - 1])?;
    connection
        .prepare_cached("UPDATE subjects SET trimmed = trimmed + ?2 WHERE id = ?1")?
        .execute([subject, signed(removed as u64)])?;
    crash_point!("after-trim");
    Ok(())
}
