//! RESP, the protocol that Redis speaks, versions 2 and 3: where frames end and what they say.
//!
//! [`Frames`] finds ends in bytes that come in pieces, without keeping them; [`Reply`] is one whole frame. Both
//! know the protocol from its specification and from nothing of the hub's.

use std::fmt;

/// No type's first line is longer, but for an error's or a status's words.
const LONGEST_LINE: usize = 64 * 1024;

/// These bytes are no RESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotResp;

/// Finds where frames end.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    /// Elements that are still missing from the frame. Nesting needs no more than this one number.
    open: u64,
    /// An element's first line, as far as it has come.
    line: Vec<u8>,
    /// Bytes of a string, with the line's end behind them, that are still to come.
    skip: u64,
}

impl Frames {
    /// Whether a frame has begun and not ended.
    pub(crate) fn within(&self) -> bool {
        self.open > 0 || self.skip > 0
    }

    /// How many of these bytes belong to the frame under way, when it ends within them; none when it takes all of
    /// them and goes on. A frame begins with the first byte after the last one's end.
    pub(crate) fn end_in(&mut self, bytes: &[u8]) -> Result<Option<usize>, NotResp> {
        if !self.within() {
            self.open = 1;
        }
        let mut at = 0;
        while self.within() {
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
                return if self.line.len() > LONGEST_LINE { Err(NotResp) } else { Ok(None) };
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
            Kind::List { each, beside } => self.open += count(text)?.unwrap_or(0) * each + beside,
        }
        Ok(())
    }
}

/// What an element's first line says about the rest of it.
enum Kind {
    /// It is all of it.
    Line(u8),
    /// So many bytes follow.
    Text,
    /// So many times `each` elements follow, and `beside` that does not belong to it.
    List { each: u64, beside: u64 },
}

fn head(line: &[u8]) -> Result<(Kind, &str), NotResp> {
    let (first, text) = line.strip_suffix(b"\r\n").and_then(<[u8]>::split_first).ok_or(NotResp)?;
    let kind = match first {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => Kind::Line(*first),
        b'$' | b'=' | b'!' => Kind::Text,
        b'*' | b'~' | b'>' => Kind::List { each: 1, beside: 0 },
        b'%' => Kind::List { each: 2, beside: 0 },
        // An attribute stands before the element that it says something about.
        b'|' => Kind::List { each: 2, beside: 1 },
        _ => return Err(NotResp),
    };
    // An error may repeat what a client sent, whatever that was; only numbers are read from here.
    Ok((kind, std::str::from_utf8(text).unwrap_or_default()))
}

/// A length; none for -1, which version 2 uses for "nothing".
fn count(text: &str) -> Result<Option<u64>, NotResp> {
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(count) => u64::try_from(count).map(Some).map_err(|_| NotResp),
        Err(_) => Err(NotResp),
    }
}

/// What a server said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `OK`, `PONG`, `QUEUED`.
    Status(String),
    Error(String),
    Integer(i64),
    /// A string; what is not UTF-8 in it is replaced.
    Text(String),
    Nothing,
    /// An array, a set, or a map with keys and values in turn.
    List(Vec<Reply>),
    /// What version 3 sends unasked, such as a subscriber's message.
    Push(Vec<Reply>),
}

impl Reply {
    /// Reads the frame that begins here; gives it and what follows. Only for whole frames, see [`Frames`].
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), NotResp> {
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(NotResp)? + 1;
        let (line, rest) = bytes.split_at(end);
        let words = || String::from_utf8_lossy(&line[1..line.len() - 2]).into_owned();
        match head(line)? {
            (Kind::Line(b'+'), _) => Ok((Self::Status(words()), rest)),
            (Kind::Line(b'-'), _) => Ok((Self::Error(words()), rest)),
            (Kind::Line(b':'), number) => Ok((Self::Integer(number.parse().map_err(|_| NotResp)?), rest)),
            (Kind::Line(b'#'), truth) => Ok((Self::Integer(i64::from(truth == "t")), rest)),
            (Kind::Line(b'_'), _) => Ok((Self::Nothing, rest)),
            (Kind::Line(_), _) => Ok((Self::Text(words()), rest)),
            (Kind::Text, length) => {
                let Some(length) = count(length)? else { return Ok((Self::Nothing, rest)) };
                let text = rest.get(..length as usize).ok_or(NotResp)?;
                let text = String::from_utf8_lossy(text).into_owned();
                let reply = if line[0] == b'!' { Self::Error(text) } else { Self::Text(text) };
                Ok((reply, rest.get(length as usize + 2..).ok_or(NotResp)?))
            }
            (Kind::List { each, beside }, length) => {
                let Some(length) = count(length)? else { return Ok((Self::Nothing, rest)) };
                let (mut items, mut rest) = (Vec::new(), rest);
                for _ in 0..length * each {
                    let (item, after) = Self::parse(rest)?;
                    items.push(item);
                    rest = after;
                }
                match (beside, line[0]) {
                    (1.., _) => Self::parse(rest),
                    (_, b'>') => Ok((Self::Push(items), rest)),
                    _ => Ok((Self::List(items), rest)),
                }
            }
        }
    }

    /// A string's or a status's words; panics when it is anything else.
    #[track_caller]
    pub fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Status(text) => text,
            other => panic!("not a text: {other:?}"),
        }
    }

    #[track_caller]
    pub fn integer(&self) -> i64 {
        match self {
            Self::Integer(number) => *number,
            other => panic!("not a number: {other:?}"),
        }
    }

    /// The items of a list or a push.
    #[track_caller]
    pub fn items(&self) -> &[Reply] {
        match self {
            Self::List(items) | Self::Push(items) => items,
            other => panic!("not a list: {other:?}"),
        }
    }

    /// What the server refused, if it did.
    pub fn error(&self) -> Option<&str> {
        if let Self::Error(error) = self { Some(error) } else { None }
    }

    /// The reply again, after making sure that it is no error.
    #[track_caller]
    pub fn accepted(self) -> Self {
        assert_eq!(self.error(), None, "the server refused");
        self
    }
}

/// As a person would read it: a list has a line for each item, nothing is an empty text.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(text) | Self::Error(text) | Self::Text(text) => f.write_str(text),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Nothing => Ok(()),
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

    /// Every type there is, nested and empty ones among them.
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
    fn frames_end_where_they_end_however_they_are_cut() {
        let all = FRAMES.concat().into_bytes();
        for piece in 1..=all.len() {
            let (mut frames, mut ends, mut at) = (Frames::default(), Vec::new(), 0);
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
            assert!(!frames.within());
        }
        for other in ["GET / HTTP/1.1\r\n", "*x\r\n", "$-2\r\n", "+no return\n"] {
            assert_eq!(Frames::default().end_in(other.as_bytes()), Err(NotResp), "{other}");
        }
    }

    #[test]
    fn replies_are_read_as_what_they_are() {
        let read =
            |text: &str| Reply::parse(text.as_bytes()).map(|(reply, rest)| (reply, rest.len())).unwrap();
        let text = |text: &str| Reply::Text(text.to_owned());
        for (frame, expected) in FRAMES.iter().zip([
            Reply::Status("OK".to_owned()),
            Reply::Error("ERR no such thing".to_owned()),
            Reply::Integer(-7),
            text("a\r\nbc"),
            Reply::Nothing,
            Reply::Nothing,
            Reply::List(Vec::new()),
            Reply::List(vec![Reply::List(vec![text("")]), Reply::Integer(1)]),
            Reply::List(vec![
                Reply::Status("key".to_owned()),
                Reply::List(vec![Reply::Integer(1), Reply::Nothing]),
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
