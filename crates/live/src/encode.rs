//! Encoders: messages as bytes of a wire format, in the language of a connection.
//!
//! Connections with the same encoding of a subject get the same bytes, which the ring buffer makes once for all of
//! them.

use std::fmt::{self, Write};

use bongsu_http::websocket;
use bongsu_kernel::text::Language;
use bongsu_kernel::{Id, StreamId, sse};
use bytes::Bytes;

use crate::message::{Data, Message, with_member};

/// The format and the language, which determine the bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoding {
    pub(crate) format: Format,
    language: Language,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// An SSE frame of a stream of one subject.
    Sse,
    /// An SSE frame without an id. A stream of several subjects writes the composite position in front of
    /// each.
    SsePart,
    /// A WebSocket message.
    WebSocket,
}

/// A subject of a connection that may have several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Room(Id),
    /// The person's inbox.
    Inbox,
}

/// Encodes messages of one subject for a connection. Encoders of one subject that have the same encoding write the same
/// bytes.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    pub(crate) encoding: Encoding,
    /// The JSON member that names the subject. None for a stream of one subject, and for the inbox on SSE.
    member: Option<Box<str>>,
}

impl Encoder {
    pub(crate) fn sse(language: Language) -> Self {
        Self { encoding: Encoding { format: Format::Sse, language }, member: None }
    }

    pub(crate) fn sse_part(target: &Target, language: Language) -> Self {
        let member = match target {
            Target::Room(room) => Some(format!("\"roomId\":{}", id_as_json(room)).into()),
            Target::Inbox => None,
        };
        Self { encoding: Encoding { format: Format::SsePart, language }, member }
    }

    pub(crate) fn websocket(target: &Target, language: Language) -> Self {
        let member = Some(target.to_string().into());
        Self { encoding: Encoding { format: Format::WebSocket, language }, member }
    }

    /// The encoding under which the bytes of a message are shared. Without localized text, all languages share one
    /// encoding.
    pub(crate) fn encoding_of(&self, message: &Message) -> Encoding {
        match message.data {
            Data::LocalizedMessage(_) => self.encoding,
            Data::None | Data::Json(_) => Encoding { language: Language::default(), ..self.encoding },
        }
    }

    pub(crate) fn encode(&self, message: &Message) -> Bytes {
        let localized;
        let data = match &message.data {
            Data::None => None,
            Data::Json(data) => Some(&**data),
            Data::LocalizedMessage(data) => {
                localized = data.json(self.encoding.language);
                Some(&*localized)
            }
        };
        let event = message.event.as_ref().map(AsRef::as_ref);
        let id = message.id.as_ref().map(|id| id as &dyn fmt::Display);
        match (self.encoding.format, &self.member) {
            (Format::Sse, _) => sse::frame(event, id, data).into(),
            (Format::SsePart, None) => sse::frame(event, None, data).into(),
            (Format::SsePart, Some(member)) => {
                let data = data.map(|data| with_member(data, member));
                sse::frame(event, None, data.as_deref()).into()
            }
            (Format::WebSocket, member) => {
                websocket::text(websocket_message(event, id, member.as_deref(), data).as_bytes())
            }
        }
    }
}

/// `{"event","id","room","data"}`. Event names and ids contain no character that JSON escapes.
fn websocket_message(
    event: Option<&str>,
    id: Option<&dyn fmt::Display>,
    member: Option<&str>,
    data: Option<&str>,
) -> String {
    let mut out = String::with_capacity(data.map_or(0, str::len) + 128);
    // A message without data has no event name either: it only carries a position.
    let _ = write!(out, "{{\"event\":\"{}\"", event.unwrap_or("system.position"));
    if let Some(id) = id {
        let _ = write!(out, ",\"id\":\"{id}\"");
    }
    if let Some(member) = member {
        let _ = write!(out, ",{member}");
    }
    if let Some(data) = data {
        let _ = write!(out, ",\"data\":{data}");
    }
    out.push('}');
    out
}

impl fmt::Display for Target {
    /// The member that names the subject in a WebSocket message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Room(room) => write!(f, "\"room\":{}", id_as_json(room)),
            Self::Inbox => f.write_str("\"inbox\":true"),
        }
    }
}

/// An id as JSON: as a number if it has the form of one.
fn id_as_json(id: &Id) -> String {
    serde_json::to_string(id).unwrap_or_default()
}

/// Encoded messages, ready to be written.
#[derive(Debug)]
pub(crate) enum Frames {
    Joined(Bytes),
    /// Each frame with its position, from which a stream of several subjects makes the id in front of the frame.
    Separate(Vec<(Option<StreamId>, Bytes)>),
}

impl Frames {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Joined(bytes) => bytes.is_empty(),
            Self::Separate(frames) => frames.is_empty(),
        }
    }

    /// The bytes, for connections that need no composite position.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            Self::Joined(bytes) => bytes,
            Self::Separate(frames) => {
                frames.iter().flat_map(|(_, frame)| frame.iter().copied()).collect::<Vec<u8>>().into()
            }
        }
    }
}

/// Collects the encoded messages of one write.
pub(crate) struct FrameWriter<'a> {
    encoder: &'a Encoder,
    joined: Vec<u8>,
    separate: Vec<(Option<StreamId>, Bytes)>,
}

impl<'a> FrameWriter<'a> {
    pub(crate) fn new(encoder: &'a Encoder) -> Self {
        Self { encoder, joined: Vec::new(), separate: Vec::new() }
    }

    /// `position` is the client's position after this message; None if the message does not change it.
    pub(crate) fn push(&mut self, message: &Message, position: Option<StreamId>) {
        let frame = self.encoder.encode(message);
        match self.encoder.encoding.format {
            Format::SsePart => self.separate.push((position, frame)),
            Format::Sse | Format::WebSocket => self.joined.extend_from_slice(&frame),
        }
    }

    pub(crate) fn finish(self) -> Frames {
        match self.encoder.encoding.format {
            Format::SsePart => Frames::Separate(self.separate),
            Format::Sse | Format::WebSocket => Frames::Joined(self.joined.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bongsu_kernel::EventType;
    use bongsu_kernel::json::Object;

    use super::*;
    use crate::message::{LocalizedMessage, MessageId};
    use crate::{LogEntry, LogPosition};

    fn text(encoder: &Encoder, message: &Message) -> String {
        let bytes = encoder.encode(message);
        let head = usize::from(encoder.encoding.format == Format::WebSocket) * 2;
        String::from_utf8(bytes[head..].to_vec()).unwrap()
    }

    fn event(data: &str) -> Message {
        Message::of_event(&LogEntry {
            position: LogPosition { id: StreamId::new(1_708_070_400_000, 0), number: None },
            event_type: EventType::new("retrospect.submitted").unwrap(),
            data: Object::from_stored(data).unwrap(),
            publisher: None,
            at: 1_771_237_800_000,
            trace: None,
        })
    }

    #[derive(Debug)]
    struct Greeting;

    impl LocalizedMessage for Greeting {
        fn json(&self, language: Language) -> String {
            format!("{{\"in\":\"{}\"}}", language.name())
        }

        fn size(&self) -> usize {
            0
        }
    }

    #[test]
    fn sse_frames_have_the_documented_form() {
        let sse = Encoder::sse(Language::Korean);
        assert_eq!(
            text(&sse, &event(r#"{"userId":1}"#)),
            "event: retrospect.submitted\nid: 1708070400000-0\n\
             data: {\"userId\":1,\"timestamp\":\"2026-02-16T10:30:00.000Z\"}\n\n"
        );
        assert!(text(&sse, &event("{}")).ends_with("data: {\"timestamp\":\"2026-02-16T10:30:00.000Z\"}\n\n"));
        let id = MessageId::Entry(StreamId::new(7, 1));
        for (message, frame) in [
            (
                Message::reset_trimmed(id),
                "event: system.reset\ndata: {\"reason\":\"trimmed\",\"oldestId\":\"7-1\"}\n\n",
            ),
            (
                Message::reset_unknown(Some(id)),
                "event: system.reset\nid: 7-1\ndata: {\"reason\":\"unknown\"}\n\n",
            ),
            (Message::reset_unknown(None), "event: system.reset\ndata: {\"reason\":\"unknown\"}\n\n"),
            (
                Message::reset_too_far_behind(id),
                "event: system.reset\nid: 7-1\ndata: {\"reason\":\"trimmed\"}\n\n",
            ),
            (Message::lagged(Some(3)), "event: system.lagged\ndata: {\"missed\":3}\n\n"),
            (Message::lagged(None), "event: system.lagged\ndata: {\"missed\":null}\n\n"),
            (Message::position_only(MessageId::Number(17)), "id: 17\n\n"),
        ] {
            assert_eq!(text(&sse, &message), frame);
        }
    }

    #[test]
    fn frames_of_streams_with_several_subjects_have_a_room_id_and_no_message_id() {
        let (room, named) = (Id::new("42").unwrap(), Id::new("lobby").unwrap());
        let part = |target| Encoder::sse_part(&target, Language::Korean);
        assert_eq!(
            text(&part(Target::Room(room)), &Message::lagged(None)),
            "event: system.lagged\ndata: {\"missed\":null,\"roomId\":42}\n\n"
        );
        assert_eq!(
            text(&part(Target::Room(named)), &Message::removed("{}".to_owned())),
            "event: system.removed\ndata: {\"roomId\":\"lobby\"}\n\n"
        );
        let read = Message::built_in("read", Some(MessageId::Number(1)), Data::Json("{\"unread\":0}".into()));
        assert_eq!(text(&part(Target::Inbox), &read), "event: read\ndata: {\"unread\":0}\n\n");
    }

    #[test]
    fn websocket_messages_name_their_subject() {
        let room = Id::new("42").unwrap();
        let socket = |target| Encoder::websocket(&target, Language::English);
        assert_eq!(
            text(
                &socket(Target::Room(room)),
                &Message::reset_too_far_behind(MessageId::Entry(StreamId::new(7, 1)))
            ),
            "{\"event\":\"system.reset\",\"id\":\"7-1\",\"room\":42,\"data\":{\"reason\":\"trimmed\"}}"
        );
        let greeting = Message::built_in(
            "notification",
            Some(MessageId::Number(3)),
            Data::LocalizedMessage(Arc::new(Greeting)),
        );
        assert_eq!(
            text(&socket(Target::Inbox), &greeting),
            "{\"event\":\"notification\",\"id\":\"3\",\"inbox\":true,\"data\":{\"in\":\"en\"}}"
        );
        assert_eq!(
            text(&socket(Target::Inbox), &Message::position_only(MessageId::Number(3))),
            "{\"event\":\"system.position\",\"id\":\"3\",\"inbox\":true}"
        );
    }

    #[test]
    fn encodings_of_two_languages_differ_only_for_localized_data() {
        let [korean, english] = [Language::Korean, Language::English].map(Encoder::sse);
        let plain = event("{}");
        assert_eq!(korean.encoding_of(&plain), english.encoding_of(&plain));
        let localized = Message::built_in("notification", None, Data::LocalizedMessage(Arc::new(Greeting)));
        assert_ne!(korean.encoding_of(&localized), english.encoding_of(&localized));
    }
}
