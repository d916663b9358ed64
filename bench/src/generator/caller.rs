//! One caller: a keep-alive connection with at most one outstanding request.

use super::Target;
use super::request::{Request, RequestTemplate};
use crate::Result;
use crate::wire::head::Head;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

pub(crate) struct Caller {
    pub(super) socket: TcpStream,
    template: RequestTemplate,
    /// The beginning of an answer that has not been received completely.
    partial: Vec<u8>,
    pub(super) subject: u32,
    pub(super) sent_ns: u64,
}

/// The result of reading from a caller's connection.
pub(super) enum Answer {
    /// The answer has the expected status.
    Done,
    /// The answer has another status.
    Refused,
    /// The answer has not been received completely.
    Incomplete,
}

impl Caller {
    pub(super) fn new(socket: TcpStream, request: Request, target: &Target) -> Result<Self> {
        let template = RequestTemplate::new(request, target)?;
        Ok(Self { socket, template, partial: Vec::new(), subject: 0, sent_ns: 0 })
    }

    pub(super) fn send(&mut self, subject: u32, now_ns: u64) -> Result<()> {
        self.subject = subject;
        self.sent_ns = now_ns;
        let request = self.template.fill(subject, now_ns);
        // Never blocks: only one request is outstanding, so the send buffer is empty.
        self.socket.write_all(request).map_err(|error| format!("sending a request: {error}").into())
    }

    pub(super) fn on_readable(&mut self, buffer: &mut [u8]) -> Result<Answer> {
        loop {
            match self.socket.read(buffer) {
                Ok(0) => return Err("the server closed a caller's connection".into()),
                Ok(read) if self.partial.is_empty() => {
                    if let Some(status) = complete_answer(&buffer[..read])? {
                        return Ok(self.answer(status));
                    }
                    self.partial.extend_from_slice(&buffer[..read]);
                }
                Ok(read) => {
                    self.partial.extend_from_slice(&buffer[..read]);
                    if let Some(status) = complete_answer(&self.partial)? {
                        self.partial.clear();
                        return Ok(self.answer(status));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Answer::Incomplete),
                Err(error) => return Err(format!("a caller's connection: {error}").into()),
            }
        }
    }

    fn answer(&self, status: u16) -> Answer {
        if status == self.template.success { Answer::Done } else { Answer::Refused }
    }
}

/// The status of a complete answer; None while head or body is incomplete.
fn complete_answer(bytes: &[u8]) -> Result<Option<u16>> {
    let Some(head) = Head::parse(bytes) else { return Ok(None) };
    let length = head.content_length.ok_or("an answer has no Content-Length")?;
    Ok((bytes.len() >= head.bytes + length).then(|| head.status()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_complete_with_its_last_byte() {
        let answer = b"HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\n\r\n{}";
        for cut in 0..answer.len() {
            assert_eq!(complete_answer(&answer[..cut]).unwrap(), None);
        }
        assert_eq!(complete_answer(answer).unwrap(), Some(409));
    }
}
