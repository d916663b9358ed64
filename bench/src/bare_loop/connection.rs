//! One connection of the bare loop: the requests that arrive on it, and what its socket could not take at once.

use crate::clock::{STAMP_DIGITS, StampReader, leading_number};
use crate::wire::head::Head;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;

pub(super) struct Connection {
    pub(super) socket: TcpStream,
    /// The room whose stream this is.
    pub(super) room: Option<u32>,
    input: Vec<u8>,
    backlog: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Stream { room: u32 },
    Publish { room: u32, stamp: [u8; STAMP_DIGITS] },
    Other,
}

pub(super) enum Written {
    /// Or blocked already, or gone: then the next read will tell.
    Done,
    NowBlocked,
}

impl Connection {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket, room: None, input: Vec::new(), backlog: Vec::new() }
    }

    /// False when the other side is gone.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> bool {
        match self.socket.read(buffer) {
            Ok(0) => false,
            Ok(read) => {
                self.input.extend_from_slice(&buffer[..read]);
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    /// Takes the next complete request off what was read.
    pub(super) fn next_request(&mut self) -> Option<Request> {
        let (request, bytes) = parse_request(&self.input)?;
        self.input.drain(..bytes);
        if self.input.is_empty() {
            // A stream sends nothing more: its memory is given back.
            self.input.shrink_to(0);
        }
        Some(request)
    }

    pub(super) fn is_blocked(&self) -> bool {
        !self.backlog.is_empty()
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Written {
        if self.is_blocked() {
            self.backlog.extend_from_slice(bytes);
            return Written::Done;
        }
        let taken = match rustix::io::write(&self.socket, bytes) {
            Ok(taken) => taken,
            Err(rustix::io::Errno::AGAIN) => 0,
            Err(_) => return Written::Done,
        };
        if taken == bytes.len() {
            return Written::Done;
        }
        self.backlog.extend_from_slice(&bytes[taken..]);
        Written::NowBlocked
    }

    /// True when nothing is left waiting.
    pub(super) fn flush(&mut self) -> bool {
        match rustix::io::write(&self.socket, &self.backlog) {
            Ok(taken) => {
                self.backlog.drain(..taken);
            }
            Err(rustix::io::Errno::AGAIN) => {}
            Err(_) => self.backlog.clear(),
        }
        self.backlog.is_empty()
    }
}

/// The first request and its length; None while it is not complete.
fn parse_request(input: &[u8]) -> Option<(Request, usize)> {
    let head = Head::parse(input)?;
    let bytes = head.bytes + head.content_length.unwrap_or(0);
    let body = input.get(head.bytes..bytes)?;
    let request = if head.first_line.starts_with(b"POST ") {
        published(body)
    } else {
        number_behind(head.first_line, b"GET /api/v1/rooms/").map(|room| Request::Stream { room })
    };
    Some((request.unwrap_or(Request::Other), bytes))
}

fn published(body: &[u8]) -> Option<Request> {
    let room = number_behind(body, b"\"roomId\":")?;
    let at = StampReader::default().locate(body)?;
    let stamp = body.get(at..at + STAMP_DIGITS)?.try_into().ok()?;
    Some(Request::Publish { room, stamp })
}

fn number_behind(text: &[u8], key: &[u8]) -> Option<u32> {
    let at = text.windows(key.len()).position(|window| window == key)? + key.len();
    u32::try_from(leading_number(&text[at..])?.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let stream = b"GET /api/v1/rooms/100007/stream HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(parse_request(stream), Some((Request::Stream { room: 100_007 }, stream.len())));
        let ready = b"GET /ready HTTP/1.1\r\n\r\nGET";
        assert_eq!(parse_request(ready), Some((Request::Other, ready.len() - 3)));
        let body = "{\"roomId\":100007,\"data\":{\"sentNs\":1000000000000042}}";
        let publish = format!("POST /p HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let expected = Request::Publish { room: 100_007, stamp: *b"1000000000000042" };
        assert_eq!(parse_request(publish.as_bytes()), Some((expected, publish.len())));
        assert_eq!(parse_request(&publish.as_bytes()[..publish.len() - 1]), None);
    }
}
