//! Publishing: one durable, atomic append; a repeated request is one event.
//!
//! Who is told beside the streams is decided here: those named, or the registered members.

use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id, StreamId};
use bongsu_live::log::Once;
use bongsu_live::{Append, AppendError, LogError};
use sha2::{Digest, Sha256};

use crate::options::Mode;
use crate::store::StoreError;
use crate::{Rooms, subject};

/// Who may be told of one event, at most.
pub const MOST_RECIPIENTS: usize = 1_000;
/// Events in one batch, at most.
pub const MOST_IN_BATCH: usize = 500;
/// Characters of an idempotency key, at most.
pub const KEY_LENGTH: usize = 256;

/// An event as a service publishes it.
#[derive(Clone, Debug)]
pub struct Publish {
    pub room: Id,
    pub event_type: EventType,
    pub data: Object,
    pub publisher: Option<Id>,
    pub key: Option<String>,
    /// Nothing: the registered members of the room.
    pub recipients: Option<Vec<Id>>,
}

/// What a publisher is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub id: StreamId,
    /// Streams that listened at that moment: an estimate for people, not a receipt.
    pub delivered_to: u32,
    pub duplicate: bool,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum PublishError {
    #[error("the event type {0} is reserved or not on the list")]
    TypeNotAllowed(EventType),
    #[error("the idempotency key was used for other content")]
    Conflict,
    #[error("no such room")]
    NoRoom,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Rooms {
    pub async fn publish(&self, event: Publish) -> Result<Published, PublishError> {
        let outcomes = self.publish_all(vec![event]).await?;
        outcomes.into_iter().next().unwrap_or_else(|| Err(LogError::Failed("no answer".to_owned()).into()))
    }

    /// Publishes in the given order. Each event has an outcome of its own; an error stands for all of them.
    pub async fn publish_all(
        &self,
        events: Vec<Publish>,
    ) -> Result<Vec<Result<Published, PublishError>>, PublishError> {
        let mut checked = Vec::with_capacity(events.len());
        for event in events {
            checked.push(self.check(event).await);
        }
        let types: Vec<EventType> =
            checked.iter().flatten().map(|append| append.event_type.clone()).collect();
        let appends = checked.iter().flatten().cloned().collect();
        let mut outcomes = self.0.log.append(appends).await?.into_iter().zip(types);
        let outcomes = checked.into_iter().map(|checked| {
            checked?;
            let (outcome, event_type) =
                outcomes.next().ok_or_else(|| LogError::Failed("too few answers".to_owned()))?;
            let appended = outcome.map_err(|error| match error {
                AppendError::Conflict => PublishError::Conflict,
                AppendError::Failed(error) => PublishError::Log(error),
            })?;
            if !appended.duplicate {
                self.0.published.increment(event_type.as_str());
            }
            Ok(Published { id: appended.id, delivered_to: appended.audience, duplicate: appended.duplicate })
        });
        Ok(outcomes.collect())
    }

    async fn check(&self, event: Publish) -> Result<Append, PublishError> {
        if !self.0.options.allows(&event.event_type) {
            return Err(PublishError::TypeNotAllowed(event.event_type));
        }
        let registered = self.members(&event.room).await?;
        if self.0.options.mode == Mode::Registered && registered.is_none() {
            return Err(PublishError::NoRoom);
        }
        let (subject, publisher) = (subject(&event.room), event.publisher.as_ref());
        let named = event.recipients.as_deref().map(|named| distinct(named, publisher));
        // Of what the caller said: members come and go between a request and its repetition.
        let digest = |key: String| {
            let named = named.as_deref().unwrap_or_default();
            Once { key, digest: digest(&event.event_type, &event.data, publisher, named) }
        };
        let once = event.key.map(digest);
        let recipients = match (named, registered) {
            (Some(mut named), Some(members)) if self.0.options.mode == Mode::Registered => {
                named.retain(|named| members.binary_search(named).is_ok());
                named
            }
            (Some(named), _) => named,
            (None, members) => distinct(&members.unwrap_or_default(), publisher),
        };
        Ok(Append {
            once,
            audience: u32::try_from(self.0.hub.listeners(&subject)).unwrap_or(u32::MAX),
            keep: self.0.options.keep(&event.room),
            subject,
            event_type: event.event_type,
            data: event.data,
            publisher: event.publisher,
            recipients,
        })
    }
}

/// Each once, in order; nobody is told of what they did themselves.
fn distinct(people: &[Id], publisher: Option<&Id>) -> Vec<Id> {
    let mut people: Vec<Id> = people.iter().filter(|person| Some(*person) != publisher).cloned().collect();
    people.sort_unstable();
    people.dedup();
    people
}

/// Of everything that makes two publishes the same: some clients write the members of an object in another order
/// each time, so that order does not count.
fn digest(event_type: &EventType, data: &Object, publisher: Option<&Id>, recipients: &[Id]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    // None of these can contain a line break.
    let mut part = |text: &str| {
        hasher.update(text.as_bytes());
        hasher.update(b"\n");
    };
    part(event_type.as_str());
    part(&data.canonical());
    part(publisher.map_or("", Id::as_str));
    for recipient in recipients {
        part(recipient.as_str());
    }
    hasher.finalize().into()
}
