//! What rooms wrote down for people becomes entries.
//!
//! A record stays where it is until its entries are durable, and an entry is unique by its event and its person: a hub
//! that dies between the two does it again, and nobody gets it twice. A record that names nobody is for the registered
//! members of its room as they are when its entries are made: publishing does not ask the database who they are.

mod retries;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id, StreamId, crash_point, trace};
use bongsu_live::SubjectName;
use bongsu_live::log::{FollowUp, FollowUps, LogError, Pending};
use bongsu_rooms::store::Standing;
use bongsu_rooms::store::sql::SqlStore;
use bongsu_sql::Error;

use self::retries::{MAX_ATTEMPTS, Retries};
use crate::notify::{MOST_TARGETS, NotifyError};
use crate::{EntryId, EventId, Inbox, Kind, Notice};

/// So many records are taken at once.
const AT_ONCE: usize = 64;
/// After nothing was found, if there is no news before; and after it could not be done.
const IDLE: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(1);

/// What rooms wrote down for people and nobody has seen to yet.
pub struct FromRooms {
    pub follow_ups: Arc<dyn FollowUps>,
    /// Who gets the entries of events that name nobody.
    pub members: SqlStore,
}

/// Why no entries were made of a record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// It would meet every record: everything waits, and no attempt counts.
    #[error(transparent)]
    Outage(Error),
    /// The database refuses what this record asks for. It may work later.
    #[error(transparent)]
    Refused(Error),
    /// It never works.
    #[error("{0}")]
    Hopeless(&'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if error.concerns_all() { Self::Outage(error) } else { Self::Refused(error) }
    }
}

impl Inbox {
    /// Turns records into entries, until it is dropped: a loop that one hub of the fleet runs. Two at once do no harm: an
    /// entry is unique by its event and its person, a dead letter by its record.
    pub async fn derive(self) {
        let Some(rooms) = &self.0.rooms else { return std::future::pending().await };
        let watch = rooms.follow_ups.watch().await;
        let (mut retries, mut was_well) = (Retries::default(), true);
        loop {
            let outcome = self.derive_some(rooms, &mut retries).await;
            if let Err(error) = &outcome
                && was_well
            {
                tracing::warn!(error, "what rooms wrote down for people waits");
            }
            was_well = outcome.is_ok();
            match outcome {
                Ok(0) => tokio::select! {
                    () = watch.news() => {}
                    () = tokio::time::sleep(IDLE) => {}
                },
                Ok(_) => {}
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// Gives how many it came by. A failure of one record holds up no other: the record is tried again later, or becomes a
    /// dead letter. An outage stops the batch.
    async fn derive_some(&self, rooms: &FromRooms, retries: &mut Retries) -> Result<usize, String> {
        let taken = rooms.follow_ups.take(AT_ONCE, retries.not_due()).await;
        let pending = taken.map_err(|error| error.to_string())?;
        let records = rooms.read(&pending).await.map_err(|error| error.to_string())?;
        let (count, mut done, mut outcome) = (pending.len(), Vec::new(), Ok(()));
        for (one, record) in pending.into_iter().zip(records) {
            let derived = self.derive_one(rooms, record).await;
            match self.conclude(derived, &one, retries).await {
                Ok(Conclusion::Done) => done.push(one),
                Ok(Conclusion::TryAgain { attempts }) => retries.put_off(one, attempts),
                Err(error) => {
                    outcome = Err(error.to_string());
                    break;
                }
            }
        }
        if !done.is_empty() {
            crash_point!("after-derivation");
            rooms.follow_ups.done(done).await.map_err(|error| error.to_string())?;
        }
        outcome.map(|()| count)
    }

    /// What becomes of a record. An error is an outage.
    async fn conclude(
        &self,
        derived: Result<(), Failure>,
        pending: &Pending,
        retries: &mut Retries,
    ) -> Result<Conclusion, Error> {
        let (attempts, reason) = match derived {
            Ok(()) => return Ok(Conclusion::Done),
            Err(Failure::Outage(error)) => return Err(error),
            Err(Failure::Refused(error)) if retries.is_full() => return Err(error),
            Err(Failure::Refused(error)) => {
                let (attempts, key) = (retries.count(pending), &pending.key);
                if attempts < MAX_ATTEMPTS {
                    metrics::counter!("inbox_follow_ups_refused_total").increment(1);
                    tracing::warn!(key, attempts, %error, "failed to make the entries of a follow-up record; retrying");
                    return Ok(Conclusion::TryAgain { attempts });
                }
                (attempts, error.to_string())
            }
            Err(Failure::Hopeless(reason)) => (1, reason.to_owned()),
        };
        self.keep_dead_letter(pending, attempts, &reason).await?;
        retries.forget(pending);
        Ok(Conclusion::Done)
    }

    /// Derives one person's entry before its turn has come, if what it is named by may be an event of a room that waits.
    /// Says whether to look for it again: either it was derived, or the one whose turn it is may just have been quicker.
    pub(crate) async fn derive_early(&self, person: &Id, entry: &EntryId) -> Result<bool, Error> {
        let (Some(rooms), EntryId::RoomEvent(event)) = (&self.0.rooms, entry) else { return Ok(false) };
        let Some((room, id)) = event.of_room() else { return Ok(false) };
        let found = rooms
            .follow_ups
            .find(&SubjectName::new(bongsu_rooms::FAMILY, &room), id)
            .await
            .map_err(|error| unknown(&error))?;
        if let Some(record) = found
            && let Some(notice) = notice(&record)
            && rooms.is_recipient(&record, &room, person).await?
        {
            // Theirs alone: a thousand may ask at the same moment.
            match self.notify(notice, std::slice::from_ref(person)).await {
                Ok(_) | Err(NotifyError::Conflict) => {}
                Err(NotifyError::Records(error)) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Makes the entries of a record.
    pub(crate) async fn derive_one(
        &self,
        rooms: &FromRooms,
        record: Option<FollowUp>,
    ) -> Result<(), Failure> {
        let trace = record.as_ref().and_then(|record| record.traceparent);
        trace::scope(trace, self.derive_record(rooms, record)).await
    }

    async fn derive_record(&self, rooms: &FromRooms, record: Option<FollowUp>) -> Result<(), Failure> {
        let record =
            record.ok_or(Failure::Hopeless("the record is not readable, or of an unknown version"))?;
        let notice = notice(&record).ok_or(Failure::Hopeless("the record is not of a room's event"))?;
        for some in rooms.recipients(record).await?.chunks(MOST_TARGETS) {
            self.notify(notice.clone(), some).await.map_err(|error| match error {
                NotifyError::Records(error) => Failure::from(error),
                NotifyError::Conflict => Failure::Hopeless("entries of this event exist with other content"),
            })?;
        }
        Ok(())
    }
}

/// What became of a record.
enum Conclusion {
    /// Its entries are made, or it is a dead letter: it may leave its queue.
    Done,
    TryAgain {
        attempts: u64,
    },
}

impl FromRooms {
    /// Reads records; None of one that cannot be read. A record for the members of a room that is not registered comes back
    /// with nobody named: one query answers that for all of them, because most rooms are not registered.
    async fn read(&self, pending: &[Pending]) -> Result<Vec<Option<FollowUp>>, Error> {
        let mut records: Vec<Option<FollowUp>> = pending.iter().map(Pending::read).collect();
        let mut of_members: Vec<(Id, &mut FollowUp)> = records
            .iter_mut()
            .flatten()
            .filter(|record| record.recipients.is_none())
            .filter_map(|record| Some((room_of(record)?, record)))
            .collect();
        let rooms: HashSet<Id> = of_members.iter().map(|(room, _)| room.clone()).collect();
        if !rooms.is_empty() {
            let registered = self.members.registered(&rooms.into_iter().collect::<Vec<_>>()).await;
            let registered = match registered.map_err(Error::from) {
                // Each record is refused by itself then.
                Err(error) if !error.concerns_all() => return Ok(records),
                registered => registered?,
            };
            for (_, record) in of_members.iter_mut().filter(|(room, _)| !registered.contains(room)) {
                record.recipients = Some(Vec::new());
            }
        }
        Ok(records)
    }

    /// Who gets an entry.
    async fn recipients(&self, record: FollowUp) -> Result<Vec<Id>, Error> {
        match (record.recipients.is_none(), room_of(&record)) {
            (true, Some(room)) => Ok(record.among(self.members.members(&room).await?.unwrap_or_default())),
            _ => Ok(record.recipients.unwrap_or_default()),
        }
    }

    async fn is_recipient(&self, record: &FollowUp, room: &Id, person: &Id) -> Result<bool, Error> {
        match &record.recipients {
            Some(named) => Ok(named.contains(person)),
            None if record.publisher_id.as_ref() == Some(person) => Ok(false),
            None => Ok(self.members.standing(room, person).await? == Standing::Member),
        }
    }
}

/// Nobody can say whether there is something.
fn unknown(error: &LogError) -> Error {
    if error.may_pass() { Error::Away(error.to_string()) } else { Error::Failed(error.to_string()) }
}

fn room_of(record: &FollowUp) -> Option<Id> {
    Id::new(SubjectName::known(&record.subject).parts().1).ok()
}

/// An event of a room as people are told of it: about the room, by whoever published it.
fn notice(record: &FollowUp) -> Option<Notice> {
    let (room, id): (Id, StreamId) = (room_of(record)?, record.stream_id.parse().ok()?);
    Some(Notice {
        event: EventId::new(&format!("{room}:{id}")).ok()?,
        kind: Kind::from(&EventType::new(&record.event_type).ok()?),
        reference: Some(room),
        actor: record.publisher_id.clone(),
        payload: Object::stored(record.data.get())?,
    })
}
