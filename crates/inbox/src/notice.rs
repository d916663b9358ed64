//! What happened, as people are told of it: its id, its type, who did it, what it is about.
//!
//! It is kept once for all who are told; what is one person's own is their [`Entry`].

use std::fmt;
use std::sync::Arc;

use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id, Millis, Reason, StreamId};
use bongsu_sql::{Error, Row};
use serde::{Serialize, Serializer};

/// What makes it the same notice when it is told again: an id that a service gave, or a room and the id of an event in it.
/// These are two name spaces: what belongs to which is told by the [`Kind`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EventId(Arc<str>);

impl EventId {
    pub const MAX_LEN: usize = 192;

    pub fn new(text: &str) -> Result<Self, Reason> {
        if text.len() > Self::MAX_LEN {
            return Err(Reason::TooLong(Self::MAX_LEN));
        }
        // The same characters as an id: its two halves are checked as one.
        let (one, other) = text.split_at(text.len().min(Id::MAX_LEN));
        Id::new(one)?;
        if !other.is_empty() {
            Id::new(other)?;
        }
        Ok(Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The room and the id of the event in it, if it may be one: a room's id may have colons, too.
    pub(crate) fn of_room(&self) -> Option<(Id, StreamId)> {
        let (room, id) = self.0.rsplit_once(':')?;
        Some((Id::new(room).ok()?, id.parse().ok()?))
    }
}

/// As ids travel: one that is a plain number as a number.
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

/// What kind of thing happened: a name in capitals (`POST_LIKE`), or the type of a room's event (`comment.created`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind(Arc<str>);

impl Kind {
    /// A name in capitals.
    pub fn capitals(text: &str) -> Result<Self, Reason> {
        let rest = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
        match text.as_bytes() {
            [] => Err(Reason::Empty),
            all if all.len() > Id::MAX_LEN => Err(Reason::TooLong(Id::MAX_LEN)),
            [first, others @ ..] if first.is_ascii_uppercase() && others.iter().copied().all(rest) => {
                Ok(Self(text.into()))
            }
            _ => Err(Reason::NotificationType),
        }
    }

    /// Any that an entry may have.
    pub fn new(text: &str) -> Result<Self, Reason> {
        Self::capitals(text).or_else(|_| EventType::new(text).map(|kind| Self(kind.as_str().into())))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the type of a room's event: only these have dots. The column `of_room` says the same.
    pub(crate) fn is_of_room(&self) -> bool {
        self.0.contains('.')
    }
}

impl From<&EventType> for Kind {
    fn from(kind: &EventType) -> Self {
        Self(kind.as_str().into())
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub event: EventId,
    pub kind: Kind,
    pub reference: Option<Id>,
    pub actor: Option<Id>,
    pub payload: Object,
}

/// One person's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number in the person's inbox, which is its id there.
    pub seq: u64,
    pub notice: Notice,
    pub created_at: Millis,
    pub read_at: Option<Millis>,
}

impl Notice {
    /// From five columns: event, type, reference, actor, payload.
    pub(crate) fn read(row: &Row, from: usize) -> Result<Self, Error> {
        let unreadable = |what: &str| Error::Failed(format!("an entry's {what} is not readable"));
        Ok(Self {
            event: EventId::new(row.text(from)?).map_err(|_| unreadable("event id"))?,
            kind: Kind(row.text(from + 1)?.into()),
            reference: row.maybe_id(from + 2)?,
            actor: row.maybe_id(from + 3)?,
            payload: Object::stored(row.text(from + 4)?).ok_or_else(|| unreadable("payload"))?,
        })
    }
}

impl Entry {
    /// From the columns of the queries that give entries.
    pub(crate) fn read(row: &Row) -> Result<Self, Error> {
        Ok(Self {
            seq: row.count(0)?,
            notice: Notice::read(row, 1)?,
            created_at: row.count(6)?,
            read_at: row.maybe_count(7)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_events_may_name_a_room_and_an_event_in_it() {
        let longest = format!("{}:{}-0", "r".repeat(128), u64::MAX);
        for good in ["1", "018f-uuid", "42:1708070400000-0", &longest] {
            assert_eq!(EventId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a/b", &"x".repeat(193), &format!("{} ", "x".repeat(150))] {
            assert!(EventId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn kinds_are_names_in_capitals_or_types_of_events() {
        for good in ["FOLLOW", "POST_LIKE", "V2", "comment.created"] {
            assert_eq!(Kind::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "_A", "2A", "a b", "Ä", &"A".repeat(129)] {
            assert!(Kind::new(bad).is_err(), "{bad}");
        }
        assert!(Kind::capitals("comment.created").is_err());
    }
}
