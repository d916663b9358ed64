//! Makes inbox entries from the follow-up records that rooms write together with their events.
//!
//! A record is removed from its queue after its entries are durable. After a crash between the two steps the record is
//! handled again, which changes nothing: an entry is unique by its event and its person. A record without recipients is
//! for the registered members of its room at the time when the entries are made, so that publishing needs no query for
//! the members.

mod retries;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id, StreamId, crash_point, trace};
use bongsu_live::SubjectName;
use bongsu_live::log::{FollowUp, FollowUps, LogError, PendingFollowUp};
use bongsu_rooms::store::MembershipState;
use bongsu_rooms::store::sql::SqlStore;
use bongsu_sql::Error;

use self::retries::{MAX_ATTEMPTS, Retries};
use crate::notify::{MAX_TARGETS, NotifyError};
use crate::{EntryId, EventId, Inbox, Notification, NotificationType};

/// Records handled in one batch.
const BATCH_SIZE: usize = 64;
/// Time between two reads of an empty queue. A new record ends the wait earlier.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time before the next batch after an outage.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The queue of follow-up records, and the registered members of rooms.
pub struct RoomFollowUps {
    pub follow_ups: Arc<dyn FollowUps>,
    /// The recipients of records that name none.
    pub members: SqlStore,
}

/// Why no entries were made from a record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MaterializeError {
    /// Every record would fail: the batch stops, and the failure does not count as an attempt.
    #[error(transparent)]
    Outage(Error),
    /// The database refused the statements of this record. A later attempt may succeed.
    #[error(transparent)]
    Refused(Error),
    /// The record can never be used.
    #[error("{0}")]
    Unusable(&'static str),
}

impl From<Error> for MaterializeError {
    fn from(error: Error) -> Self {
        if error.is_store_failure() { Self::Outage(error) } else { Self::Refused(error) }
    }
}

impl Inbox {
    /// Makes entries of records until the future is dropped. A runner runs this on one instance of the fleet; a second
    /// one at the same time does no harm, because an entry is unique by its event and its person, and a dead letter by
    /// its record.
    pub async fn materialize(self) {
        let Some(rooms) = &self.0.room_follow_ups else { return std::future::pending().await };
        let watch = rooms.follow_ups.watch().await;
        let (mut retries, mut was_ok) = (Retries::default(), true);
        loop {
            let outcome = self.materialize_batch(rooms, &mut retries).await;
            if let Err(error) = &outcome
                && was_ok
            {
                tracing::warn!(error, "failed to make inbox entries of follow-up records; retrying");
            }
            was_ok = outcome.is_ok();
            match outcome {
                Ok(0) => tokio::select! {
                    () = watch.changed() => {}
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                },
                Ok(_) => {}
                Err(_) => tokio::time::sleep(RETRY_DELAY).await,
            }
        }
    }

    /// Handles one batch, and returns how many records it had. A record that the database refuses is parked or becomes
    /// a dead letter, and the batch continues. An outage stops the batch.
    async fn materialize_batch(&self, rooms: &RoomFollowUps, retries: &mut Retries) -> Result<usize, String> {
        let batch = rooms.follow_ups.take(BATCH_SIZE, retries.parked()).await;
        let batch = batch.map_err(|error| error.to_string())?;
        let records = rooms.decode(&batch).await.map_err(|error| error.to_string())?;
        let (count, mut done, mut outcome) = (batch.len(), Vec::new(), Ok(()));
        for (pending, record) in batch.into_iter().zip(records) {
            let result = self.materialize_record(rooms, record).await;
            match self.finish_record(result, &pending, retries).await {
                Ok(RecordOutcome::Done) => done.push(pending),
                Ok(RecordOutcome::Retry { attempts }) => retries.park(pending, attempts),
                Err(error) => {
                    outcome = Err(error.to_string());
                    break;
                }
            }
        }
        if !done.is_empty() {
            crash_point!("after-derivation");
            rooms.follow_ups.acknowledge(done).await.map_err(|error| error.to_string())?;
        }
        outcome.map(|()| count)
    }

    /// Decides whether a record is done or retried, and stores a dead letter of a record that is given up. An error is
    /// an outage.
    async fn finish_record(
        &self,
        result: Result<(), MaterializeError>,
        pending: &PendingFollowUp,
        retries: &mut Retries,
    ) -> Result<RecordOutcome, Error> {
        let (attempts, reason) = match result {
            Ok(()) => return Ok(RecordOutcome::Done),
            Err(MaterializeError::Outage(error)) => return Err(error),
            Err(MaterializeError::Refused(error)) if retries.is_full() => return Err(error),
            Err(MaterializeError::Refused(error)) => {
                let (attempts, key) = (retries.count_attempt(pending), &pending.key);
                if attempts < MAX_ATTEMPTS {
                    metrics::counter!("inbox_follow_ups_refused_total").increment(1);
                    tracing::warn!(key, attempts, %error, "failed to make the entries of a follow-up record; retrying");
                    return Ok(RecordOutcome::Retry { attempts });
                }
                (attempts, error.to_string())
            }
            Err(MaterializeError::Unusable(reason)) => (1, reason.to_owned()),
        };
        self.store_dead_letter(pending, attempts, &reason).await?;
        retries.forget_attempts(pending);
        Ok(RecordOutcome::Done)
    }

    /// Makes one person's entry of a room event before the runner has handled its follow-up record. Returns whether the
    /// caller has to look for the entry again: it was made here, or the runner may have made it meanwhile.
    pub(crate) async fn materialize_early(&self, person: &Id, entry: &EntryId) -> Result<bool, Error> {
        let (Some(rooms), EntryId::RoomEvent(event)) = (&self.0.room_follow_ups, entry) else {
            return Ok(false);
        };
        let Some((room, id)) = event.of_room() else { return Ok(false) };
        let found = rooms
            .follow_ups
            .find(&SubjectName::new(bongsu_rooms::SUBJECT_KIND, &room), id)
            .await
            .map_err(|error| from_log_error(&error))?;
        if let Some(record) = found
            && let Some(notification) = notification(&record)
            && rooms.is_recipient(&record, &room, person).await?
        {
            // For this person only, because all recipients of the event may ask at the same time.
            match self.notify(notification, std::slice::from_ref(person)).await {
                Ok(_) | Err(NotifyError::Conflict) => {}
                Err(NotifyError::Records(error)) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Makes the entries of a record.
    pub(crate) async fn materialize_record(
        &self,
        rooms: &RoomFollowUps,
        record: Option<FollowUp>,
    ) -> Result<(), MaterializeError> {
        let trace = record.as_ref().and_then(|record| record.traceparent);
        trace::scope(trace, self.create_entries(rooms, record)).await
    }

    async fn create_entries(
        &self,
        rooms: &RoomFollowUps,
        record: Option<FollowUp>,
    ) -> Result<(), MaterializeError> {
        let unusable = MaterializeError::Unusable;
        let record = record.ok_or(unusable("the record is not readable, or of an unknown version"))?;
        let notification =
            notification(&record).ok_or(unusable("the record is not about an event of a room"))?;
        for targets in rooms.recipients(record).await?.chunks(MAX_TARGETS) {
            self.notify(notification.clone(), targets).await.map_err(|error| match error {
                NotifyError::Records(error) => MaterializeError::from(error),
                NotifyError::Conflict => unusable("entries of this event exist with other content"),
            })?;
        }
        Ok(())
    }
}

/// The next step for a record after an attempt.
enum RecordOutcome {
    /// The record has its entries, or is a dead letter: it is removed from its queue.
    Done,
    /// The record is parked after this many failed attempts.
    Retry { attempts: u64 },
}

impl RoomFollowUps {
    /// Decodes records; None for one that cannot be decoded. A record for the members of a room that is not registered
    /// gets an empty list of recipients: one query finds these rooms for the whole batch, because most rooms are not
    /// registered.
    async fn decode(&self, pending: &[PendingFollowUp]) -> Result<Vec<Option<FollowUp>>, Error> {
        let mut records: Vec<Option<FollowUp>> = pending.iter().map(PendingFollowUp::decode).collect();
        let mut for_members: Vec<(Id, &mut FollowUp)> = records
            .iter_mut()
            .flatten()
            .filter(|record| record.recipients.is_none())
            .filter_map(|record| Some((room_of(record)?, record)))
            .collect();
        let rooms: HashSet<Id> = for_members.iter().map(|(room, _)| room.clone()).collect();
        if !rooms.is_empty() {
            let registered = self.members.registered(&rooms.into_iter().collect::<Vec<_>>()).await;
            let registered = match registered.map_err(Error::from) {
                // Each record then repeats the query by itself, so that only the records that cause the failure are
                // refused.
                Err(error) if !error.is_store_failure() => return Ok(records),
                registered => registered?,
            };
            for (_, record) in for_members.iter_mut().filter(|(room, _)| !registered.contains(room)) {
                record.recipients = Some(Vec::new());
            }
        }
        Ok(records)
    }

    /// The persons who get an entry.
    async fn recipients(&self, record: FollowUp) -> Result<Vec<Id>, Error> {
        match (record.recipients.is_none(), room_of(&record)) {
            (true, Some(room)) => {
                Ok(record.filter_recipients(self.members.members(&room).await?.unwrap_or_default()))
            }
            _ => Ok(record.recipients.unwrap_or_default()),
        }
    }

    async fn is_recipient(&self, record: &FollowUp, room: &Id, person: &Id) -> Result<bool, Error> {
        match &record.recipients {
            Some(named) => Ok(named.contains(person)),
            None if record.publisher_id.as_ref() == Some(person) => Ok(false),
            None => Ok(self.members.membership_state(room, person).await? == MembershipState::Member),
        }
    }
}

/// Converts an error of the queue, for callers that handle only errors of the records.
fn from_log_error(error: &LogError) -> Error {
    if error.is_transient() {
        Error::Unavailable(error.to_string())
    } else {
        Error::Failed(error.to_string())
    }
}

fn room_of(record: &FollowUp) -> Option<Id> {
    Id::new(SubjectName::from_stored(&record.subject).parts().1).ok()
}

/// The notification of a room event: its reference is the room, its actor the publisher. None when the record is not
/// about an event of a room.
fn notification(record: &FollowUp) -> Option<Notification> {
    let (room, id): (Id, StreamId) = (room_of(record)?, record.stream_id.parse().ok()?);
    Some(Notification {
        event: EventId::new(&format!("{room}:{id}")).ok()?,
        kind: NotificationType::from(&EventType::new(&record.event_type).ok()?),
        reference: Some(room),
        actor: record.publisher_id.clone(),
        payload: Object::from_stored(record.data.get())?,
    })
}
