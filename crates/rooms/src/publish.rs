//! Publishing: each event is one durable, atomic append. A repeated request with the same idempotency key has one
//! effect.
//!
//! The recipients, who get an inbox entry, are the people that the request names, or else the registered members. In
//! registered mode the members come from the cache ([`membership`](crate::membership)). In open mode they are read when
//! the inbox entries are made, so that events are accepted while the database is unavailable.

use bongsu_kernel::json::Object;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{EventType, Id, StreamId};
use bongsu_live::log::{Idempotency, Recipients};
use bongsu_live::{Append, AppendError, AppendOutcome, LogError};
use sha2::{Digest, Sha256};

use crate::membership::Membership;
use crate::options::Mode;
use crate::store::StoreError;
use crate::{Rooms, subject};

/// Maximum number of recipients that one event names.
pub const MAX_RECIPIENTS: usize = 1_000;
/// Maximum number of events in one batch.
pub const MAX_BATCH_SIZE: usize = 500;
/// Maximum number of characters of an idempotency key.
pub const MAX_KEY_LEN: usize = 256;
/// Attempts to append an event that compare the membership version; the next attempt compares none.
const MAX_COMPARED_APPENDS: u32 = 3;

/// An event as a service publishes it.
#[derive(Clone, Debug)]
pub struct PublishRequest {
    pub room: Id,
    pub event_type: EventType,
    pub data: Object,
    pub publisher: Option<Id>,
    pub key: Option<String>,
    /// None: the registered members of the room.
    pub recipients: Option<Vec<Id>>,
    /// The trace that the event belongs to. Not part of the content digest.
    pub trace: Option<TraceParent>,
}

/// The result of publishing an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishOutcome {
    pub id: StreamId,
    /// The number of subscribers when the event was published: an estimate, not a receipt.
    pub delivered_to: u32,
    pub duplicate: bool,
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum PublishError {
    #[error("the event type {0} is reserved or not listed in EVENT_TYPES")]
    TypeNotAllowed(EventType),
    #[error("the idempotency key was used for other content")]
    Conflict,
    #[error("the room does not exist")]
    NoRoom,
    #[error("recipients need inbox entries, but records are off (RECORDS=off)")]
    NoRecords,
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Rooms {
    pub async fn publish(&self, event: PublishRequest) -> Result<PublishOutcome, PublishError> {
        let missing = || Err(LogError::Failed("the event has no outcome".to_owned()).into());
        self.publish_all(vec![event]).await?.into_iter().next().unwrap_or_else(missing)
    }

    /// Publishes events in the given order. Each event has an outcome of its own; an `Err` means that all events
    /// failed.
    ///
    /// When the members of a room have changed since they were cached, the append of an event is refused and repeated
    /// with members that are read again. The last attempt compares no version, so that constant changes cannot block an
    /// event.
    pub async fn publish_all(
        &self,
        events: Vec<PublishRequest>,
    ) -> Result<Vec<Result<PublishOutcome, PublishError>>, PublishError> {
        let mut outcomes = self.append_all(events.iter(), true).await?;
        for attempt in 1..=MAX_COMPARED_APPENDS {
            let stale: Vec<usize> = (0..outcomes.len()).filter(|index| outcomes[*index].is_none()).collect();
            if stale.is_empty() {
                break;
            }
            let is_compared = attempt < MAX_COMPARED_APPENDS;
            match self.append_all(stale.iter().map(|index| &events[*index]), is_compared).await {
                Ok(retried) => {
                    stale.into_iter().zip(retried).for_each(|(index, outcome)| outcomes[index] = outcome);
                }
                Err(error) => {
                    stale.into_iter().for_each(|index| outcomes[index] = Some(Err(error.clone().into())));
                }
            }
        }
        let missing = || Err(LogError::Failed("the event has no outcome".to_owned()).into());
        Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(missing)).collect())
    }

    /// Returns the outcome of each event; None when its append was refused because of a stale membership.
    async fn append_all<'e>(
        &self,
        events: impl Iterator<Item = &'e PublishRequest> + Send,
        is_compared: bool,
    ) -> Result<Vec<Option<Result<PublishOutcome, PublishError>>>, LogError> {
        let (mut prepared, mut appends) = (Vec::new(), Vec::new());
        for event in events {
            let append = self.prepare(event, is_compared).await;
            prepared
                .push((event, append.as_ref().map(|append| append.membership_version).map_err(Clone::clone)));
            appends.extend(append);
        }
        let mut appended = self.0.log.append(appends).await?.into_iter();
        let outcomes = prepared.into_iter().map(|(event, prepared)| {
            let version = match prepared {
                Ok(version) => version,
                Err(error) => return Some(Err(error)),
            };
            match appended.next() {
                Some(Ok(appended)) => Some(Ok(self.outcome(event, &appended))),
                Some(Err(AppendError::Conflict)) => Some(Err(PublishError::Conflict)),
                Some(Err(AppendError::Failed(error))) => Some(Err(PublishError::Log(error))),
                Some(Err(AppendError::StaleMembership)) => {
                    if let (Some(memberships), Some(version)) = (&self.0.memberships, version) {
                        memberships.remove(&event.room, version);
                    }
                    None
                }
                None => Some(Err(LogError::Failed("the log returned too few outcomes".to_owned()).into())),
            }
        });
        Ok(outcomes.collect())
    }

    fn outcome(&self, event: &PublishRequest, appended: &AppendOutcome) -> PublishOutcome {
        if !appended.duplicate {
            self.0.published.increment(event.event_type.as_str());
        }
        PublishOutcome { id: appended.id, delivered_to: appended.audience, duplicate: appended.duplicate }
    }

    async fn prepare(&self, event: &PublishRequest, is_compared: bool) -> Result<Append, PublishError> {
        if !self.0.options.allows(&event.event_type) {
            return Err(PublishError::TypeNotAllowed(event.event_type.clone()));
        }
        let (subject, publisher) = (subject(&event.room), event.publisher.as_ref());
        let named = event.recipients.as_deref().map(|named| distinct(named, publisher));
        // The digest covers the recipients of the request, because the members may change before it is repeated.
        let digest =
            |key: String| idempotency(key, (&event.event_type, &event.data, publisher), named.as_deref());
        let idempotency = event.key.clone().map(digest);
        let (recipients, membership_version) = self.recipients(event, named, is_compared).await?;
        Ok(Append {
            idempotency,
            audience: u32::try_from(self.0.hub.subscriber_count(&subject)).unwrap_or(u32::MAX),
            keep: self.0.options.keep(&event.room),
            subject,
            event_type: event.event_type.clone(),
            data: event.data.clone(),
            publisher: event.publisher.clone(),
            recipients,
            membership_version,
            trace: event.trace,
        })
    }

    /// Returns the recipients of an inbox entry, and the version of the room's membership from which they were taken.
    async fn recipients(
        &self,
        event: &PublishRequest,
        named: Option<Vec<Id>>,
        is_compared: bool,
    ) -> Result<(Recipients, Option<u64>), PublishError> {
        let (room, memberships) = (&event.room, self.0.memberships.as_ref());
        match (self.0.options.mode, named, memberships) {
            (Mode::Open, Some(named), None) if !named.is_empty() => Err(PublishError::NoRecords),
            (Mode::Open, Some(named), _) => Ok((Recipients::Named(named), None)),
            (Mode::Open, None, None) => Ok((Recipients::NONE, None)),
            (Mode::Open, None, Some(memberships)) => {
                match memberships.cached(room).await.filter(|_| is_compared) {
                    Some(Membership { version, members: None }) => Ok((Recipients::NONE, version)),
                    // The room is registered, or has no cached membership.
                    _ => Ok((Recipients::Members, None)),
                }
            }
            (Mode::Registered, named, memberships) => {
                let memberships = memberships.ok_or(PublishError::NoRoom)?;
                let Membership { version, members } =
                    if is_compared { memberships.get(room).await? } else { memberships.read(room).await? };
                let members = members.ok_or(PublishError::NoRoom)?;
                let recipients = match named {
                    Some(mut named) => {
                        named.retain(|named| members.binary_search(named).is_ok());
                        named
                    }
                    None => distinct(&members, event.publisher.as_ref()),
                };
                Ok((Recipients::Named(recipients), version))
            }
        }
    }
}

/// Sorts the people, and removes duplicates and the publisher, who is not notified of their own event.
fn distinct(people: &[Id], publisher: Option<&Id>) -> Vec<Id> {
    let mut people: Vec<Id> = people.iter().filter(|person| Some(*person) != publisher).cloned().collect();
    people.sort_unstable();
    people.dedup();
    people
}

/// Digests the fields that must be equal for two requests to be the same event. The order of the members of JSON
/// objects does not count, because some clients change it when they repeat a request.
fn idempotency(
    key: String,
    (event_type, data, publisher): (&EventType, &Object, Option<&Id>),
    recipients: Option<&[Id]>,
) -> Idempotency {
    let mut hasher = Sha256::new();
    // The separator is a line break, which none of the parts contains.
    for part in [event_type.as_str(), &data.canonical(), publisher.map_or("", Id::as_str)] {
        add_part(&mut hasher, part);
    }
    // Earlier versions gave missing recipients and an empty list the same digest. "*" and "" are not valid ids.
    let without_recipients = hasher.clone().finalize().into();
    let (parts, earlier_digest) = match recipients {
        None => (vec!["*"], Some(without_recipients)),
        Some([]) => (vec![""], Some(without_recipients)),
        Some(named) => (named.iter().map(Id::as_str).collect(), None),
    };
    for part in parts {
        add_part(&mut hasher, part);
    }
    Idempotency { key, digest: hasher.finalize().into(), earlier_digest }
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
        let data = Object::from_stored("{\"b\":1,\"a\":2}").unwrap();
        let digest = |recipients: Option<&[Id]>| {
            idempotency("k".to_owned(), (&event_type, &data, Some(&publisher)), recipients)
        };
        let (missing, nobody) = (digest(None), digest(Some(&[])));
        assert_ne!(missing.digest, nobody.digest);
        let before: [u8; 32] = Sha256::digest("a.b\n{\"a\":2,\"b\":1}\n1\n").into();
        assert_eq!([missing.earlier_digest, nobody.earlier_digest], [Some(before); 2]);
        // The digest with named recipients has not changed.
        let named = digest(Some(&[Id::new("7").unwrap(), Id::new("8").unwrap()]));
        let before: [u8; 32] = Sha256::digest("a.b\n{\"a\":2,\"b\":1}\n1\n7\n8\n").into();
        assert_eq!((named.digest, named.earlier_digest), (before, None));
    }
}
