//! The event stream format, interpreted as the HTML standard (9.2.6) says.
//!
//! Bytes may be cut anywhere, inside a character or between CR and LF: the items are the same.

/// What a stream said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Event(Event),
    /// A line that starts with a colon, without it.
    Comment(String),
    /// A valid `retry` field, in milliseconds.
    Retry(u64),
}

/// One dispatched event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The type; `message` when none was given.
    pub event: String,
    /// The last event id string after it: what a browser would show as `lastEventId`.
    pub id: String,
    /// The id that this very event carried.
    pub own_id: Option<String>,
    pub data: String,
}

impl Event {
    /// The data as JSON; panics when it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.data)
            .unwrap_or_else(|error| panic!("data that is not JSON ({error}): {self:?}"))
    }
}

/// An incremental parser of one stream.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    /// The last byte ended a line with CR: an LF right after it belongs to the same end.
    after_cr: bool,
    past_first_line: bool,
    event_type: String,
    data: String,
    own_id: Option<String>,
    id_buffer: String,
    last_event_id: String,
}

impl Parser {
    pub fn new() -> Self {
        Self::default()
    }

    /// A parser for a connection that was made again: events without an id keep the position that was reached
    /// before. The standard's text would forget it; browsers do not, and it is they who read the hub.
    pub fn resumed(last_event_id: &str) -> Self {
        let id = last_event_id.to_owned();
        Self { id_buffer: id.clone(), last_event_id: id, ..Self::default() }
    }

    /// The last event id string: what a client would send as `Last-Event-ID` now.
    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// Takes the next bytes; gives the items that they complete, in order.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Vec<Item> {
        let mut items = Vec::new();
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
                self.line.extend_from_slice(bytes);
                break;
            };
            self.line.extend_from_slice(&bytes[..end]);
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            items.extend(self.end_of_line());
        }
        items
    }

    fn end_of_line(&mut self) -> Option<Item> {
        let line = std::mem::take(&mut self.line);
        let mut bytes = &line[..];
        if !std::mem::replace(&mut self.past_first_line, true) {
            bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        }
        // Line by line is the same as decoding the whole: no line end is part of a longer character.
        let line = String::from_utf8_lossy(bytes);
        match line.split_once(':') {
            _ if line.is_empty() => self.dispatch(),
            Some(("", comment)) => Some(Item::Comment(comment.to_owned())),
            Some((field, value)) => self.field(field, value.strip_prefix(' ').unwrap_or(value)),
            None => self.field(&line, ""),
        }
    }

    fn field(&mut self, name: &str, value: &str) -> Option<Item> {
        match name {
            "event" => value.clone_into(&mut self.event_type),
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "id" if !value.contains('\0') => {
                value.clone_into(&mut self.id_buffer);
                self.own_id = Some(value.to_owned());
            }
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                return value.parse().ok().map(Item::Retry);
            }
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<Item> {
        self.last_event_id.clone_from(&self.id_buffer);
        let event = std::mem::take(&mut self.event_type);
        let own_id = self.own_id.take();
        let mut data = std::mem::take(&mut self.data);
        // Nothing was said, not even an empty `data` field, which leaves its line end here.
        data.pop()?;
        let event = if event.is_empty() { "message".to_owned() } else { event };
        Some(Item::Event(Event { event, id: self.last_event_id.clone(), own_id, data }))
    }
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
