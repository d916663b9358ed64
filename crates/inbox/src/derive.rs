//! What rooms wrote down for people becomes entries.
//!
//! A record stays where it is until its entries are durable, and an entry is unique by its event and its person: a hub
//! that dies between the two does it again, and nobody gets it twice.

mod refused;

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id, StreamId, crash_point};
use bongsu_live::SubjectName;
use bongsu_live::log::{FollowUp, FollowUps, LogError, Pending};
use bongsu_sql::Error;

use self::refused::Refused;
use crate::notify::{MOST_TARGETS, NotifyError};
use crate::{EntryId, EventId, Inbox, Kind, Notice};

/// So many records are taken at once.
const AT_ONCE: usize = 64;
/// After nothing was found, if there is no news before; and after it could not be done.
const IDLE: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(1);

/// What rooms wrote down for people and nobody has seen to yet.
pub struct FromRooms {
    /// The family of subjects that rooms are.
    pub family: &'static str,
    pub follow_ups: Arc<dyn FollowUps>,
}

impl Inbox {
    /// Turns records into entries, until it is dropped.
    pub async fn derive(self, follow_ups: Arc<dyn FollowUps>) {
        let watch = follow_ups.watch().await;
        let (mut refused, mut was_well) = (Refused::default(), true);
        loop {
            let outcome = self.derive_some(&*follow_ups, &mut refused).await;
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

    /// Gives how many it came by. What one record is refused for holds up no other; what would meet all of them does.
    async fn derive_some(&self, follow_ups: &dyn FollowUps, refused: &mut Refused) -> Result<usize, String> {
        let pending = follow_ups.take(AT_ONCE, refused.put_off()).await.map_err(|error| error.to_string())?;
        let (count, mut derived, mut outcome) = (pending.len(), Vec::new(), Ok(()));
        for one in pending {
            match self.derive_one(&one).await {
                Ok(()) => derived.push(one),
                Err(error) if error.concerns_all() || refused.is_full() => {
                    outcome = Err(error.to_string());
                    break;
                }
                Err(error) => refused.add(one, &error),
            }
        }
        if !derived.is_empty() {
            crash_point!("after-derivation");
            follow_ups.done(derived).await.map_err(|error| error.to_string())?;
        }
        outcome.map(|()| count)
    }

    /// Derives one person's entry before its turn has come, if what it is named by may be an event of a room that waits.
    /// Says whether to look for it again: either it was derived, or the one whose turn it is may just have been quicker.
    pub(crate) async fn derive_early(&self, person: &Id, entry: &EntryId) -> Result<bool, Error> {
        let (Some(rooms), EntryId::Event(event)) = (self.rooms(), entry) else { return Ok(false) };
        let Some((room, id)) = event.of_room() else { return Ok(false) };
        let found = rooms
            .follow_ups
            .find(&SubjectName::new(rooms.family, &room), id)
            .await
            .map_err(|error| unknown(&error))?;
        if let Some((notice, recipients)) = found.and_then(notice)
            && recipients.contains(person)
        {
            // Theirs alone: a thousand may ask at the same moment.
            match self.notify(notice, std::slice::from_ref(person)).await {
                Ok(_) | Err(NotifyError::Conflict) => {}
                Err(NotifyError::Records(error)) => return Err(error),
            }
        }
        Ok(true)
    }

    async fn derive_one(&self, pending: &Pending) -> Result<(), Error> {
        let Some((notice, recipients)) = pending.read().and_then(notice) else {
            // It can never be done, and would hold up all behind it.
            metrics::counter!("inbox_follow_ups_unreadable_total").increment(1);
            tracing::error!("what a room wrote down for people cannot be read, and is left out");
            return Ok(());
        };
        for some in recipients.chunks(MOST_TARGETS) {
            match self.notify(notice.clone(), some).await {
                Ok(_) => {}
                Err(NotifyError::Records(error)) => return Err(error),
                Err(NotifyError::Conflict) => {
                    tracing::error!(event = %notice.event, "an event of a room has the id of another notice");
                }
            }
        }
        Ok(())
    }
}

/// Nobody can say whether there is something.
fn unknown(error: &LogError) -> Error {
    if error.may_pass() { Error::Away(error.to_string()) } else { Error::Failed(error.to_string()) }
}

/// An event of a room as people are told of it: about the room, by whoever published it.
fn notice(record: FollowUp) -> Option<(Notice, Vec<Id>)> {
    let subject = SubjectName::known(&record.subject);
    let room = Id::new(subject.parts().1).ok()?;
    let id: StreamId = record.stream_id.parse().ok()?;
    let notice = Notice {
        event: EventId::new(&format!("{room}:{id}")).ok()?,
        kind: Kind::from(&EventType::new(&record.event_type).ok()?),
        reference: Some(room),
        actor: record.publisher_id,
        payload: Object::stored(record.data.get())?,
    };
    Some((notice, record.recipients))
}
