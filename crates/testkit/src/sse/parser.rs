//! An incremental parser of the event stream format, as defined in section 9.2.6 of the HTML standard.
//!
//! Input may be split at any byte, also inside a character or between CR and LF; the items are the same.

/// One parsed element of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Event(Event),
    /// A line that starts with a colon, without the colon.
    Comment(String),
    /// A valid `retry` field, in milliseconds.
    Retry(u64),
}

/// One dispatched event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The type; `message` if the event has none.
    pub event: String,
    /// The last event id string after this event: `lastEventId` in a browser.
    pub id: String,
    /// The id field of this event itself; None if it has none.
    pub own_id: Option<String>,
    pub data: String,
}

impl Event {
    /// The data as JSON; panics if it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.data)
            .unwrap_or_else(|error| panic!("the data is not JSON ({error}): {self:?}"))
    }
}

/// An incremental parser of one stream.
#[derive(Clone, Debug, Default)]
pub struct Parser {
    line: Vec<u8>,
    /// The last byte was a CR that ended a line: an LF directly after it belongs to the same line end.
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

    /// A parser for a reconnected stream: events without an id keep the position reached before. The standard would
    /// reset the position, but browsers keep it, and the hub's clients are browsers.
    pub fn resumed(last_event_id: &str) -> Self {
        let id = last_event_id.to_owned();
        Self { id_buffer: id.clone(), last_event_id: id, ..Self::default() }
    }

    /// The last event id string, which a client sends as `Last-Event-ID` if it reconnects now.
    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// Parses the next bytes and returns the items that they complete, in order.
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
        // Decoding each line gives the same result as decoding the whole stream, because CR and LF are never part of a
        // multi-byte character.
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
        // Without any `data` field the buffer is empty and no event is dispatched. An empty `data` field leaves its
        // line end in the buffer.
        data.pop()?;
        let event = if event.is_empty() { "message".to_owned() } else { event };
        Some(Item::Event(Event { event, id: self.last_event_id.clone(), own_id, data }))
    }
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
