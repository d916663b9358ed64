//! Messages: what streams send. A message keeps its fields; the `encode` module writes it for the wire.
//!
//! Nothing reads encoded bytes back: whoever needs a field takes it from the message.

use std::fmt::{self, Write};
use std::sync::Arc;

use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_kernel::text::Language;
use bongsu_kernel::{EventType, Id, Millis, StreamId};

use crate::control::{self, Removed};
use crate::log::{Entry, Passing, Place};

/// One message to a client.
#[derive(Clone, Debug)]
pub struct Message {
    /// None for messages whose data alone says what happened.
    pub event: Option<EventName>,
    /// None for what no source holds: nobody comes back to it.
    pub id: Option<MessageId>,
    pub data: Data,
}

#[derive(Clone, Debug)]
pub enum EventName {
    Type(EventType),
    /// A name of the hub's own.
    Own(&'static str),
}

/// An id as clients are told it, and come back with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageId {
    Entry(StreamId),
    Number(i64),
}

/// The data of a message: a JSON object.
#[derive(Clone, Debug)]
pub enum Data {
    /// The message only says where the stream stands.
    None,
    /// The same for everybody.
    Json(Box<str>),
    /// In the reader's language.
    Localized(Arc<dyn Localized>),
}

/// Data with wording for people.
pub trait Localized: fmt::Debug + Send + Sync {
    /// The JSON object in a language.
    fn json(&self, language: Language) -> String;

    /// About how many bytes it takes in memory.
    fn size(&self) -> usize;
}

/// An entry of a subject, as its source gives it to readers.
#[derive(Clone, Debug)]
pub struct Item {
    pub place: Place,
    /// Whose right ends here.
    pub(crate) removes: Option<Removed>,
    /// None for records that are no events.
    pub message: Option<Message>,
}

impl Item {
    pub fn new(place: Place, message: Message) -> Self {
        Self { place, removes: None, message: Some(message) }
    }

    /// A place that nobody is told of.
    pub fn silent(place: Place) -> Self {
        Self { place, removes: None, message: None }
    }

    /// Whether the person may not read on from here.
    pub fn ends_right_of(&self, person: &Id) -> bool {
        self.removes.as_ref().is_some_and(|removed| removed.concerns(person))
    }

    /// An entry of a log. Records in it are for the hub alone; `message` makes the message of an event.
    pub fn of_entry(entry: &Entry, message: impl FnOnce(&Entry) -> Message) -> Self {
        let is_event = !control::is_control(entry);
        let message = is_event.then(|| message(entry));
        Self { place: entry.place, removes: control::removed(entry), message }
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(id) => id.fmt(f),
            Self::Number(number) => number.fmt(f),
        }
    }
}

impl AsRef<str> for EventName {
    fn as_ref(&self) -> &str {
        match self {
            Self::Type(event_type) => event_type.as_str(),
            Self::Own(name) => name,
        }
    }
}

impl Message {
    /// A stored event of a room: the published object plus `timestamp`.
    pub(crate) fn of_event(entry: &Entry) -> Self {
        let id = Some(MessageId::Entry(entry.place.id));
        Self { id, ..timed(&entry.event_type, &entry.data, entry.at) }
    }

    /// An event that no log holds.
    pub(crate) fn passing(passing: &Passing) -> Self {
        timed(&passing.event_type, &passing.data, passing.at)
    }

    /// An event with a name of the hub's own.
    pub fn own(event: &'static str, id: Option<MessageId>, data: Data) -> Self {
        Self { event: Some(EventName::Own(event)), id, data }
    }

    /// Where a stream stands, for a client that may drop before its next event.
    pub(crate) fn place(id: MessageId) -> Self {
        Self { event: None, id: Some(id), data: Data::None }
    }

    /// The log no longer holds what the client asked for. It carries no id: a client that drops right after this keeps its
    /// old position, and is told again.
    pub(crate) fn reset_trimmed(oldest: MessageId) -> Self {
        Self::system("system.reset", None, format!("{{\"reason\":\"trimmed\",\"oldestId\":\"{oldest}\"}}"))
    }

    /// The client's position names nothing that the log knows. The id is where the stream goes on from, so that a client
    /// that drops right after this comes back to there; None where all that is left follows: who drops is told again.
    pub(crate) fn reset_unknown(now: Option<MessageId>) -> Self {
        Self::system("system.reset", now, "{\"reason\":\"unknown\"}".to_owned())
    }

    /// More followed on the client's position than was told. The id is where the stream goes on from.
    pub(crate) fn reset_cut(now: MessageId) -> Self {
        Self::system("system.reset", Some(now), "{\"reason\":\"trimmed\"}".to_owned())
    }

    /// Events were trimmed before a slow reader took them.
    pub(crate) fn lagged(missed: Option<u64>) -> Self {
        let missed = missed.map_or("null".to_owned(), |missed| missed.to_string());
        Self::system("system.lagged", None, format!("{{\"missed\":{missed}}}"))
    }

    /// The person may no longer read one of the subjects of a connection; the others go on.
    pub(crate) fn removed(data: String) -> Self {
        Self::system("system.removed", None, data)
    }

    fn system(event: &'static str, id: Option<MessageId>, data: String) -> Self {
        Self::own(event, id, Data::Json(data.into()))
    }

    /// About how many bytes it takes in memory.
    pub(crate) fn size(&self) -> usize {
        match &self.data {
            Data::None => 0,
            Data::Json(data) => data.len(),
            Data::Localized(data) => data.size(),
        }
    }
}

fn timed(event_type: &EventType, data: &Object, at: Millis) -> Message {
    let data = with_member(data.as_str(), format_args!("\"timestamp\":\"{}\"", rfc3339(at)));
    Message { event: Some(EventName::Type(event_type.clone())), id: None, data: Data::Json(data.into()) }
}

/// A JSON object with one more member.
pub(crate) fn with_member(object: &str, member: impl fmt::Display) -> String {
    let members = object.strip_suffix('}').unwrap_or(object);
    let comma = if members.len() > 1 { "," } else { "" };
    let mut out = String::with_capacity(object.len() + 64);
    // Writing to a string cannot fail.
    let _ = write!(out, "{members}{comma}{member}}}");
    out
}
