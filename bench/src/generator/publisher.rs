//! One publisher: a kept-alive connection with at most one request outstanding.
//! The request is built once; sending it patches room and send time in place.

use super::{FIRST_ROOM, Target};
use crate::Result;
use crate::clock::{STAMP_DIGITS, StampReader, put_digits, put_stamp};
use crate::wire::head::Head;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

const ROOM_KEY: &[u8] = b"\"roomId\":";
const ROOM_DIGITS: usize = 6;
const BODY: &str = r#"{"roomId":000000,"eventType":"retrospect.submitted","data":{"userId":1,"userName":"Kim","retrospectId":7,"retrospectTitle":"Sprint 12: what went well","sentNs":0000000000000000},"publisherId":1}"#;

pub(crate) struct Publisher {
    pub(super) socket: TcpStream,
    request: Vec<u8>,
    room_at: usize,
    stamp_at: usize,
    /// An answer that a read has cut.
    partial: Vec<u8>,
    pub(super) room: u32,
    pub(super) sent_ns: u64,
}

pub(super) enum Answer {
    Complete(u16),
    Incomplete,
}

impl Publisher {
    pub(super) fn new(socket: TcpStream, target: &Target) -> Result<Self> {
        let request = format!(
            "POST /api/v1/notifications/publish HTTP/1.1\r\nHost: {}\r\nX-Internal-Key: {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{BODY}",
            target.address,
            target.internal_key,
            BODY.len()
        )
        .into_bytes();
        let room_at = request
            .windows(ROOM_KEY.len())
            .position(|window| window == ROOM_KEY)
            .map(|at| at + ROOM_KEY.len())
            .ok_or("the request has no room")?;
        let stamp_at = StampReader::default().locate(&request).ok_or("the request has no send time")?;
        Ok(Self { socket, request, room_at, stamp_at, partial: Vec::new(), room: 0, sent_ns: 0 })
    }

    pub(super) fn send(&mut self, room: u32, now_ns: u64) -> Result<()> {
        put_digits(&mut self.request[self.room_at..self.room_at + ROOM_DIGITS], u64::from(FIRST_ROOM + room));
        put_stamp(&mut self.request[self.stamp_at..self.stamp_at + STAMP_DIGITS], now_ns);
        self.room = room;
        self.sent_ns = now_ns;
        // With one request outstanding the socket's buffer is empty: this never blocks.
        self.socket.write_all(&self.request).map_err(|error| format!("publishing: {error}").into())
    }

    pub(super) fn on_readable(&mut self, buffer: &mut [u8]) -> Result<Answer> {
        loop {
            match self.socket.read(buffer) {
                Ok(0) => return Err("the server closed a publisher's connection".into()),
                Ok(read) if self.partial.is_empty() => {
                    if let Some(status) = complete_answer(&buffer[..read])? {
                        return Ok(Answer::Complete(status));
                    }
                    self.partial.extend_from_slice(&buffer[..read]);
                }
                Ok(read) => {
                    self.partial.extend_from_slice(&buffer[..read]);
                    if let Some(status) = complete_answer(&self.partial)? {
                        self.partial.clear();
                        return Ok(Answer::Complete(status));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Answer::Incomplete),
                Err(error) => return Err(format!("a publisher's connection: {error}").into()),
            }
        }
    }
}

/// The status once head and body are here.
fn complete_answer(bytes: &[u8]) -> Result<Option<u16>> {
    let Some(head) = Head::parse(bytes) else { return Ok(None) };
    let length = head.content_length.ok_or("an answer to a publish has no Content-Length")?;
    Ok((bytes.len() >= head.bytes + length).then(|| head.status()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_is_json_of_about_two_hundred_bytes() {
        let body = BODY.replace("000000,", "100001,").replace(":0000000000000000", ":1000000000000000");
        let parsed: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(parsed["roomId"], 100_001);
        assert!((180..=220).contains(&BODY.len()), "{}", BODY.len());
    }

    #[test]
    fn an_answer_is_complete_with_its_last_byte() {
        let answer = b"HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\n\r\n{}";
        for cut in 0..answer.len() {
            assert_eq!(complete_answer(&answer[..cut]).unwrap(), None);
        }
        assert_eq!(complete_answer(answer).unwrap(), Some(409));
    }
}
