//! The chunked coding, decoded as it comes, cut anywhere.

use std::io;

use super::bad;

/// A decoder for one body.
#[derive(Debug, Default)]
pub(crate) struct Chunked {
    state: State,
    /// The line being read: a chunk's size, the end of a chunk, or a trailer.
    line: Vec<u8>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    Data(u64),
    DataEnd,
    Trailer,
    Complete,
}

const MAX_LINE: usize = 4096;

impl Chunked {
    pub(crate) fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    pub(crate) fn feed(&mut self, mut input: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
        while !input.is_empty() {
            match self.state {
                State::Complete => return Err(bad("bytes after the last chunk")),
                State::Data(left) => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    output.extend_from_slice(&input[..taken]);
                    input = &input[taken..];
                    let left = left - taken as u64;
                    self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                }
                State::Size | State::DataEnd | State::Trailer => {
                    let end = input.iter().position(|byte| *byte == b'\n');
                    let taken = end.map_or(input.len(), |end| end + 1);
                    self.line.extend_from_slice(&input[..taken]);
                    input = &input[taken..];
                    if end.is_some() {
                        let line = std::mem::take(&mut self.line);
                        let line = line.strip_suffix(b"\r\n").ok_or_else(|| bad("a chunk line's end"))?;
                        self.state = self.after_line(line)?;
                    } else if self.line.len() > MAX_LINE {
                        return Err(bad("a chunk line without end"));
                    }
                }
            }
        }
        Ok(())
    }

    fn after_line(&self, line: &[u8]) -> io::Result<State> {
        match (&self.state, line.is_empty()) {
            (State::Size, _) => match chunk_size(line).ok_or_else(|| bad("a chunk's size"))? {
                0 => Ok(State::Trailer),
                size => Ok(State::Data(size)),
            },
            (State::DataEnd, true) => Ok(State::Size),
            (State::DataEnd, false) => Err(bad("a chunk longer than its size")),
            (_, true) => Ok(State::Complete),
            (_, false) => Ok(State::Trailer),
        }
    }
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line).ok()?;
    // Extensions after the size mean nothing to anybody and are passed over.
    let digits = line.split(';').next()?;
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u64::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(parts: &[Vec<u8>]) -> Vec<u8> {
        let mut wire = Vec::new();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            wire.extend(format!("{:x}\r\n", part.len()).bytes());
            wire.extend(part);
            wire.extend(b"\r\n");
        }
        wire.extend(b"0\r\n\r\n");
        wire
    }

    proptest! {
        #[test]
        fn decodes_whatever_the_cuts(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            cuts in prop::collection::vec(1_usize..20, 1..50),
        ) {
            let wire = encode(&parts);
            let mut decoder = Chunked::default();
            let mut output = Vec::new();
            let (mut rest, mut cuts) = (&wire[..], cuts.iter().cycle());
            while !rest.is_empty() {
                prop_assert!(!decoder.is_complete());
                let (now, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                decoder.feed(now, &mut output).unwrap();
                rest = later;
            }
            prop_assert!(decoder.is_complete());
            prop_assert_eq!(output, parts.concat());
        }
    }

    #[test]
    fn passes_over_extensions_and_trailers() {
        let (mut decoder, mut output) = (Chunked::default(), Vec::new());
        decoder.feed(b"3;a=b\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n", &mut output).unwrap();
        assert!(decoder.is_complete());
        assert_eq!(output, b"abc");
    }

    #[test]
    fn refuses_what_is_malformed() {
        for wire in
            [&b"x\r\n"[..], b"\r\n", b"3\nabc\r\n", b"3\r\nabcd\r\n", b"0\r\n\r\nmore", b"+3\r\nabc\r\n"]
        {
            let result = Chunked::default().feed(wire, &mut Vec::new());
            assert!(result.is_err(), "{:?}", String::from_utf8_lossy(wire));
        }
        assert!(Chunked::default().feed(&[b'1'; 2 * MAX_LINE], &mut Vec::new()).is_err());
    }
}
