//! One connection of the bare loop: it parses requests, and keeps bytes that its socket cannot take yet.

use crate::clock::{STAMP_DIGITS, StampReader, leading_number};
use crate::wire::head::Head;
use std::io::{ErrorKind, Read};
use std::net::TcpStream;

pub(super) struct Connection {
    pub(super) socket: TcpStream,
    /// The room whose stream was requested; None before that and for publishers.
    pub(super) room: Option<u32>,
    /// Received bytes that are not parsed yet.
    input: Vec<u8>,
    /// Bytes that wait until the socket is writable.
    backlog: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Stream { room: u32 },
    Publish { room: u32, stamp: [u8; STAMP_DIGITS] },
    Other,
}

pub(super) enum WriteOutcome {
    /// The bytes were written, were added to a backlog that exists already, or the connection is broken, which the next
    /// read reports.
    Done,
    /// The socket took only a part of the bytes; the backlog has the rest.
    NowBlocked,
}

impl Connection {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket, room: None, input: Vec::new(), backlog: Vec::new() }
    }

    /// Reads once. Returns false when the connection has ended.
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

    /// Removes the next complete request from the received bytes.
    pub(super) fn next_request(&mut self) -> Option<Request> {
        let (request, bytes) = parse_request(&self.input)?;
        self.input.drain(..bytes);
        if self.input.is_empty() {
            // The client of a stream sends no further request, so the memory of its buffer is released.
            self.input.shrink_to(0);
        }
        Some(request)
    }

    pub(super) fn is_blocked(&self) -> bool {
        !self.backlog.is_empty()
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> WriteOutcome {
        if self.is_blocked() {
            self.backlog.extend_from_slice(bytes);
            return WriteOutcome::Done;
        }
        let written = match rustix::io::write(&self.socket, bytes) {
            Ok(written) => written,
            Err(rustix::io::Errno::AGAIN) => 0,
            Err(_) => return WriteOutcome::Done,
        };
        if written == bytes.len() {
            return WriteOutcome::Done;
        }
        self.backlog.extend_from_slice(&bytes[written..]);
        WriteOutcome::NowBlocked
    }

    /// Writes from the backlog. Returns true when it is empty.
    pub(super) fn flush(&mut self) -> bool {
        match rustix::io::write(&self.socket, &self.backlog) {
            Ok(written) => {
                self.backlog.drain(..written);
            }
            Err(rustix::io::Errno::AGAIN) => {}
            Err(_) => self.backlog.clear(),
        }
        self.backlog.is_empty()
    }
}

/// Parses the first request. Returns it with its length in bytes, or None while it is incomplete.
fn parse_request(input: &[u8]) -> Option<(Request, usize)> {
    let head = Head::parse(input)?;
    let bytes = head.bytes + head.content_length.unwrap_or(0);
    let body = input.get(head.bytes..bytes)?;
    let request = if head.first_line.starts_with(b"POST ") {
        parse_publish(body)
    } else {
        number_after(head.first_line, b"GET /api/v1/rooms/").map(|room| Request::Stream { room })
    };
    Some((request.unwrap_or(Request::Other), bytes))
}

fn parse_publish(body: &[u8]) -> Option<Request> {
    let room = number_after(body, b"\"roomId\":")?;
    let offset = StampReader::default().locate(body)?;
    let stamp = body.get(offset..offset + STAMP_DIGITS)?.try_into().ok()?;
    Some(Request::Publish { room, stamp })
}

fn number_after(text: &[u8], key: &[u8]) -> Option<u32> {
    let at = text.windows(key.len()).position(|window| window == key)? + key.len();
    u32::try_from(leading_number(&text[at..])?.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_publish_and_other_requests_are_parsed() {
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
