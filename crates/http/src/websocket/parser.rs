//! Reads a client's frames, in whatever pieces they come, and gives whole messages.
//!
//! Strict: what the standard forbids ends the connection with the code that says so. Memory grows with what has
//! arrived, never with what was announced, and never past a message's limit; between messages there is none.

use super::frame::{BINARY, CLOSE, CONTINUATION, CONTROL_BYTES, FINAL, PING, PONG, TEXT};

/// A message from a client has at most so many bytes, as a request's body.
pub const MESSAGE_BYTES: usize = crate::body::SMALL_BODY;

/// Something whole that a client sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Message(String),
    Ping(Vec<u8>),
    Pong,
    /// With the client's reason, if it gave one.
    Close(Option<u16>),
}

/// Something that a client must not send, as the close frame says it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
}

impl Violation {
    const BINARY: Self = Self { code: 1003, reason: "only text is understood" };
    const NOT_TEXT: Self = Self { code: 1007, reason: "text must be UTF-8" };
    const TOO_BIG: Self = Self { code: 1009, reason: "a message has at most 64 KiB" };

    const fn protocol(reason: &'static str) -> Self {
        Self { code: 1002, reason }
    }
}

/// Two bytes, up to eight more of length, four of mask.
const LONGEST_HEAD: usize = 14;

#[derive(Default)]
pub(crate) struct Parser {
    /// The head of the next frame, as far as it has come.
    head: [u8; LONGEST_HEAD],
    known: usize,
    /// The frame whose payload is being read.
    frame: Option<Frame>,
    /// The text so far, over all its frames.
    message: Vec<u8>,
    /// Whether a message has begun that further frames belong to.
    continues: bool,
    /// The payload of a control frame, which may come between the frames of a message.
    control: Vec<u8>,
}

struct Frame {
    opcode: u8,
    is_final: bool,
    left: usize,
    /// Turned so that it begins with the byte for what comes next.
    mask: [u8; 4],
}

impl Parser {
    /// Reads on until something is whole, or the input is used up. After a violation there is nothing to read on.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Event>, Violation> {
        loop {
            let mut frame = match self.frame.take() {
                Some(frame) => frame,
                None => match self.read_head(input)? {
                    Some(frame) => frame,
                    None => return Ok(None),
                },
            };
            let (piece, rest) = input.split_at(frame.left.min(input.len()));
            *input = rest;
            let payload = if is_control(frame.opcode) { &mut self.control } else { &mut self.message };
            frame.unmask(piece, payload);
            if frame.left > 0 {
                self.frame = Some(frame);
                return Ok(None);
            }
            if let Some(event) = self.complete(&frame)? {
                return Ok(Some(event));
            }
        }
    }

    fn read_head(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, Violation> {
        if !self.gather(2, input) {
            return Ok(None);
        }
        let [first, second, ..] = self.head;
        let (opcode, is_final) = (first & 0xf, first & FINAL != 0);
        self.check(first, second)?;
        let length_bytes = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if !self.gather(2 + length_bytes + 4, input) {
            return Ok(None);
        }
        self.known = 0;
        let (length, mask) = self.head[2..].split_at(length_bytes);
        let announced = length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let length = match length_bytes {
            0 => u64::from(second & 0x7f),
            2 if announced > 125 => announced,
            8 if announced > 0xffff && announced >> 63 == 0 => announced,
            _ => return Err(Violation::protocol("a length must have its shortest form")),
        };
        let left = usize::try_from(length).unwrap_or(usize::MAX);
        if !is_control(opcode) && left > MESSAGE_BYTES - self.message.len() {
            return Err(Violation::TOO_BIG);
        }
        let mask = [mask[0], mask[1], mask[2], mask[3]];
        Ok(Some(Frame { opcode, is_final, left, mask }))
    }

    /// Takes bytes of the head until there are as many as wanted.
    fn gather(&mut self, wanted: usize, input: &mut &[u8]) -> bool {
        let (piece, rest) = input.split_at(wanted.saturating_sub(self.known).min(input.len()));
        self.head[self.known..self.known + piece.len()].copy_from_slice(piece);
        self.known += piece.len();
        *input = rest;
        self.known >= wanted
    }

    /// Whether a frame may begin with these two bytes.
    fn check(&self, first: u8, second: u8) -> Result<(), Violation> {
        let refused = match first & 0xf {
            _ if first & 0x70 != 0 => "no extension was agreed on",
            _ if second & 0x80 == 0 => "a client must mask its frames",
            TEXT | BINARY if self.continues => "the message before has not ended",
            CONTINUATION if !self.continues => "there is no message to continue",
            BINARY => return Err(Violation::BINARY),
            TEXT | CONTINUATION => return Ok(()),
            CLOSE | PING | PONG if first & FINAL == 0 => "a control frame must not be fragmented",
            CLOSE | PING | PONG if usize::from(second & 0x7f) > CONTROL_BYTES => {
                "a control frame is too long"
            }
            CLOSE | PING | PONG => return Ok(()),
            _ => "unknown opcode",
        };
        Err(Violation::protocol(refused))
    }

    /// A frame is whole; so may be a message.
    fn complete(&mut self, frame: &Frame) -> Result<Option<Event>, Violation> {
        match frame.opcode {
            PING => return Ok(Some(Event::Ping(std::mem::take(&mut self.control)))),
            PONG => {
                self.control = Vec::new();
                return Ok(Some(Event::Pong));
            }
            CLOSE => return read_close(&std::mem::take(&mut self.control)).map(Some),
            _ => self.continues = !frame.is_final,
        }
        if self.continues {
            return Ok(None);
        }
        let text = String::from_utf8(std::mem::take(&mut self.message)).map_err(|_| Violation::NOT_TEXT)?;
        Ok(Some(Event::Message(text)))
    }

    #[cfg(test)]
    fn held(&self) -> usize {
        self.message.capacity() + self.control.capacity()
    }
}

impl Frame {
    fn unmask(&mut self, piece: &[u8], payload: &mut Vec<u8>) {
        let room = payload.capacity() - payload.len();
        if room < piece.len() {
            // Twice as much each time, as a vector does by itself, but never past the limit.
            let doubled = (payload.capacity() * 2).min(MESSAGE_BYTES).saturating_sub(payload.len());
            payload.reserve_exact(doubled.max(piece.len()));
        }
        payload.extend(piece.iter().zip(self.mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.mask.rotate_left(piece.len() % 4);
        self.left -= piece.len();
    }
}

fn is_control(opcode: u8) -> bool {
    opcode & 0x8 != 0
}

/// A close frame is empty, or has a code that may be sent and a reason in UTF-8.
fn read_close(payload: &[u8]) -> Result<Event, Violation> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() {
            Ok(Event::Close(None))
        } else {
            Err(Violation::protocol("half a close code"))
        };
    };
    let code = u16::from_be_bytes(*code);
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Violation::protocol("no such close code"));
    }
    str::from_utf8(reason).map(|_| Event::Close(Some(code))).map_err(|_| Violation::NOT_TEXT)
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
