//! RESP, the protocol of Redis, versions 2 and 3.
//!
//! [`FrameSplitter`] finds the ends of frames in partial input without storing it; [`Reply`] is one parsed frame. Both
//! are written from the specification and use no code of the hub.

use std::fmt;

/// Maximum length of an element's first line, in bytes. Only the text of errors and statuses could exceed it.
const MAX_LINE_LENGTH: usize = 64 * 1024;

/// The error for bytes that are not RESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotResp;

/// Finds the ends of frames.
#[derive(Debug, Default)]
pub(crate) struct FrameSplitter {
    /// Elements that are missing from the current frame. One count is enough for nested frames.
    open: u64,
    /// The bytes of an element's first line received so far.
    line: Vec<u8>,
    /// Bytes of a string, including its line end, that have not been received.
    skip: u64,
}

impl FrameSplitter {
    /// Whether a frame has begun and not ended.
    pub(crate) fn is_within_frame(&self) -> bool {
        self.open > 0 || self.skip > 0
    }

    /// The number of these bytes that belong to the current frame, if the frame ends within them. None if the frame
    /// includes all of the bytes and continues. A frame begins with the first byte after the end of the previous one.
    pub(crate) fn end_in(&mut self, bytes: &[u8]) -> Result<Option<usize>, NotResp> {
        if !self.is_within_frame() {
            self.open = 1;
        }
        let mut at = 0;
        while self.is_within_frame() {
            let rest = &bytes[at..];
            if self.skip > 0 {
                let skipped = rest.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
                self.skip -= skipped as u64;
                at += skipped;
                if self.skip > 0 {
                    return Ok(None);
                }
            } else if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                self.line.extend_from_slice(&rest[..=end]);
                at += end + 1;
                self.take_line()?;
            } else {
                self.line.extend_from_slice(rest);
                return if self.line.len() > MAX_LINE_LENGTH { Err(NotResp) } else { Ok(None) };
            }
        }
        Ok(Some(at))
    }

    fn take_line(&mut self) -> Result<(), NotResp> {
        let line = std::mem::take(&mut self.line);
        let (kind, text) = head(&line)?;
        self.open -= 1;
        match kind {
            Kind::Line(_) => {}
            Kind::Text => {
                if let Some(length) = count(text)? {
                    self.skip = length + 2;
                }
            }
            Kind::List { each, extra } => self.open += count(text)?.unwrap_or(0) * each + extra,
        }
        Ok(())
    }
}

/// How an element continues after its first line.
enum Kind {
    /// The first line is the whole element; the value is the type byte.
    Line(u8),
    /// A string of the given number of bytes follows.
    Text,
    /// `each` times the given number of elements follow, and then `extra` elements that are not part of the list.
    List { each: u64, extra: u64 },
}

fn head(line: &[u8]) -> Result<(Kind, &str), NotResp> {
    let (first, text) = line.strip_suffix(b"\r\n").and_then(<[u8]>::split_first).ok_or(NotResp)?;
    let kind = match first {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Kind::Line(*first),
        b'$' | b'=' | b'!' => Kind::Text,
        b'*' | b'~' | b'>' => Kind::List { each: 1, extra: 0 },
        b'%' => Kind::List { each: 2, extra: 0 },
        // An attribute precedes the element that it describes.
        b'|' => Kind::List { each: 2, extra: 1 },
        _ => return Err(NotResp),
    };
    // The text of an error may contain arbitrary client input. The text is used only for numbers, so invalid UTF-8 is
    // dropped.
    Ok((kind, std::str::from_utf8(text).unwrap_or_default()))
}

/// A length; None for -1, which RESP 2 uses for null.
fn count(text: &str) -> Result<Option<u64>, NotResp> {
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(count) => u64::try_from(count).map(Some).map_err(|_| NotResp),
        Err(_) => Err(NotResp),
    }
}

/// A reply of a Redis server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `OK`, `PONG`, `QUEUED`.
    Status(String),
    Error(String),
    Integer(i64),
    /// A string; invalid UTF-8 is replaced.
    Text(String),
    Null,
    /// An array, a set, or a map as alternating keys and values.
    List(Vec<Reply>),
    /// An out-of-band message of RESP 3, such as a pub/sub message.
    Push(Vec<Reply>),
}

impl Reply {
    /// Parses the frame at the start of `bytes`, which must be complete (see [`FrameSplitter`]). Returns the frame and
    /// the bytes after it.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), NotResp> {
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(NotResp)? + 1;
        let (line, rest) = bytes.split_at(end);
        let line_text = || String::from_utf8_lossy(&line[1..line.len() - 2]).into_owned();
        match head(line)? {
            (Kind::Line(b'+'), _) => Ok((Self::Status(line_text()), rest)),
            (Kind::Line(b'-'), _) => Ok((Self::Error(line_text()), rest)),
            (Kind::Line(b':'), number) => Ok((Self::Integer(number.parse().map_err(|_| NotResp)?), rest)),
            (Kind::Line(b'#'), truth) => Ok((Self::Integer(i64::from(truth == "t")), rest)),
            (Kind::Line(b'_'), _) => Ok((Self::Null, rest)),
            (Kind::Line(_), _) => Ok((Self::Text(line_text()), rest)),
            (Kind::Text, length) => {
                let Some(length) = count(length)? else { return Ok((Self::Null, rest)) };
                let text = rest.get(..length as usize).ok_or(NotResp)?;
                let text = String::from_utf8_lossy(text).into_owned();
                let reply = if line[0] == b'!' { Self::Error(text) } else { Self::Text(text) };
                Ok((reply, rest.get(length as usize + 2..).ok_or(NotResp)?))
            }
            (Kind::List { each, extra }, length) => {
                let Some(length) = count(length)? else { return Ok((Self::Null, rest)) };
                let (mut items, mut rest) = (Vec::new(), rest);
                for _ in 0..length * each {
                    let (item, after) = Self::parse(rest)?;
                    items.push(item);
                    rest = after;
                }
                match (extra, line[0]) {
                    (1.., _) => Self::parse(rest),
                    (_, b'>') => Ok((Self::Push(items), rest)),
                    _ => Ok((Self::List(items), rest)),
                }
            }
        }
    }

    /// The text of a string or a status; panics for any other reply.
    #[track_caller]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Status(text) => text,
            other => panic!("expected a text reply, got {other:?}"),
        }
    }

    #[track_caller]
    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => panic!("expected an integer reply, got {other:?}"),
        }
    }

    /// The items of a list or a push.
    #[track_caller]
    pub fn items(&self) -> &[Reply] {
        match self {
            Self::List(items) | Self::Push(items) => items,
            other => panic!("expected a list reply, got {other:?}"),
        }
    }

    /// The text of an error reply; None for any other reply.
    pub fn error(&self) -> Option<&str> {
        if let Self::Error(error) = self { Some(error) } else { None }
    }

    /// Asserts that the reply is not an error and returns it.
    #[track_caller]
    pub fn expect_ok(self) -> Self {
        assert_eq!(self.error(), None, "the Redis server returned an error");
        self
    }
}

/// Human-readable text: a list has one line per item, a null is empty.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(text) | Self::Error(text) | Self::Text(text) => f.write_str(text),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Null => Ok(()),
            Self::List(items) | Self::Push(items) => {
                let lines: Vec<String> = items.iter().map(Self::to_string).collect();
                f.write_str(&lines.join("\n"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every RESP type, including nested and empty ones.
    const FRAMES: [&str; 14] = [
        "+OK\r\n",
        "-ERR no such thing\r\n",
        ":-7\r\n",
        "$5\r\na\r\nbc\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*2\r\n*1\r\n$0\r\n\r\n:1\r\n",
        "%1\r\n+key\r\n~2\r\n#t\r\n_\r\n",
        ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\n\r\n\r\n",
        ",1.5\r\n",
        "=7\r\ntxt:abc\r\n",
        "!5\r\nERR x\r\n",
        "|1\r\n+ttl\r\n:5\r\n*1\r\n:9\r\n",
    ];

    #[test]
    fn frame_ends_are_found_for_every_split_of_the_input() {
        let all = FRAMES.concat().into_bytes();
        for piece in 1..=all.len() {
            let (mut frames, mut ends, mut at) = (FrameSplitter::default(), Vec::new(), 0);
            for mut bytes in all.chunks(piece) {
                while !bytes.is_empty() {
                    let end = frames.end_in(bytes).unwrap();
                    at += end.unwrap_or(bytes.len());
                    ends.extend(end.map(|_| at));
                    bytes = &bytes[end.unwrap_or(bytes.len())..];
                }
            }
            let expected: Vec<usize> =
                (1..=FRAMES.len()).map(|count| FRAMES[..count].concat().len()).collect();
            assert_eq!(ends, expected, "in pieces of {piece}");
            assert!(!frames.is_within_frame());
        }
        for other in ["GET / HTTP/1.1\r\n", "*x\r\n", "$-2\r\n", "+no return\n"] {
            assert_eq!(FrameSplitter::default().end_in(other.as_bytes()), Err(NotResp), "{other}");
        }
    }

    #[test]
    fn every_reply_type_is_parsed() {
        let read =
            |text: &str| Reply::parse(text.as_bytes()).map(|(reply, rest)| (reply, rest.len())).unwrap();
        let text = |text: &str| Reply::Text(text.to_owned());
        for (frame, expected) in FRAMES.iter().zip([
            Reply::Status("OK".to_owned()),
            Reply::Error("ERR no such thing".to_owned()),
            Reply::Integer(-7),
            text("a\r\nbc"),
            Reply::Null,
            Reply::Null,
            Reply::List(Vec::new()),
            Reply::List(vec![Reply::List(vec![text("")]), Reply::Integer(1)]),
            Reply::List(vec![
                Reply::Status("key".to_owned()),
                Reply::List(vec![Reply::Integer(1), Reply::Null]),
            ]),
            Reply::Push(vec![text("message"), text("a"), text("\r\n")]),
            text("1.5"),
            text("txt:abc"),
            Reply::Error("ERR x".to_owned()),
            Reply::List(vec![Reply::Integer(9)]),
        ]) {
            assert_eq!(read(&format!("{frame}+next\r\n")), (expected, 7));
        }
        assert_eq!(read(FRAMES[7]).0.to_string(), "\n1");
    }
}
