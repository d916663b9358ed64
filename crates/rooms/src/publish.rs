//! Publishing: one durable, atomic append; a repeated request is one event.
//!
//! Who gets an inbox entry is decided here: those named, or the registered members. In open mode that needs no
//! records: members are looked up when the entries are made, so that events are taken while the database is away.

use bongsu_kernel::json::Object;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{EventType, Id, StreamId};
use bongsu_live::log::{Once, Recipients};
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
    /// The trace that the event belongs to. It is no part of the content.
    pub trace: Option<TraceParent>,
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
    #[error("recipients get inbox entries, and nothing is recorded: RECORDS is off")]
    NoRecords,
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
        let (subject, publisher) = (subject(&event.room), event.publisher.as_ref());
        let named = event.recipients.as_deref().map(|named| distinct(named, publisher));
        // Of what the caller said: members come and go between a request and its repetition.
        let once = |key: String| once(key, (&event.event_type, &event.data, publisher), named.as_deref());
        let once = event.key.map(once);
        let recipients = match self.0.options.mode {
            Mode::Open => self.recipients(named)?,
            Mode::Registered => {
                let members = self.members(&event.room).await?.ok_or(PublishError::NoRoom)?;
                Recipients::Named(match named {
                    Some(mut named) => {
                        named.retain(|named| members.binary_search(named).is_ok());
                        named
                    }
                    None => distinct(&members, publisher),
                })
            }
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
            trace: event.trace,
        })
    }

    /// Who gets an entry in open mode, as far as that is known without asking the records.
    fn recipients(&self, named: Option<Vec<Id>>) -> Result<Recipients, PublishError> {
        match (named, &self.0.store) {
            (Some(named), None) if !named.is_empty() => Err(PublishError::NoRecords),
            (Some(named), _) => Ok(Recipients::Named(named)),
            (None, Some(store)) if store.may_have_rooms() => Ok(Recipients::Members),
            (None, _) => Ok(Recipients::NONE),
        }
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
fn once(
    key: String,
    (event_type, data, publisher): (&EventType, &Object, Option<&Id>),
    recipients: Option<&[Id]>,
) -> Once {
    let mut hasher = Sha256::new();
    // None of these can contain a line break.
    for part in [event_type.as_str(), &data.canonical(), publisher.map_or("", Id::as_str)] {
        add_part(&mut hasher, part);
    }
    // Earlier versions took missing recipients and an empty list for the same. Neither mark is an id.
    let without_recipients = hasher.clone().finalize().into();
    let (parts, earlier_digest) = match recipients {
        None => (vec!["*"], Some(without_recipients)),
        Some([]) => (vec![""], Some(without_recipients)),
        Some(named) => (named.iter().map(Id::as_str).collect(), None),
    };
    for part in parts {
        add_part(&mut hasher, part);
    }
    Once { key, digest: hasher.finalize().into(), earlier_digest }
}

fn add_part(hasher: &mut Sha256, part: &str) {
    hasher.update(part.as_bytes());
    hasher.update(b"\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_recipients_and_an_empty_list_differ_and_match_what_earlier_versions_stored() {
        let (event_type, publisher) = (EventType::new("a.b").unwrap(), Id::new("1").unwrap());
        let data = Object::stored("{\"b\":1,\"a\":2}").unwrap();
        let of = |recipients: Option<&[Id]>| {
            once("k".to_owned(), (&event_type, &data, Some(&publisher)), recipients)
        };
        let (missing, nobody) = (of(None), of(Some(&[])));
        assert_ne!(missing.digest, nobody.digest);
        let before: [u8; 32] = Sha256::digest("a.b\n{\"a\":2,\"b\":1}\n1\n").into();
        assert_eq!([missing.earlier_digest, nobody.earlier_digest], [Some(before); 2]);
        // Digests of those who are named are what they were.
        let named = of(Some(&[Id::new("7").unwrap(), Id::new("8").unwrap()]));
        let before: [u8; 32] = Sha256::digest("a.b\n{\"a\":2,\"b\":1}\n1\n7\n8\n").into();
        assert_eq!((named.digest, named.earlier_digest), (before, None));
    }
}
