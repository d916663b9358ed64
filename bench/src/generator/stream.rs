//! One subscriber: an event stream of a room or a person, or a WebSocket on a room, and the check that each event comes once and in the order of
//! ids.

use super::tally::Tally;
use crate::Result;
use crate::clock::{Clock, leading_number};
use crate::wire::chunks::Dechunker;
use crate::wire::frames::FrameScanner;
use crate::wire::head::Head;
use crate::wire::messages::MessageScanner;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// The key is any sixteen bytes: what the server makes of it is not checked here.
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

pub(crate) struct Stream {
    pub(super) socket: TcpStream,
    body: Body,
    scanner: FrameScanner,
    /// The room that a WebSocket is to ask for.
    room: Option<u32>,
    pub(super) cursor: Cursor,
}

/// How far a subscriber has come in what it follows.
pub(crate) struct Cursor {
    pub(super) subject: u32,
    last: EventId,
    /// Whether ids come in their order: those of an outbox say nothing about it.
    pub(super) by_id: bool,
    /// Events of the current load that were newer than all before them.
    pub(super) received: u32,
}

/// `<milliseconds>-<sequence>` in a room, a plain number on a personal stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct EventId(u64, u64);

enum Body {
    /// The answer's head, so far.
    Head(Vec<u8>),
    Plain,
    Chunked(Dechunker),
    Socket(MessageScanner),
    Closed,
}

#[derive(Clone, Copy)]
pub(super) enum Progress {
    Opened,
    Nothing,
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
    /// True when `id` is newer than all before it.
    pub(super) fn advance(&mut self, id: EventId) -> bool {
        let newer = id > self.last || !self.by_id;
        if newer {
            self.last = id;
            self.received += 1;
        }
        newer
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
        let cursor = Cursor { subject, last: EventId::default(), by_id: true, received: 0 };
        Ok(Self { socket, body: Body::Head(Vec::new()), scanner: FrameScanner::default(), room, cursor })
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.body, Body::Closed)
    }

    /// Reads until nothing is left; an answer that is not a stream is an error of the whole run.
    pub(super) fn on_readable(
        &mut self,
        buffer: &mut [u8],
        clock: Clock,
        tally: &mut Tally,
    ) -> Result<Progress> {
        let mut progress = Progress::Nothing;
        loop {
            let read = match self.socket.read(buffer) {
                Ok(0) => return self.closed(progress),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(progress),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return self.closed(progress),
                Err(error) => return Err(error.into()),
            };
            let now = clock.now_ns();
            if let Body::Head(head) = &mut self.body {
                head.extend_from_slice(&buffer[..read]);
                if let Some((body, rest)) = take_head(head, self.room.is_some())? {
                    self.body = body;
                    match self.room.take() {
                        Some(room) => self.socket.write_all(&subscription(room))?,
                        None => progress = Progress::Opened,
                    }
                    self.take_body(&rest, now, tally, &mut progress);
                }
            } else {
                self.take_body(&buffer[..read], now, tally, &mut progress);
            }
            // A short read has emptied the socket; what comes later is a new edge.
            if read < buffer.len() {
                return Ok(progress);
            }
        }
    }

    fn take_body(&mut self, bytes: &[u8], now: u64, tally: &mut Tally, progress: &mut Progress) {
        let Self { body, scanner, cursor, .. } = self;
        match body {
            Body::Plain => scanner.feed(bytes, |frame| tally.note_frame(frame, now, cursor)),
            Body::Chunked(dechunker) => {
                let goes_on = dechunker.feed(bytes, |payload| {
                    scanner.feed(payload, |frame| tally.note_frame(frame, now, cursor));
                });
                if !goes_on {
                    *body = Body::Closed;
                }
            }
            Body::Socket(scanner) => scanner.feed(bytes, |message| {
                if message.event == b"system.subscribed" {
                    *progress = Progress::Opened;
                } else {
                    tally.note_frame(message, now, cursor);
                }
            }),
            Body::Head(_) | Body::Closed => {}
        }
    }

    fn closed(&mut self, progress: Progress) -> Result<Progress> {
        if let Body::Head(head) = &self.body {
            let said = String::from_utf8_lossy(head).into_owned();
            return Err(format!("a stream was closed before it was answered: {said:?}").into());
        }
        self.body = Body::Closed;
        Ok(progress)
    }
}

/// A short text message, masked as a client's must be; with zeros a mask changes nothing.
fn subscription(room: u32) -> Vec<u8> {
    let request = format!(r#"{{"op":"subscribe","room":{room}}}"#);
    let mut message = vec![0x81, 0x80 | request.len() as u8, 0, 0, 0, 0];
    message.extend_from_slice(request.as_bytes());
    message
}

/// None while the head is not complete; else how the body is coded, and what of it is already here.
fn take_head(bytes: &[u8], is_socket: bool) -> Result<Option<(Body, Vec<u8>)>> {
    let Some(head) = Head::parse(bytes) else { return Ok(None) };
    if head.status() != if is_socket { 101 } else { 200 } {
        let said = String::from_utf8_lossy(&bytes[..bytes.len().min(600)]).into_owned();
        return Err(format!("a stream was refused: {said}").into());
    }
    let body = match (is_socket, head.chunked) {
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
        let mut cursor = Cursor { subject: 0, last: EventId::default(), by_id: true, received: 0 };
        let taken = [EventId(5, 0), EventId(5, 1), EventId(5, 1), EventId(4, 9), EventId(6, 0)]
            .map(|id| cursor.advance(id));
        assert_eq!(taken, [true, true, false, false, true]);
        assert_eq!(cursor.received, 3);
    }
}
