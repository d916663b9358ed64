//! An incremental decoder of the chunked transfer coding. Input may be split at any byte.

use std::io;

use super::malformed;

/// A decoder for one body.
#[derive(Debug, Default)]
pub(crate) struct ChunkedDecoder {
    state: State,
    /// The current line: the size of a chunk, the line end after a chunk, or a trailer.
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

/// Maximum length of a line, in bytes.
const MAX_LINE_LENGTH: usize = 4096;

impl ChunkedDecoder {
    pub(crate) fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    pub(crate) fn feed(&mut self, mut input: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
        while !input.is_empty() {
            match self.state {
                State::Complete => return Err(malformed("bytes after the last chunk")),
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
                        let line =
                            line.strip_suffix(b"\r\n").ok_or_else(|| malformed("chunk line without CRLF"))?;
                        self.state = self.after_line(line)?;
                    } else if self.line.len() > MAX_LINE_LENGTH {
                        return Err(malformed("chunk line too long"));
                    }
                }
            }
        }
        Ok(())
    }

    fn after_line(&self, line: &[u8]) -> io::Result<State> {
        match (&self.state, line.is_empty()) {
            (State::Size, _) => match chunk_size(line).ok_or_else(|| malformed("invalid chunk size"))? {
                0 => Ok(State::Trailer),
                size => Ok(State::Data(size)),
            },
            (State::DataEnd, true) => Ok(State::Size),
            (State::DataEnd, false) => Err(malformed("chunk longer than its size")),
            (_, true) => Ok(State::Complete),
            (_, false) => Ok(State::Trailer),
        }
    }
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let line = std::str::from_utf8(line).ok()?;
    // Chunk extensions after the size are ignored.
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
        fn the_body_is_the_same_for_every_split_of_the_input(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            cuts in prop::collection::vec(1_usize..20, 1..50),
        ) {
            let wire = encode(&parts);
            let mut decoder = ChunkedDecoder::default();
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
    fn extensions_and_trailers_are_ignored() {
        let (mut decoder, mut output) = (ChunkedDecoder::default(), Vec::new());
        decoder.feed(b"3;a=b\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n", &mut output).unwrap();
        assert!(decoder.is_complete());
        assert_eq!(output, b"abc");
    }

    #[test]
    fn malformed_chunks_are_refused() {
        for wire in
            [&b"x\r\n"[..], b"\r\n", b"3\nabc\r\n", b"3\r\nabcd\r\n", b"0\r\n\r\nmore", b"+3\r\nabc\r\n"]
        {
            let result = ChunkedDecoder::default().feed(wire, &mut Vec::new());
            assert!(result.is_err(), "{:?}", String::from_utf8_lossy(wire));
        }
        assert!(ChunkedDecoder::default().feed(&[b'1'; 2 * MAX_LINE_LENGTH], &mut Vec::new()).is_err());
    }
}
