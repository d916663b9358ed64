//! A notification (event id, type, actor, reference, payload) and a person's inbox entry of it.
//!
//! A notification is stored once for all its recipients. An [`InboxEntry`] holds what differs per person: sequence number
//! and read time.

use std::fmt;
use std::sync::Arc;

use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id, Millis, Reason, StreamId};
use bongsu_sql::{Error, Row};
use serde::{Serialize, Serializer};

/// Identifies a notification, so that a repeated request creates no second one: an id that a service chose, or
/// `<room>:<stream id>` for an event of a room. These are two name spaces; the [`NotificationType`] says to which of
/// them an id belongs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventId(Arc<str>);

impl EventId {
    pub const MAX_LEN: usize = 192;

    pub fn new(text: &str) -> Result<Self, Reason> {
        if text.len() > Self::MAX_LEN {
            return Err(Reason::TooLong(Self::MAX_LEN));
        }
        // The allowed characters are those of an Id, which is shorter: so the text is checked in two parts.
        let (first, rest) = text.split_at(text.len().min(Id::MAX_LEN));
        Id::new(first)?;
        if !rest.is_empty() {
            Id::new(rest)?;
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The room and the stream id, if this has the form of a room event's id. The id of a room may contain colons as
    /// well.
    pub(crate) fn of_room(&self) -> Option<(Id, StreamId)> {
        let (room, id) = self.0.rsplit_once(':')?;
        Some((Id::new(room).ok()?, id.parse().ok()?))
    }
}

/// Like [`Id`]: an id that is a plain number is serialized as a JSON number.
impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match Id::new(&self.0) {
            Ok(id) => id.serialize(serializer),
            Err(_) => serializer.serialize_str(&self.0),
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A name in capitals that a service chose (`POST_LIKE`), or the event type of a room event (`comment.created`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NotificationType(Arc<str>);

impl NotificationType {
    /// Parses a type that a service may use: capitals, digits and underscores, beginning with a capital.
    pub fn of_service(text: &str) -> Result<Self, Reason> {
        let is_allowed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        match text.as_bytes() {
            [] => Err(Reason::Empty),
            all if all.len() > Id::MAX_LEN => Err(Reason::TooLong(Id::MAX_LEN)),
            [first, rest @ ..] if first.is_ascii_uppercase() && rest.iter().copied().all(is_allowed) => {
                Ok(Self(text.into()))
            }
            _ => Err(Reason::NotificationType),
        }
    }

    /// A type of either form.
    pub fn new(text: &str) -> Result<Self, Reason> {
        Self::of_service(text).or_else(|_| EventType::new(text).map(|kind| Self(kind.as_str().into())))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the type of a room event: only these contain a dot. The generated column `of_room` uses the same
    /// rule.
    pub(crate) fn is_of_room(&self) -> bool {
        self.0.contains('.')
    }
}

impl From<&EventType> for NotificationType {
    fn from(kind: &EventType) -> Self {
        Self(kind.as_str().into())
    }
}

/// The content of a notification, the same for all recipients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    pub event: EventId,
    pub kind: NotificationType,
    pub reference: Option<Id>,
    pub actor: Option<Id>,
    pub payload: Object,
}

/// One person's inbox entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxEntry {
    /// The sequence number in the person's inbox, which is the entry's id in the API.
    pub seq: u64,
    pub notification: Notification,
    pub created_at: Millis,
    pub read_at: Option<Millis>,
}

impl Notification {
    /// Reads five columns, beginning with the column `from`: event id, type, reference, actor, payload.
    pub(crate) fn read(row: &Row, from: usize) -> Result<Self, Error> {
        let unreadable =
            |column: &str| Error::Failed(format!("the {column} of a stored notification is invalid"));
        Ok(Self {
            event: EventId::new(row.text(from)?).map_err(|_| unreadable("event id"))?,
            kind: NotificationType(row.text(from + 1)?.into()),
            reference: row.maybe_id(from + 2)?,
            actor: row.maybe_id(from + 3)?,
            payload: Object::from_stored(row.text(from + 4)?).ok_or_else(|| unreadable("payload"))?,
        })
    }
}

impl InboxEntry {
    /// Reads the columns of the queries that return entries.
    pub(crate) fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            seq: row.count(0)?,
            notification: Notification::read(row, 1)?,
            created_at: row.count(6)?,
            read_at: row.maybe_count(7)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_id_may_consist_of_a_room_and_a_stream_id() {
        let longest = format!("{}:{}-0", "r".repeat(128), u64::MAX);
        for good in ["1", "018f-uuid", "42:1708070400000-0", &longest] {
            assert_eq!(EventId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a/b", &"x".repeat(193), &format!("{} ", "x".repeat(150))] {
            assert!(EventId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_type_is_a_name_in_capitals_or_an_event_type() {
        for good in ["FOLLOW", "POST_LIKE", "V2", "comment.created"] {
            assert_eq!(NotificationType::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "_A", "2A", "a b", "Ä", &"A".repeat(129)] {
            assert!(NotificationType::new(bad).is_err(), "{bad}");
        }
        assert!(NotificationType::of_service("comment.created").is_err());
    }
}
