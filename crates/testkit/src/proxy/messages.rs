//! Drops single pub/sub messages that a Redis server sends, as whole frames, so that a subscriber cannot detect the
//! loss from the protocol.

use std::sync::Mutex;

use crate::resp::FrameSplitter;

/// The beginnings of pub/sub messages after the type byte: of a channel, a sharded channel, a pattern. The type byte is
/// `>` (push) in RESP 3 and `*` (array) in RESP 2.
const BEGINNINGS: [&[u8]; 3] =
    [b"3\r\n$7\r\nmessage\r\n", b"3\r\n$8\r\nsmessage\r\n", b"4\r\n$8\r\npmessage\r\n"];

/// The patterns of messages to drop, and the number of dropped messages.
#[derive(Debug, Default)]
pub(super) struct MessageDropper {
    patterns: Vec<Vec<u8>>,
    dropped_count: u64,
}

impl MessageDropper {
    pub(super) fn add(&mut self, matching: &[u8]) {
        assert!(!matching.is_empty(), "the bytes that a message must contain are empty");
        self.patterns.push(matching.to_owned());
    }

    pub(super) fn dropped_count(&self) -> u64 {
        self.dropped_count
    }

    /// Whether this message must be dropped. Each pattern is used once.
    fn should_drop(&mut self, frame: &[u8]) -> bool {
        let is_match = |matching: &Vec<u8>| frame.windows(matching.len()).any(|part| part == matching);
        let Some(index) = self.patterns.iter().position(is_match) else { return false };
        self.patterns.remove(index);
        self.dropped_count += 1;
        true
    }
}

/// Filters the bytes that a server sends on one connection.
#[derive(Default)]
pub(super) struct MessageFilter {
    frames: FrameSplitter,
    /// The received part of the current frame, while the frame may be a message to drop.
    held: Option<Vec<u8>>,
    /// The bytes are not RESP and are forwarded unchanged.
    is_opaque: bool,
}

impl MessageFilter {
    /// Appends the bytes to forward to `out`. A frame that may be a message to drop is held until it is complete.
    pub(super) fn feed(&mut self, mut bytes: &[u8], dropper: &Mutex<MessageDropper>, out: &mut Vec<u8>) {
        let mut dropper = dropper.lock().unwrap();
        while !bytes.is_empty() {
            if self.is_opaque {
                out.extend_from_slice(bytes);
                return;
            }
            // Only at the beginning of a frame, because a frame that is forwarded in part must be forwarded completely.
            if !self.frames.is_within_frame() && !dropper.patterns.is_empty() {
                self.held = Some(Vec::new());
            }
            let Ok(end) = self.frames.end_in(bytes) else {
                self.is_opaque = true;
                self.finish(out);
                continue;
            };
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            bytes = rest;
            match &mut self.held {
                None => out.extend_from_slice(part),
                Some(held) => {
                    held.extend_from_slice(part);
                    let is_over = !may_be_message(held) || (end.is_some() && !dropper.should_drop(held));
                    if is_over {
                        self.finish(out);
                    } else if end.is_some() {
                        self.held = None;
                    }
                }
            }
        }
    }

    /// Appends held bytes to `out`.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        out.extend(self.held.take().unwrap_or_default());
    }

    pub(super) fn is_holding(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.is_empty())
    }
}

/// Whether the bytes are the beginning of a pub/sub message, or too short to decide.
fn may_be_message(frame: &[u8]) -> bool {
    let Some((b'>' | b'*', rest)) = frame.split_first() else { return false };
    BEGINNINGS.iter().any(|beginning| {
        let common = rest.len().min(beginning.len());
        rest[..common] == beginning[..common]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = ">3\r\n$7\r\nmessage\r\n$4\r\nroom\r\n$3\r\none\r\n";
    const TWO: &str = ">3\r\n$8\r\nsmessage\r\n$4\r\nroom\r\n$5\r\n\r\ntwo\r\n";
    const OLD: &str = "*3\r\n$7\r\nmessage\r\n$4\r\nroom\r\n$3\r\ntwo\r\n";
    const PATTERN: &str = "*4\r\n$8\r\npmessage\r\n$2\r\nr*\r\n$4\r\nroom\r\n$3\r\ntwo\r\n";
    const ANSWER: &str = "*3\r\n$3\r\ntwo\r\n:2\r\n*1\r\n$3\r\ntwo\r\n";

    /// The forwarded bytes when the input arrives in pieces of this size, and the number of dropped messages.
    fn filter_in_pieces(input: &str, piece: usize, patterns: &[&str]) -> (String, u64) {
        let (mut filter, mut out, dropper) =
            (MessageFilter::default(), Vec::new(), Mutex::new(MessageDropper::default()));
        patterns.iter().for_each(|pattern| dropper.lock().unwrap().add(pattern.as_bytes()));
        for piece in input.as_bytes().chunks(piece) {
            filter.feed(piece, &dropper, &mut out);
        }
        filter.finish(&mut out);
        (String::from_utf8(out).unwrap(), dropper.into_inner().unwrap().dropped_count())
    }

    #[test]
    fn one_message_is_dropped_for_each_pattern_and_every_split() {
        let input = [ONE, ANSWER, TWO, ONE, OLD, PATTERN, TWO].concat();
        for piece in 1..=input.len() {
            assert_eq!(filter_in_pieces(&input, piece, &[]), (input.clone(), 0));
            assert_eq!(filter_in_pieces(&input, piece, &["three"]), (input.clone(), 0));
            let without_two = [ONE, ANSWER, ONE, OLD, PATTERN, TWO].concat();
            assert_eq!(filter_in_pieces(&input, piece, &["two"]), (without_two, 1), "in pieces of {piece}");
            let without_all = [ANSWER, ONE, TWO].concat();
            assert_eq!(filter_in_pieces(&input, piece, &["two", "one", "two", "two"]), (without_all, 4));
        }
    }

    #[test]
    fn a_pattern_added_within_a_frame_does_not_apply_to_it() {
        let (mut filter, mut out, dropper) =
            (MessageFilter::default(), Vec::new(), Mutex::new(MessageDropper::default()));
        filter.feed(&TWO.as_bytes()[..12], &dropper, &mut out);
        dropper.lock().unwrap().add(b"two");
        filter.feed([&TWO[12..], TWO, ONE].concat().as_bytes(), &dropper, &mut out);
        assert_eq!((String::from_utf8(out).unwrap(), filter.is_holding()), ([TWO, ONE].concat(), false));
    }

    #[test]
    fn bytes_that_are_not_resp_are_forwarded_unchanged() {
        let input = "*3\r\n$7\r\nmessHTTP/1.1 200 OK\r\n\r\ntwo";
        for piece in 1..=input.len() {
            assert_eq!(filter_in_pieces(input, piece, &["two"]), (input.to_owned(), 0));
        }
    }
}
