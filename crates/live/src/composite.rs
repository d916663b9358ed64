//! The position of a stream that follows several rooms: one id that holds the position of each of them.
//!
//! Written `m2!<room>~<ms>[~<seq>]!...`, numbers in base 36. A room name of up to 22 characters stands as it is, a longer
//! one as `*` and 132 bits of its SHA-256, so that 32 rooms stay within two KiB. A part without a room name, `~<number>`,
//! is the position in the person's inbox, which no stream of rooms has yet. Clients give the id back as they got it. A
//! position that could mean two rooms, or has another version, is answered with `system.reset`, never with a guess.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bongsu_kernel::{Id, Reason, StreamId};
use sha2::{Digest, Sha256};

const VERSION: &str = "2";
/// Neither character occurs in the name of a room, and both stand in a URL as they are.
const PART_SEPARATOR: char = '!';
const FIELD_SEPARATOR: char = '~';
/// Marks a digest in place of a name.
const DIGEST_MARK: char = '*';
/// Characters of a digest, and of the longest name that stands as it is.
const KEY_LEN: usize = 22;
/// More than 32 rooms and an inbox need, each with the largest numbers.
const MAX_LEN: usize = 2048;

/// A position that a client came back with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composite {
    positions: Vec<(RoomKey, StreamId)>,
    /// Where rooms continue that have no part: None is with what comes next.
    others: Option<StreamId>,
}

impl Composite {
    /// Where each of the requested rooms continues: after a position, or with what comes next. Two rooms never share a
    /// part: where a part could mean either of them, or two parts the same room, the position is [`StreamId::UNKNOWN`].
    pub fn positions(&self, rooms: &[Id]) -> Vec<Option<StreamId>> {
        let requested: Vec<RoomKey> = rooms.iter().map(RoomKey::of).collect();
        requested.iter().map(|key| self.position(key, &requested)).collect()
    }

    fn position(&self, key: &RoomKey, requested: &[RoomKey]) -> Option<StreamId> {
        let mut found = self.positions.iter().filter(|(room, _)| room == key).map(|(_, position)| *position);
        let is_shared = requested.iter().filter(|other| *other == key).count() > 1;
        match (found.next(), found.next()) {
            (None, _) => self.others,
            (Some(position), None) if !is_shared => Some(position),
            _ => Some(StreamId::UNKNOWN),
        }
    }
}

impl FromStr for Composite {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Self, Reason> {
        let without_parts = |others| Ok(Self { positions: Vec::new(), others: Some(others) });
        // Before everything, of every room.
        if text == "0-0" {
            return without_parts(StreamId::START);
        }
        let rest = text.strip_prefix('m').filter(|_| text.len() <= MAX_LEN).ok_or(Reason::Position)?;
        let (version, parts) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        let is_version =
            !version.is_empty() && (parts.is_empty() || parts.starts_with([PART_SEPARATOR, '.']));
        if is_version && version != VERSION {
            // A hub of another version gave it, and only that one knows which rooms it means.
            return without_parts(StreamId::UNKNOWN);
        }
        let mut parts = parts.split(PART_SEPARATOR);
        if !is_version || parts.next() != Some("") {
            return Err(Reason::Position);
        }
        let positions = parts.map(read_part).filter_map(Result::transpose).collect::<Result<_, _>>()?;
        Ok(Self { positions, others: None })
    }
}

/// A room and its position; None for the part of an inbox.
fn read_part(part: &str) -> Result<Option<(RoomKey, StreamId)>, Reason> {
    let (key, numbers) = part.split_once(FIELD_SEPARATOR).ok_or(Reason::Position)?;
    let mut numbers = numbers.split(FIELD_SEPARATOR).map(|digits| u64::from_str_radix(digits, 36));
    let mut next = || numbers.next().transpose().map_err(|_| Reason::Position);
    let (ms, seq) = (next()?.unwrap_or(0), next()?);
    if numbers.next().is_some() || (key.is_empty() && seq.is_some()) {
        return Err(Reason::Position);
    }
    let position = StreamId::new(ms, seq.unwrap_or(0));
    if key.is_empty() { Ok(None) } else { Ok(Some((key.parse()?, position))) }
}

/// How a room is named in a position. The same in every process, as positions outlive them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoomKey(Box<str>);

impl RoomKey {
    pub(crate) fn of(room: &Id) -> Self {
        if room.as_str().len() <= KEY_LEN {
            return Self(room.as_str().into());
        }
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(room.as_str()));
        Self(format!("{DIGEST_MARK}{}", &digest[..KEY_LEN]).into())
    }
}

impl FromStr for RoomKey {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Self, Reason> {
        let digest = text.strip_prefix(DIGEST_MARK);
        // The characters of a digest are among those of an id.
        let name = Id::new(digest.unwrap_or(text)).map_err(|_| Reason::Position)?;
        let len = name.as_str().len();
        let fits = if digest.is_some() { len == KEY_LEN } else { len <= KEY_LEN };
        if fits { Ok(Self(text.into())) } else { Err(Reason::Position) }
    }
}

/// A position, as clients are told it.
pub(crate) fn write<'a>(positions: impl Iterator<Item = (&'a RoomKey, StreamId)>) -> String {
    format!("m{VERSION}{}", write_parts(positions))
}

fn write_parts<'a>(positions: impl Iterator<Item = (&'a RoomKey, StreamId)>) -> String {
    let mut out = String::new();
    for (key, position) in positions {
        out.push_str(&part(key, position));
    }
    out
}

fn part(RoomKey(key): &RoomKey, StreamId { ms, seq }: StreamId) -> String {
    let (part, field, ms) = (PART_SEPARATOR, FIELD_SEPARATOR, Base36(ms));
    if seq == 0 {
        format!("{part}{key}{field}{ms}")
    } else {
        format!("{part}{key}{field}{ms}{field}{}", Base36(seq))
    }
}

/// Writes many positions that differ in one room.
pub(crate) struct Writer<'a> {
    before: String,
    key: &'a RoomKey,
    after: String,
}

impl<'a> Writer<'a> {
    /// The room at `index` is the one whose position differs.
    pub(crate) fn new(positions: &[(&'a RoomKey, StreamId)], index: usize) -> Self {
        let (before, after) = (&positions[..index], &positions[index + 1..]);
        Self {
            before: write(before.iter().copied()),
            key: positions[index].0,
            after: write_parts(after.iter().copied()),
        }
    }

    pub(crate) fn write(&self, position: StreamId) -> String {
        format!("{}{}{}", self.before, part(self.key, position), self.after)
    }
}

struct Base36(u64);

impl fmt::Display for Base36 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut digits = [0; 13];
        let (mut at, mut rest) = (digits.len(), self.0);
        loop {
            at -= 1;
            digits[at] =
                b"0123456789abcdefghijklmnopqrstuvwxyz"[usize::try_from(rest % 36).unwrap_or_default()];
            rest /= 36;
            if rest == 0 {
                break;
            }
        }
        f.write_str(std::str::from_utf8(&digits[at..]).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LARGEST: StreamId = StreamId::new(u64::MAX, u64::MAX);

    fn room(name: &str) -> Id {
        Id::new(name).unwrap()
    }

    fn read(text: &str) -> Composite {
        text.parse().unwrap_or_else(|reason| panic!("{text:?}: {reason:?}"))
    }

    fn written(positions: &[(&Id, StreamId)]) -> String {
        let keys: Vec<(RoomKey, StreamId)> =
            positions.iter().map(|(room, at)| (RoomKey::of(room), *at)).collect();
        write(keys.iter().map(|(key, at)| (key, *at)))
    }

    #[test]
    fn positions_are_written_and_read_back() {
        let (short, long) = (room("42"), room("0b3f7a52-8a0e-4c2f-9a53-2f1f0c6c9d11"));
        let (first, second) = (StreamId::new(1_708_070_400_000, 0), StreamId::new(1_708_070_400_001, 7));
        let text = written(&[(&short, first), (&long, second)]);
        assert_eq!(text, "m2!42~lsod0jk0!*-KeUEIk6f7yuNKdX1Ir68u~lsod0jk1~7", "the form is never changed");
        let position = read(&text);
        assert_eq!(position.positions(&[long.clone(), short.clone()]), [Some(second), Some(first)]);
        assert_eq!(
            position.positions(&[room("43"), short.clone()]),
            [None, Some(first)],
            "one added, one removed"
        );
        assert_eq!(read("0-0").positions(std::slice::from_ref(&short)), [Some(StreamId::START)]);
        let keys = [RoomKey::of(&short), RoomKey::of(&long)];
        let writer = Writer::new(&[(&keys[0], first), (&keys[1], second)], 0);
        assert_eq!(read(&writer.write(LARGEST)).positions(&[short, long]), [Some(LARGEST), Some(second)]);
    }

    #[test]
    fn thirty_two_rooms_with_the_longest_names_fit() {
        let rooms: Vec<Id> = (0..32).map(|n| room(&format!("{n:0>128}"))).collect();
        let largest: Vec<(&Id, StreamId)> = rooms.iter().map(|room| (room, LARGEST)).collect();
        let text = format!("{}!~3w5e11264sgsf", written(&largest));
        assert_eq!(read(&text).positions(&rooms), [Some(LARGEST); 32]);
    }

    #[test]
    fn a_digest_is_never_taken_for_a_name() {
        let long = room(&"a".repeat(23));
        let RoomKey(key) = RoomKey::of(&long);
        let named_so = room(&key[1..]);
        let position = read(&written(&[(&named_so, StreamId::new(7, 0))]));
        assert_eq!(position.positions(&[long, named_so]), [None, Some(StreamId::new(7, 0))]);
    }

    #[test]
    fn parts_that_could_mean_two_rooms_are_unknown() {
        // As two rooms with one digest would have it.
        let (key, other) = (RoomKey::of(&room("a")), RoomKey::of(&room("b")));
        let unknown = Some(StreamId::UNKNOWN);
        let one = read("m2!a~7!b~8");
        let requested = [key.clone(), key.clone(), other.clone()];
        assert_eq!(one.position(&key, &requested), unknown, "two rooms, one part");
        assert_eq!(one.position(&other, &requested), Some(StreamId::new(8, 0)));
        assert_eq!(
            read("m2!a~7!a~9").position(&key, std::slice::from_ref(&key)),
            unknown,
            "one room, two parts"
        );
    }

    #[test]
    fn positions_of_other_versions_are_unknown_for_every_room() {
        for text in ["m1", "m1.11pcryb~lsod0jk0.7v74r7~1", "m3!whatever it is", "m10.x"] {
            let positions = read(text).positions(&[room("42"), room("lobby")]);
            assert_eq!(positions, [Some(StreamId::UNKNOWN); 2], "{text}");
        }
    }

    #[test]
    fn the_part_of_an_inbox_is_passed_over() {
        assert_eq!(read("m2!~h!42~7").positions(&[room("42")]), [Some(StreamId::new(7, 0))]);
    }

    #[test]
    fn malformed_positions_are_refused() {
        let long = format!("m2!{}~1", "a".repeat(23));
        let endless = format!("m1.{}", "1".repeat(MAX_LEN));
        for text in [
            "",
            "m",
            "mx",
            "m1x",
            "1-0",
            "m2.1~2",
            "m2!",
            "m2!1",
            "m2!1~",
            "m2!1~2~3~4",
            "m2!~",
            "m2!~1~2",
            "m2!1~2!",
            "m2!a b~1",
            "m2!1~zzzzzzzzzzzzzzz",
            "m2!*~1",
            "m2!*short~1",
            "m2!**~1",
            &long,
            &endless,
        ] {
            assert_eq!(text.parse::<Composite>(), Err(Reason::Position), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(m[0-9])?[!.~*a-z0-9-]{0,60}") {
            if let Ok(Composite { positions, others: None }) = text.parse::<Composite>() {
                let again = write(positions.iter().map(|(key, at)| (key, *at)));
                prop_assert_eq!(again.parse::<Composite>().map(|read| read.positions), Ok(positions));
            }
        }
    }
}
