//! Takes single pub/sub messages out of what a Redis server sends, whole frames at a time, so that a subscriber
//! misses one without a sign of it.

use std::sync::Mutex;

use crate::resp::Frames;

/// How messages begin: to a channel, to a channel of a cluster's slot, to a pattern. Version 3 marks them as pushes
/// (`>`), version 2 sends arrays (`*`).
const BEGINNINGS: [&[u8]; 3] =
    [b"3\r\n$7\r\nmessage\r\n", b"3\r\n$8\r\nsmessage\r\n", b"4\r\n$8\r\npmessage\r\n"];

/// The messages that are to be taken out, and how many were.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    matching: Vec<Vec<u8>>,
    taken: u64,
}

impl Wanted {
    pub(super) fn add(&mut self, matching: &[u8]) {
        assert!(!matching.is_empty(), "a message is known by something in it");
        self.matching.push(matching.to_owned());
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Whether this message is wanted; each wish is fulfilled once.
    fn take(&mut self, frame: &[u8]) -> bool {
        let holds = |matching: &Vec<u8>| frame.windows(matching.len()).any(|part| part == matching);
        let Some(at) = self.matching.iter().position(holds) else { return false };
        self.matching.remove(at);
        self.taken += 1;
        true
    }
}

/// Looks through what one server sends on one connection.
#[derive(Default)]
pub(super) struct Filter {
    frames: Frames,
    /// The frame under way, while it may be a message that is wanted.
    frame: Option<Vec<u8>>,
    /// What comes is no RESP, and passes as it is.
    opaque: bool,
}

impl Filter {
    /// Takes in bytes and puts out those that pass. A frame that may be a wanted message waits until it is whole.
    pub(super) fn feed(&mut self, mut bytes: &[u8], wanted: &Mutex<Wanted>, out: &mut Vec<u8>) {
        let mut wanted = wanted.lock().unwrap();
        while !bytes.is_empty() {
            if self.opaque {
                out.extend_from_slice(bytes);
                return;
            }
            // Only at its beginning: what has been passed on in part has to be passed on in whole.
            if !self.frames.within() && !wanted.matching.is_empty() {
                self.frame = Some(Vec::new());
            }
            let Ok(end) = self.frames.end_in(bytes) else {
                self.opaque = true;
                self.finish(out);
                continue;
            };
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            bytes = rest;
            match &mut self.frame {
                None => out.extend_from_slice(part),
                Some(frame) => {
                    frame.extend_from_slice(part);
                    let is_over = !may_be_message(frame) || (end.is_some() && !wanted.take(frame));
                    if is_over {
                        self.finish(out);
                    } else if end.is_some() {
                        self.frame = None;
                    }
                }
            }
        }
    }

    /// Puts out what is held back.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        out.extend(self.frame.take().unwrap_or_default());
    }

    pub(super) fn is_holding(&self) -> bool {
        self.frame.as_ref().is_some_and(|frame| !frame.is_empty())
    }
}

/// Whether this is the beginning of a message, or too little of one to tell.
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

    /// What passes when all of it comes in pieces of this size, and how much was taken out.
    fn passed(input: &str, piece: usize, wishes: &[&str]) -> (String, u64) {
        let (mut filter, mut out, wanted) = (Filter::default(), Vec::new(), Mutex::new(Wanted::default()));
        wishes.iter().for_each(|wish| wanted.lock().unwrap().add(wish.as_bytes()));
        for piece in input.as_bytes().chunks(piece) {
            filter.feed(piece, &wanted, &mut out);
        }
        filter.finish(&mut out);
        (String::from_utf8(out).unwrap(), wanted.into_inner().unwrap().taken())
    }

    #[test]
    fn one_message_goes_for_each_wish_however_it_is_cut() {
        let input = [ONE, ANSWER, TWO, ONE, OLD, PATTERN, TWO].concat();
        for piece in 1..=input.len() {
            assert_eq!(passed(&input, piece, &[]), (input.clone(), 0));
            assert_eq!(passed(&input, piece, &["three"]), (input.clone(), 0));
            let without_two = [ONE, ANSWER, ONE, OLD, PATTERN, TWO].concat();
            assert_eq!(passed(&input, piece, &["two"]), (without_two, 1), "in pieces of {piece}");
            let without_all = [ANSWER, ONE, TWO].concat();
            assert_eq!(passed(&input, piece, &["two", "one", "two", "two"]), (without_all, 4));
        }
    }

    #[test]
    fn a_wish_in_the_middle_of_a_frame_leaves_that_frame_alone() {
        let (mut filter, mut out, wanted) = (Filter::default(), Vec::new(), Mutex::new(Wanted::default()));
        filter.feed(&TWO.as_bytes()[..12], &wanted, &mut out);
        wanted.lock().unwrap().add(b"two");
        filter.feed([&TWO[12..], TWO, ONE].concat().as_bytes(), &wanted, &mut out);
        assert_eq!((String::from_utf8(out).unwrap(), filter.is_holding()), ([TWO, ONE].concat(), false));
    }

    #[test]
    fn what_is_not_resp_passes_as_it_is() {
        let input = "*3\r\n$7\r\nmessHTTP/1.1 200 OK\r\n\r\ntwo";
        for piece in 1..=input.len() {
            assert_eq!(passed(input, piece, &["two"]), (input.to_owned(), 0));
        }
    }
}
