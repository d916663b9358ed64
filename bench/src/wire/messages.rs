//! Finds text messages in the bytes of a WebSocket. A read may contain many messages, or a part of one. Pings are
//! ignored.

use super::frames::Frame;

const TEXT: u8 = 0x81;
const EVENT_KEY: &[u8] = b"{\"event\":\"";
const ID_KEY: &[u8] = b",\"id\":\"";

#[derive(Default)]
pub(crate) struct MessageScanner {
    /// The beginning of an incomplete message.
    tail: Vec<u8>,
}

impl MessageScanner {
    pub(crate) fn feed(&mut self, bytes: &[u8], mut on_message: impl FnMut(&Frame<'_>)) {
        if self.tail.is_empty() {
            let consumed = scan(bytes, &mut on_message);
            self.tail.extend_from_slice(&bytes[consumed..]);
        } else {
            self.tail.extend_from_slice(bytes);
            let consumed = scan(&self.tail, &mut on_message);
            self.tail.drain(..consumed);
        }
    }
}

/// Calls `on_message` with all complete text messages. Returns the length of all complete messages, in bytes.
fn scan(bytes: &[u8], on_message: &mut impl FnMut(&Frame<'_>)) -> usize {
    let mut consumed = 0;
    while let Some((head, length)) = parse_lengths(&bytes[consumed..])
        && let Some(message) = bytes.get(consumed..consumed + head + length)
    {
        if message[0] == TEXT {
            on_message(&parse_message(&message[head..], message.len()));
        }
        consumed += message.len();
    }
    consumed
}

/// The lengths of a message's head and payload; None while the head is incomplete. Messages of a server are not masked,
/// so the head has no mask.
fn parse_lengths(bytes: &[u8]) -> Option<(usize, usize)> {
    match *bytes.get(1)? {
        126 => Some((4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)))),
        127 => Some((10, usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)).ok()?)),
        length => Some((2, usize::from(length))),
    }
}

/// Parses `{"event":"...","id":"...",...}`, in which the id may be missing. `data` is the whole payload, because the
/// send time can be at any offset in it.
fn parse_message(payload: &[u8], bytes: usize) -> Frame<'_> {
    let mut frame = Frame { data: payload, bytes, ..Frame::default() };
    if let Some(rest) = payload.strip_prefix(EVENT_KEY) {
        frame.event = until_quote(rest);
        frame.id = rest[frame.event.len() + 1..].strip_prefix(ID_KEY).map(until_quote).unwrap_or_default();
    }
    frame
}

/// The bytes before the next quotation mark, which exists because the payload is JSON.
fn until_quote(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == b'"').unwrap_or(bytes.len().saturating_sub(1));
    &bytes[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Vec<u8> {
        let mut bytes = vec![TEXT];
        match u8::try_from(text.len()) {
            Ok(length @ ..126) => bytes.push(length),
            _ => bytes.extend([&[126][..], &u16::try_from(text.len()).unwrap().to_be_bytes()].concat()),
        }
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    #[test]
    fn messages_are_the_same_for_every_split_of_the_input() {
        let long = format!(r#"{{"event":"a.b","id":"17-1","room":1,"data":{{"t":"{}"}}}}"#, "x".repeat(300));
        let bytes = [
            message(r#"{"event":"system.subscribed","id":"0-1","room":1}"#),
            vec![0x89, 0],
            message(r#"{"event":"presence.update","room":1,"data":{}}"#),
            message(&long),
        ]
        .concat();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for step in 1..=bytes.len() {
            let (mut scanner, mut found) = (MessageScanner::default(), Vec::new());
            for piece in bytes.chunks(step) {
                scanner.feed(piece, |message| found.push((text(message.event), text(message.id))));
            }
            let expected = [("system.subscribed", "0-1"), ("presence.update", ""), ("a.b", "17-1")];
            assert_eq!(found, expected.map(|(event, id)| (event.to_owned(), id.to_owned())), "in {step}");
            assert!(scanner.tail.is_empty());
        }
    }
}
