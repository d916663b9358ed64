//! Publishing: one durable, atomic append; a repeated request is one event.
//!
//! Who gets an inbox entry is decided here: those named, or the registered members, as they are cached
//! ([`membership`](crate::membership)). In open mode members are looked up when the entries are made, so that events are
//! taken while the database is away.

use bongsu_kernel::json::Object;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{EventType, Id, StreamId};
use bongsu_live::log::{Once, Recipients};
use bongsu_live::{Append, AppendError, Appended, LogError};
use sha2::{Digest, Sha256};

use crate::membership::Membership;
use crate::options::Mode;
use crate::store::StoreError;
use crate::{Rooms, subject};

/// Who may be told of one event, at most.
pub const MOST_RECIPIENTS: usize = 1_000;
/// Events in one batch, at most.
pub const MOST_IN_BATCH: usize = 500;
/// Characters of an idempotency key, at most.
pub const KEY_LENGTH: usize = 256;
/// Appends of an event that compare the version of the membership, at most.
const MAX_COMPARED_APPENDS: u32 = 3;

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
    ///
    /// An event whose members have changed since they were cached is appended again, with members that are read anew. Where
    /// they change all the time, it has in the end those that were read for it, and nothing is compared.
    pub async fn publish_all(
        &self,
        events: Vec<Publish>,
    ) -> Result<Vec<Result<Published, PublishError>>, PublishError> {
        let mut outcomes = self.append_all(events.iter(), true).await?;
        for attempt in 1..=MAX_COMPARED_APPENDS {
            let stale: Vec<usize> = (0..outcomes.len()).filter(|at| outcomes[*at].is_none()).collect();
            if stale.is_empty() {
                break;
            }
            let is_compared = attempt < MAX_COMPARED_APPENDS;
            match self.append_all(stale.iter().map(|at| &events[*at]), is_compared).await {
                Ok(again) => stale.into_iter().zip(again).for_each(|(at, again)| outcomes[at] = again),
                Err(error) => stale.into_iter().for_each(|at| outcomes[at] = Some(Err(error.clone().into()))),
            }
        }
        let unanswered = || Err(LogError::Failed("an append has no outcome".to_owned()).into());
        Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(unanswered)).collect())
    }

    /// The outcome of each event; None when the cached members had changed.
    async fn append_all<'e>(
        &self,
        events: impl Iterator<Item = &'e Publish> + Send,
        is_compared: bool,
    ) -> Result<Vec<Option<Result<Published, PublishError>>>, LogError> {
        let (mut checked, mut appends) = (Vec::new(), Vec::new());
        for event in events {
            let append = self.check(event, is_compared).await;
            checked
                .push((event, append.as_ref().map(|append| append.membership_version).map_err(Clone::clone)));
            appends.extend(append);
        }
        let mut appended = self.0.log.append(appends).await?.into_iter();
        let outcomes = checked.into_iter().map(|(event, checked)| {
            let version = match checked {
                Ok(version) => version,
                Err(error) => return Some(Err(error)),
            };
            match appended.next() {
                Some(Ok(appended)) => Some(Ok(self.published(event, &appended))),
                Some(Err(AppendError::Conflict)) => Some(Err(PublishError::Conflict)),
                Some(Err(AppendError::Failed(error))) => Some(Err(PublishError::Log(error))),
                Some(Err(AppendError::StaleMembership)) => {
                    if let (Some(memberships), Some(version)) = (&self.0.memberships, version) {
                        memberships.forget(&event.room, version);
                    }
                    None
                }
                None => Some(Err(LogError::Failed("too few answers".to_owned()).into())),
            }
        });
        Ok(outcomes.collect())
    }

    fn published(&self, event: &Publish, appended: &Appended) -> Published {
        if !appended.duplicate {
            self.0.published.increment(event.event_type.as_str());
        }
        Published { id: appended.id, delivered_to: appended.audience, duplicate: appended.duplicate }
    }

    async fn check(&self, event: &Publish, is_compared: bool) -> Result<Append, PublishError> {
        if !self.0.options.allows(&event.event_type) {
            return Err(PublishError::TypeNotAllowed(event.event_type.clone()));
        }
        let (subject, publisher) = (subject(&event.room), event.publisher.as_ref());
        let named = event.recipients.as_deref().map(|named| distinct(named, publisher));
        // Of what the caller said: members come and go between a request and its repetition.
        let once = |key: String| once(key, (&event.event_type, &event.data, publisher), named.as_deref());
        let once = event.key.clone().map(once);
        let (recipients, membership_version) = self.recipients(event, named, is_compared).await?;
        Ok(Append {
            once,
            audience: u32::try_from(self.0.hub.listeners(&subject)).unwrap_or(u32::MAX),
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

    /// Who gets an entry, and the version of the membership that this follows from.
    async fn recipients(
        &self,
        event: &Publish,
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
                    // It is registered, or that is not known without asking the records.
                    _ => Ok((Recipients::Members, None)),
                }
            }
            (Mode::Registered, named, memberships) => {
                let memberships = memberships.ok_or(PublishError::NoRoom)?;
                let Membership { version, members } =
                    if is_compared { memberships.get(room).await? } else { memberships.read(room).await? };
                let members = members.ok_or(PublishError::NoRoom)?;
                let people = match named {
                    Some(mut named) => {
                        named.retain(|named| members.binary_search(named).is_ok());
                        named
                    }
                    None => distinct(&members, event.publisher.as_ref()),
                };
                Ok((Recipients::Named(people), version))
            }
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
