//! One subscriber: an SSE stream of a room, a person or an outbox event, or a WebSocket with a subscription to a room.
//! It checks that each event arrives once and in the order of ids.

use super::tally::Tally;
use crate::Result;
use crate::clock::{Clock, leading_number};
use crate::wire::chunks::Dechunker;
use crate::wire::frames::FrameScanner;
use crate::wire::head::Head;
use crate::wire::messages::MessageScanner;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// The key is arbitrary: the client does not check the `Sec-WebSocket-Accept` that the server derives from it.
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

pub(crate) struct Stream {
    pub(super) socket: TcpStream,
    body: Body,
    scanner: FrameScanner,
    /// The room to which a WebSocket subscribes after the handshake; None after that, and for SSE.
    room: Option<u32>,
    pub(super) cursor: Cursor,
}

/// The position of a subscriber in the events of its subject.
pub(crate) struct Cursor {
    pub(super) subject: u32,
    last_id: EventId,
    /// Whether ids increase from event to event. Those of outbox events need not.
    pub(super) has_ordered_ids: bool,
    /// Received events of the current load, without repeated ones.
    pub(super) received: u32,
}

/// `<milliseconds>-<sequence>` on a room stream, a number on a personal stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct EventId(u64, u64);

enum Body {
    /// The received part of the answer's head.
    Head(Vec<u8>),
    Plain,
    Chunked(Dechunker),
    Socket(MessageScanner),
    Closed,
}

/// Whether a read has opened the stream: the head of an SSE answer, or the confirmation of a subscription, has arrived.
#[derive(Clone, Copy)]
pub(super) enum Progress {
    Opened,
    Unchanged,
}

impl EventId {
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let (first, length) = leading_number(text)?;
        match &text[length..] {
            [] => Some(Self(first, 0)),
            [b'-', rest @ ..] => Some(Self(first, leading_number(rest)?.0)),
            _ => None,
        }
    }
}

impl Cursor {
    /// Moves to an event. Returns false when ids are ordered and `id` is not newer than all previous ones.
    pub(super) fn advance(&mut self, id: EventId) -> bool {
        let is_newer = id > self.last_id || !self.has_ordered_ids;
        if is_newer {
            self.last_id = id;
            self.received += 1;
        }
        is_newer
    }
}

impl Stream {
    pub(super) fn open(
        mut socket: TcpStream,
        host: SocketAddr,
        path: &str,
        subject: u32,
        token: &str,
        room: Option<u32>,
    ) -> Result<Self> {
        let kind = if room.is_some() { UPGRADE } else { "Accept: text/event-stream\r\n" };
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{kind}Authorization: Bearer {token}\r\n\r\n");
        socket.write_all(request.as_bytes())?;
        let cursor = Cursor { subject, last_id: EventId::default(), has_ordered_ids: true, received: 0 };
        Ok(Self { socket, body: Body::Head(Vec::new()), scanner: FrameScanner::default(), room, cursor })
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.body, Body::Closed)
    }

    /// Reads until the socket is empty. Fails when the answer is not a stream.
    pub(super) fn on_readable(
        &mut self,
        buffer: &mut [u8],
        clock: Clock,
        tally: &mut Tally,
    ) -> Result<Progress> {
        let mut progress = Progress::Unchanged;
        loop {
            let read = match self.socket.read(buffer) {
                Ok(0) => return self.on_close(progress),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(progress),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return self.on_close(progress),
                Err(error) => return Err(error.into()),
            };
            let now = clock.now_ns();
            if let Body::Head(head) = &mut self.body {
                head.extend_from_slice(&buffer[..read]);
                if let Some((body, rest)) = parse_head(head, self.room.is_some())? {
                    self.body = body;
                    match self.room.take() {
                        Some(room) => self.socket.write_all(&subscription(room))?,
                        None => progress = Progress::Opened,
                    }
                    self.feed_body(&rest, now, tally, &mut progress);
                }
            } else {
                self.feed_body(&buffer[..read], now, tally, &mut progress);
            }
            // A short read has emptied the socket; epoll reports later bytes as a new event.
            if read < buffer.len() {
                return Ok(progress);
            }
        }
    }

    fn feed_body(&mut self, bytes: &[u8], now: u64, tally: &mut Tally, progress: &mut Progress) {
        let Self { body, scanner, cursor, .. } = self;
        match body {
            Body::Plain => scanner.feed(bytes, |frame| tally.record_frame(frame, now, cursor)),
            Body::Chunked(dechunker) => {
                let is_open = dechunker.feed(bytes, |payload| {
                    scanner.feed(payload, |frame| tally.record_frame(frame, now, cursor));
                });
                if !is_open {
                    *body = Body::Closed;
                }
            }
            Body::Socket(scanner) => scanner.feed(bytes, |message| {
                if message.event == b"system.subscribed" {
                    *progress = Progress::Opened;
                } else {
                    tally.record_frame(message, now, cursor);
                }
            }),
            Body::Head(_) | Body::Closed => {}
        }
    }

    fn on_close(&mut self, progress: Progress) -> Result<Progress> {
        if let Body::Head(head) = &self.body {
            let answer = String::from_utf8_lossy(head).into_owned();
            return Err(format!("a stream was closed before it was answered: {answer:?}").into());
        }
        self.body = Body::Closed;
        Ok(progress)
    }
}

/// The text message that subscribes to a room. Messages of clients must be masked; a mask of zeros does not change
/// them.
fn subscription(room: u32) -> Vec<u8> {
    let request = format!(r#"{{"op":"subscribe","room":{room}}}"#);
    let mut message = vec![0x81, 0x80 | request.len() as u8, 0, 0, 0, 0];
    message.extend_from_slice(request.as_bytes());
    message
}

/// Parses the head of an answer. Returns the coding of the body, and the bytes of the body that are received already;
/// None while the head is incomplete.
fn parse_head(bytes: &[u8], is_socket: bool) -> Result<Option<(Body, Vec<u8>)>> {
    let Some(head) = Head::parse(bytes) else { return Ok(None) };
    if head.status() != if is_socket { 101 } else { 200 } {
        let answer = String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned();
        return Err(format!("a stream was refused: {answer}").into());
    }
    let body = match (is_socket, head.is_chunked) {
        (true, _) => Body::Socket(MessageScanner::default()),
        (false, true) => Body::Chunked(Dechunker::new()),
        (false, false) => Body::Plain,
    };
    Ok(Some((body, bytes[head.bytes..].to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_by_number_not_by_text() {
        let id = |text: &str| EventId::parse(text.as_bytes());
        assert!(id("1708070400000-10") > id("1708070400000-9"));
        assert!(id("1708070400000-10") < id("1708070400001-0"));
        assert!(id("10") > id("9"));
        assert_eq!([id("17-"), id("17.0"), id("end.3501.17-0")], [None; 3]);
    }

    #[test]
    fn a_repeated_or_older_event_does_not_advance() {
        let mut cursor =
            Cursor { subject: 0, last_id: EventId::default(), has_ordered_ids: true, received: 0 };
        let is_new = [EventId(5, 0), EventId(5, 1), EventId(5, 1), EventId(4, 9), EventId(6, 0)]
            .map(|id| cursor.advance(id));
        assert_eq!(is_new, [true, true, false, false, true]);
        assert_eq!(cursor.received, 3);
    }
}
