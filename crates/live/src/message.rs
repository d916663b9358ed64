//! The messages that streams send. A message keeps its fields; the module `encode` writes it in a wire format.
//!
//! Encoded bytes are never parsed again: code that needs a field takes it from the message.

use std::fmt::{self, Write};
use std::sync::Arc;

use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_kernel::text::Language;
use bongsu_kernel::{EventType, Id, Millis, StreamId};

use crate::control::{self, Removal};
use crate::log::{EphemeralMessage, LogEntry, LogPosition};

/// One message to a client.
#[derive(Clone, Debug)]
pub struct Message {
    /// None for messages without an event name, such as one that only carries a position.
    pub event: Option<EventName>,
    /// None for messages that no source holds: no client resumes after them.
    pub id: Option<MessageId>,
    pub data: Data,
}

#[derive(Clone, Debug)]
pub enum EventName {
    Type(EventType),
    /// A name that the hub defines.
    BuiltIn(&'static str),
}

/// The id of a message as clients get it and send it back when they reconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageId {
    Entry(StreamId),
    Number(i64),
}

/// The data of a message: a JSON object.
#[derive(Clone, Debug)]
pub enum Data {
    /// The message only carries the position of the stream.
    None,
    /// The same for all recipients.
    Json(Box<str>),
    /// In the language of the connection.
    LocalizedMessage(Arc<dyn LocalizedMessage>),
}

/// Data that contains text in the language of its reader.
pub trait LocalizedMessage: fmt::Debug + Send + Sync {
    /// The JSON object, with its text in this language.
    fn json(&self, language: Language) -> String;

    /// The approximate size in memory, in bytes.
    fn size(&self) -> usize;
}

/// An entry of a subject as its source passes it to readers.
#[derive(Clone, Debug)]
pub struct Item {
    pub position: LogPosition,
    /// Set on a removal record: whose access ends here.
    pub(crate) removal: Option<Removal>,
    /// None for control records and for positions without a message.
    pub message: Option<Message>,
}

impl Item {
    pub fn new(position: LogPosition, message: Message) -> Self {
        Self { position, removal: None, message: Some(message) }
    }

    /// A position without a message.
    pub fn without_message(position: LogPosition) -> Self {
        Self { position, removal: None, message: None }
    }

    /// Whether this is a record that removes the person.
    pub fn removes(&self, person: &Id) -> bool {
        self.removal.as_ref().is_some_and(|removal| removal.applies_to(person))
    }

    /// Makes an item of a log entry. `message` makes the message of an event; control records have none.
    pub fn of_entry(entry: &LogEntry, message: impl FnOnce(&LogEntry) -> Message) -> Self {
        let is_event = !control::is_control(entry);
        let message = is_event.then(|| message(entry));
        Self { position: entry.position, removal: control::removal_of(entry), message }
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
            Self::BuiltIn(name) => name,
        }
    }
}

impl Message {
    /// The message of a stored event of a room: the published object plus `timestamp`.
    pub(crate) fn of_event(entry: &LogEntry) -> Self {
        let id = Some(MessageId::Entry(entry.position.id));
        Self { id, ..timed(&entry.event_type, &entry.data, entry.at) }
    }

    /// The message of an ephemeral event.
    pub(crate) fn ephemeral(message: &EphemeralMessage) -> Self {
        timed(&message.event_type, &message.data, message.at)
    }

    /// A message whose event name the hub defines.
    pub fn built_in(event: &'static str, id: Option<MessageId>, data: Data) -> Self {
        Self { event: Some(EventName::BuiltIn(event)), id, data }
    }

    /// A message with an id and no event, for a client that may disconnect before its next event.
    pub(crate) fn position_only(id: MessageId) -> Self {
        Self { event: None, id: Some(id), data: Data::None }
    }

    /// `system.reset`: entries after the client's position were trimmed. The message has no id, so a client that
    /// disconnects right after it keeps its old position and gets the reset again.
    pub(crate) fn reset_trimmed(oldest: MessageId) -> Self {
        Self::system("system.reset", None, format!("{{\"reason\":\"trimmed\",\"oldestId\":\"{oldest}\"}}"))
    }

    /// `system.reset`: the log does not know the client's position. `now` is where the stream continues, so a
    /// client that disconnects right after this message resumes from `now`. None when all remaining entries
    /// follow: a client that disconnects gets the reset again.
    pub(crate) fn reset_unknown(now: Option<MessageId>) -> Self {
        Self::system("system.reset", now, "{\"reason\":\"unknown\"}".to_owned())
    }

    /// `system.reset`: more entries follow the client's position than are replayed. `now` is where the stream
    /// continues.
    pub(crate) fn reset_too_far_behind(now: MessageId) -> Self {
        Self::system("system.reset", Some(now), "{\"reason\":\"trimmed\"}".to_owned())
    }

    /// `system.lagged`: `missed` events were trimmed before a slow reader got them. None: an unknown number.
    pub(crate) fn lagged(missed: Option<u64>) -> Self {
        let missed = missed.map_or("null".to_owned(), |missed| missed.to_string());
        Self::system("system.lagged", None, format!("{{\"missed\":{missed}}}"))
    }

    /// `system.removed`: the person's access to one subject of the connection ended; the other subjects continue.
    pub(crate) fn removed(data: String) -> Self {
        Self::system("system.removed", None, data)
    }

    fn system(event: &'static str, id: Option<MessageId>, data: String) -> Self {
        Self::built_in(event, id, Data::Json(data.into()))
    }

    /// The approximate size of the data in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        match &self.data {
            Data::None => 0,
            Data::Json(data) => data.len(),
            Data::LocalizedMessage(data) => data.size(),
        }
    }
}

fn timed(event_type: &EventType, data: &Object, at: Millis) -> Message {
    let data = with_member(data.as_str(), format_args!("\"timestamp\":\"{}\"", rfc3339(at)));
    Message { event: Some(EventName::Type(event_type.clone())), id: None, data: Data::Json(data.into()) }
}

/// Appends a member to a JSON object.
pub(crate) fn with_member(object: &str, member: impl fmt::Display) -> String {
    let members = object.strip_suffix('}').unwrap_or(object);
    let comma = if members.len() > 1 { "," } else { "" };
    let mut out = String::with_capacity(object.len() + 64);
    // Writing to a string cannot fail.
    let _ = write!(out, "{members}{comma}{member}}}");
    out
}
