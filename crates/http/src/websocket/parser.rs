//! Parses the frames of a client, in pieces of any size, into whole messages.
//!
//! The parser is strict: a violation of the standard closes the connection with the violation's close code.
//! Memory grows with the bytes that have arrived, not with the announced length, up to the limit of a
//! message. Between messages the parser holds no buffer.

use super::frame::{BINARY, CLOSE, CONTINUATION, FINAL, MAX_CONTROL_SIZE, PING, PONG, TEXT};

/// Maximum bytes of a message of a client: the same as of a small request body.
pub const MAX_MESSAGE_SIZE: usize = crate::body::MAX_SMALL_BODY_SIZE;

/// A complete message or control frame of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Message(String),
    Ping(Vec<u8>),
    Pong,
    /// With the close code, if the client sent one.
    Close(Option<u16>),
}

/// A violation of the protocol, with the code and the reason of the close frame that answers it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
}

impl Violation {
    const BINARY: Self = Self { code: 1003, reason: "only text messages are supported" };
    const NOT_TEXT: Self = Self { code: 1007, reason: "text must be UTF-8" };
    const TOO_LARGE: Self = Self { code: 1009, reason: "a message is limited to 64 KiB" };

    const fn protocol(reason: &'static str) -> Self {
        Self { code: 1002, reason }
    }
}

/// Maximum bytes of a frame's head: two, up to eight more for the length, and four for the mask.
const MAX_HEAD_SIZE: usize = 14;

#[derive(Default)]
pub(crate) struct Parser {
    /// The bytes of the next frame's head that have arrived.
    head: [u8; MAX_HEAD_SIZE],
    head_len: usize,
    /// The frame whose payload is being read.
    frame: Option<Frame>,
    /// The unmasked payload of the current message, over all its frames.
    message: Vec<u8>,
    /// Whether a message has begun whose last frame has not arrived.
    is_in_message: bool,
    /// The payload of a control frame, which may arrive between the frames of a message.
    control: Vec<u8>,
}

struct Frame {
    opcode: u8,
    is_final: bool,
    /// Bytes of the payload that have not arrived.
    remaining: usize,
    /// Rotated so that its first byte applies to the next byte of the payload.
    mask: [u8; 4],
}

impl Parser {
    /// Parses input until an event is complete or all input is consumed (None). Must not be called after a violation.
    pub(crate) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Event>, Violation> {
        loop {
            let mut frame = match self.frame.take() {
                Some(frame) => frame,
                None => match self.read_head(input)? {
                    Some(frame) => frame,
                    None => return Ok(None),
                },
            };
            let (piece, rest) = input.split_at(frame.remaining.min(input.len()));
            *input = rest;
            let payload = if is_control(frame.opcode) { &mut self.control } else { &mut self.message };
            frame.unmask(piece, payload);
            if frame.remaining > 0 {
                self.frame = Some(frame);
                return Ok(None);
            }
            if let Some(event) = self.complete(&frame)? {
                return Ok(Some(event));
            }
        }
    }

    fn read_head(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, Violation> {
        if !self.fill_head(2, input) {
            return Ok(None);
        }
        let [first, second, ..] = self.head;
        let (opcode, is_final) = (first & 0xf, first & FINAL != 0);
        self.check_head(first, second)?;
        let length_bytes = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if !self.fill_head(2 + length_bytes + 4, input) {
            return Ok(None);
        }
        self.head_len = 0;
        let (length, mask) = self.head[2..].split_at(length_bytes);
        let announced = length.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let length = match length_bytes {
            0 => u64::from(second & 0x7f),
            2 if announced > 125 => announced,
            8 if announced > 0xffff && announced >> 63 == 0 => announced,
            _ => return Err(Violation::protocol("a length must have its shortest form")),
        };
        let remaining = usize::try_from(length).unwrap_or(usize::MAX);
        if !is_control(opcode) && remaining > MAX_MESSAGE_SIZE - self.message.len() {
            return Err(Violation::TOO_LARGE);
        }
        let mask = [mask[0], mask[1], mask[2], mask[3]];
        Ok(Some(Frame { opcode, is_final, remaining, mask }))
    }

    /// Moves input into the head until the head has `len` bytes. Returns whether it has them.
    fn fill_head(&mut self, len: usize, input: &mut &[u8]) -> bool {
        let (piece, rest) = input.split_at(len.saturating_sub(self.head_len).min(input.len()));
        self.head[self.head_len..self.head_len + piece.len()].copy_from_slice(piece);
        self.head_len += piece.len();
        *input = rest;
        self.head_len >= len
    }

    /// Checks the first two bytes of a frame.
    fn check_head(&self, first: u8, second: u8) -> Result<(), Violation> {
        let violation = match first & 0xf {
            _ if first & 0x70 != 0 => "no extension was negotiated",
            _ if second & 0x80 == 0 => "a client must mask its frames",
            TEXT | BINARY if self.is_in_message => "the previous message has not ended",
            CONTINUATION if !self.is_in_message => "there is no message to continue",
            BINARY => return Err(Violation::BINARY),
            TEXT | CONTINUATION => return Ok(()),
            CLOSE | PING | PONG if first & FINAL == 0 => "a control frame must not be fragmented",
            CLOSE | PING | PONG if usize::from(second & 0x7f) > MAX_CONTROL_SIZE => {
                "a control frame is too long"
            }
            CLOSE | PING | PONG => return Ok(()),
            _ => "unknown opcode",
        };
        Err(Violation::protocol(violation))
    }

    /// Handles a complete frame. Returns an event if a message or a control frame is complete.
    fn complete(&mut self, frame: &Frame) -> Result<Option<Event>, Violation> {
        match frame.opcode {
            PING => return Ok(Some(Event::Ping(std::mem::take(&mut self.control)))),
            PONG => {
                self.control = Vec::new();
                return Ok(Some(Event::Pong));
            }
            CLOSE => return read_close(&std::mem::take(&mut self.control)).map(Some),
            _ => self.is_in_message = !frame.is_final,
        }
        if self.is_in_message {
            return Ok(None);
        }
        let text = String::from_utf8(std::mem::take(&mut self.message)).map_err(|_| Violation::NOT_TEXT)?;
        Ok(Some(Event::Message(text)))
    }

    /// The capacity of the buffers, in bytes.
    #[cfg(test)]
    fn buffer_size(&self) -> usize {
        self.message.capacity() + self.control.capacity()
    }
}

impl Frame {
    fn unmask(&mut self, piece: &[u8], payload: &mut Vec<u8>) {
        let room = payload.capacity() - payload.len();
        if room < piece.len() {
            // Doubles the capacity like a vector, but not above the limit.
            let doubled = (payload.capacity() * 2).min(MAX_MESSAGE_SIZE).saturating_sub(payload.len());
            payload.reserve_exact(doubled.max(piece.len()));
        }
        payload.extend(piece.iter().zip(self.mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        self.mask.rotate_left(piece.len() % 4);
        self.remaining -= piece.len();
    }
}

fn is_control(opcode: u8) -> bool {
    opcode & 0x8 != 0
}

/// Parses the payload of a close frame: empty, or an allowed code and a reason in UTF-8.
fn read_close(payload: &[u8]) -> Result<Event, Violation> {
    let Some((code, reason)) = payload.split_first_chunk() else {
        return if payload.is_empty() {
            Ok(Event::Close(None))
        } else {
            Err(Violation::protocol("a close frame must not have one byte"))
        };
    };
    let code = u16::from_be_bytes(*code);
    if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
        return Err(Violation::protocol("this close code must not be sent"));
    }
    str::from_utf8(reason).map(|_| Event::Close(Some(code))).map_err(|_| Violation::NOT_TEXT)
}

#[cfg(test)]
#[path = "parser_tests.rs"]
mod tests;
