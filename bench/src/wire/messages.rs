//! Finds the text messages of a hub in the bytes of a WebSocket: split over reads, or many in one. Pings are passed over.

use super::frames::Frame;

const TEXT: u8 = 0x81;
const EVENT_KEY: &[u8] = b"{\"event\":\"";
const ID_KEY: &[u8] = b",\"id\":\"";

#[derive(Default)]
pub(crate) struct MessageScanner {
    /// The beginning of a message whose end has not arrived.
    tail: Vec<u8>,
}

impl MessageScanner {
    pub(crate) fn feed(&mut self, bytes: &[u8], mut on_message: impl FnMut(&Frame<'_>)) {
        if self.tail.is_empty() {
            let taken = scan(bytes, &mut on_message);
            self.tail.extend_from_slice(&bytes[taken..]);
        } else {
            self.tail.extend_from_slice(bytes);
            let taken = scan(&self.tail, &mut on_message);
            self.tail.drain(..taken);
        }
    }
}

/// Hands out all messages that are complete; returns how many bytes they have.
fn scan(bytes: &[u8], on_message: &mut impl FnMut(&Frame<'_>)) -> usize {
    let mut taken = 0;
    while let Some((head, length)) = extent(&bytes[taken..])
        && let Some(message) = bytes.get(taken..taken + head + length)
    {
        if message[0] == TEXT {
            on_message(&read(&message[head..], message.len()));
        }
        taken += message.len();
    }
    taken
}

/// The lengths of a message's head and of its payload; None while the head is not complete. A server masks nothing.
fn extent(bytes: &[u8]) -> Option<(usize, usize)> {
    match *bytes.get(1)? {
        126 => Some((4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)))),
        127 => Some((10, usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)).ok()?)),
        length => Some((2, usize::from(length))),
    }
}

/// `{"event":"...","id":"...",...}`, where the id may be missing. The send time is found anywhere in the data.
fn read(payload: &[u8], bytes: usize) -> Frame<'_> {
    let mut frame = Frame { data: payload, bytes, ..Frame::default() };
    if let Some(rest) = payload.strip_prefix(EVENT_KEY) {
        frame.event = until_quote(rest);
        frame.id = rest[frame.event.len() + 1..].strip_prefix(ID_KEY).map(until_quote).unwrap_or_default();
    }
    frame
}

/// Up to the next quotation mark. There is one behind it, because the hub writes JSON.
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
    fn messages_are_the_same_however_reads_cut_them() {
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
