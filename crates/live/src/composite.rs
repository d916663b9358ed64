//! The position of a stream that follows several subjects: one id that holds the position of each of them.
//!
//! Written `m2!<room>~<ms>[~<seq>]!...`, numbers in base 36. A room name of up to 22 characters stands as it is, a longer
//! one as `*` and 132 bits of its SHA-256, so that 32 rooms stay within two KiB. The part of the person's inbox has no name,
//! `~<number>`, or `~-` while its beginning was not sent. Clients give the id back as they got it. A position that could
//! mean two rooms, or has another version, is answered with `system.reset`.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bongsu_kernel::text::Text;
use bongsu_kernel::{Id, Reason, StreamId};
use sha2::{Digest, Sha256};

use crate::encode::Target;

const VERSION: &str = "2";
/// Neither character occurs in the name of a room, and both stand in a URL as they are.
const PART_SEPARATOR: char = '!';
const FIELD_SEPARATOR: char = '~';
/// Marks a digest in place of a name.
const DIGEST_MARK: char = '*';
/// Stands for the position in an inbox whose beginning was not sent.
const NOT_BEGUN: &str = "-";
/// Characters of a digest, and of the longest name that stands as it is.
const KEY_LEN: usize = 22;
/// More than 32 rooms and an inbox need, each with the largest numbers.
const MAX_LEN: usize = 2048;

/// A position that a client came back with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Composite {
    Parts(Vec<(PartKey, Option<StreamId>)>),
    /// The same for all; an inbox has no beginning to go back to, and begins anew.
    Everywhere(StreamId),
}

impl Composite {
    /// Where each of the targets continues: after a position, or None, which is with what comes next for a room and anew for
    /// an inbox. Refuses a part that occurs twice, and an inbox in one of position and targets only. Where one part could
    /// mean two of the rooms, their position is [`StreamId::UNKNOWN`].
    pub fn positions(&self, targets: &[Target]) -> Result<Vec<Option<StreamId>>, Reason> {
        let parts = match self {
            Self::Parts(parts) => parts,
            Self::Everywhere(position) => {
                let begins = |target: &Target| *target == Target::Inbox && *position == StreamId::START;
                let position = |target: &Target| (!begins(target)).then_some(*position);
                return Ok(targets.iter().map(position).collect());
            }
        };
        let keys: Vec<PartKey> = targets.iter().map(PartKey::of).collect();
        for (at, (key, _)) in parts.iter().enumerate() {
            if parts[..at].iter().any(|(other, _)| other == key) {
                return Err(key.refused(("두 번 들어 있습니다", "it is there twice")));
            }
        }
        // Rooms come and go, and one that is new has no position. An inbox without one would skip what is unread.
        match [parts.iter().any(|(key, _)| *key == PartKey::INBOX), keys.contains(&PartKey::INBOX)] {
            [true, false] => {
                return Err(
                    PartKey::INBOX.refused(("요청하지 않은 대상입니다", "it was not asked for (inbox=1)"))
                );
            }
            [false, true] => return Err(PartKey::INBOX.refused(("위치가 없습니다", "it has no part"))),
            _ => {}
        }
        let position = |key: &PartKey| {
            let (_, position) = parts.iter().find(|(part, _)| part == key)?;
            let is_shared = keys.iter().filter(|other| *other == key).count() > 1;
            if is_shared { Some(StreamId::UNKNOWN) } else { *position }
        };
        Ok(keys.iter().map(position).collect())
    }
}

impl FromStr for Composite {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Self, Reason> {
        // Before everything, of every room.
        if text == "0-0" {
            return Ok(Self::Everywhere(StreamId::START));
        }
        let rest = text.strip_prefix('m').filter(|_| text.len() <= MAX_LEN).ok_or(Reason::Position)?;
        let (version, parts) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        let is_version =
            !version.is_empty() && (parts.is_empty() || parts.starts_with([PART_SEPARATOR, '.']));
        if is_version && version != VERSION {
            // A hub of another version gave it, and only that one knows which rooms it means.
            return Ok(Self::Everywhere(StreamId::UNKNOWN));
        }
        let mut parts = parts.split(PART_SEPARATOR);
        if !is_version || parts.next() != Some("") {
            return Err(Reason::Position);
        }
        parts.map(read_part).collect::<Result<_, _>>().map(Self::Parts)
    }
}

fn read_part(part: &str) -> Result<(PartKey, Option<StreamId>), Reason> {
    let (key, numbers) = part.split_once(FIELD_SEPARATOR).ok_or(Reason::Position)?;
    let key = PartKey::read(key)?;
    if key == PartKey::INBOX && numbers == NOT_BEGUN {
        return Ok((key, None));
    }
    let mut numbers = numbers.split(FIELD_SEPARATOR).map(|digits| u64::from_str_radix(digits, 36));
    let mut next = || numbers.next().transpose().map_err(|_| Reason::Position);
    let (ms, seq) = (next()?.unwrap_or(0), next()?);
    if numbers.next().is_some() || (key == PartKey::INBOX && seq.is_some()) {
        return Err(Reason::Position);
    }
    let position = StreamId::new(ms, seq.unwrap_or(0));
    // The hub names the place of an inbox without entries `0`.
    let is_empty_inbox = key == PartKey::INBOX && ms == 0;
    Ok((key, Some(if is_empty_inbox { StreamId::EMPTY } else { position })))
}

/// How a subject is named in a position. The same in every process, as positions outlive them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartKey(Cow<'static, str>);

impl PartKey {
    /// No room has an empty name.
    const INBOX: Self = Self(Cow::Borrowed(""));

    pub(crate) fn of(target: &Target) -> Self {
        let name = match target {
            Target::Inbox => return Self::INBOX,
            Target::Room(room) => room.as_str(),
        };
        if name.len() <= KEY_LEN {
            return Self(name.to_owned().into());
        }
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(name));
        Self(format!("{DIGEST_MARK}{}", &digest[..KEY_LEN]).into())
    }

    fn refused(&self, (ko, en): (&str, &str)) -> Reason {
        let (ko_name, en_name) = match self {
            key if *key == Self::INBOX => ("알림함".to_owned(), "the inbox".to_owned()),
            Self(key) => (format!("방 {key}"), format!("room {key}")),
        };
        Reason::Given(Text::owned(
            format!("이 스트림의 위치가 아닙니다. {ko_name}: {ko}"),
            format!("is not a position of this stream: {en_name}: {en}"),
        ))
    }

    fn read(text: &str) -> Result<Self, Reason> {
        if text.is_empty() {
            return Ok(Self::INBOX);
        }
        let digest = text.strip_prefix(DIGEST_MARK);
        // The characters of a digest are among those of an id.
        let name = Id::new(digest.unwrap_or(text)).map_err(|_| Reason::Position)?;
        let len = name.as_str().len();
        let fits = if digest.is_some() { len == KEY_LEN } else { len <= KEY_LEN };
        if fits { Ok(Self(text.to_owned().into())) } else { Err(Reason::Position) }
    }
}

/// A position, as clients are told it.
pub(crate) fn write<'a>(positions: impl Iterator<Item = (&'a PartKey, Option<StreamId>)>) -> String {
    format!("m{VERSION}{}", write_parts(positions))
}

fn write_parts<'a>(positions: impl Iterator<Item = (&'a PartKey, Option<StreamId>)>) -> String {
    positions.map(|(key, position)| part(key, position)).collect()
}

fn part(PartKey(key): &PartKey, position: Option<StreamId>) -> String {
    let (part, field) = (PART_SEPARATOR, FIELD_SEPARATOR);
    match position {
        None => format!("{part}{key}{field}{NOT_BEGUN}"),
        Some(StreamId { ms, seq }) if seq == 0 || key.is_empty() => {
            format!("{part}{key}{field}{}", Base36(ms))
        }
        Some(StreamId { ms, seq }) => format!("{part}{key}{field}{}{field}{}", Base36(ms), Base36(seq)),
    }
}

/// Writes many positions that differ in one subject.
pub(crate) struct Writer<'a> {
    before: String,
    key: &'a PartKey,
    after: String,
}

impl<'a> Writer<'a> {
    /// The subject at `index` is the one whose position differs.
    pub(crate) fn new(positions: &[(&'a PartKey, Option<StreamId>)], index: usize) -> Self {
        let (before, after) = (&positions[..index], &positions[index + 1..]);
        Self {
            before: write(before.iter().copied()),
            key: positions[index].0,
            after: write_parts(after.iter().copied()),
        }
    }

    pub(crate) fn write(&self, position: StreamId) -> String {
        format!("{}{}{}", self.before, part(self.key, Some(position)), self.after)
    }
}

struct Base36(u64);

impl fmt::Display for Base36 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 36 {
            Self(self.0 / 36).fmt(f)?;
        }
        f.write_char(char::from_digit((self.0 % 36) as u32, 36).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LARGEST: StreamId = StreamId::new(u64::MAX, u64::MAX);

    fn room(name: &str) -> Target {
        Target::Room(Id::new(name).unwrap())
    }

    fn read(text: &str) -> Composite {
        text.parse().unwrap_or_else(|reason| panic!("{text:?}: {reason:?}"))
    }

    fn positions(text: &str, targets: &[Target]) -> Vec<Option<StreamId>> {
        read(text).positions(targets).unwrap_or_else(|reason| panic!("{text:?}: {reason:?}"))
    }

    fn written(positions: &[(&Target, Option<StreamId>)]) -> String {
        let keys: Vec<_> = positions.iter().map(|(target, at)| (PartKey::of(target), *at)).collect();
        write(keys.iter().map(|(key, at)| (key, *at)))
    }

    #[test]
    fn positions_are_written_and_read_back() {
        let (short, long) = (room("42"), room("0b3f7a52-8a0e-4c2f-9a53-2f1f0c6c9d11"));
        let (first, second) = (StreamId::new(1_708_070_400_000, 0), StreamId::new(1_708_070_400_001, 7));
        let text = written(&[(&short, Some(first)), (&long, Some(second))]);
        assert_eq!(text, "m2!42~lsod0jk0!*-KeUEIk6f7yuNKdX1Ir68u~lsod0jk1~7", "the form is never changed");
        assert_eq!(positions(&text, &[long.clone(), short.clone()]), [Some(second), Some(first)]);
        assert_eq!(
            positions(&text, &[room("43"), short.clone()]),
            [None, Some(first)],
            "one added, one removed"
        );
        assert_eq!(positions("0-0", std::slice::from_ref(&short)), [Some(StreamId::START)]);
        let keys = [PartKey::of(&short), PartKey::of(&long)];
        let writer = Writer::new(&[(&keys[0], Some(first)), (&keys[1], Some(second))], 0);
        assert_eq!(positions(&writer.write(LARGEST), &[short, long]), [Some(LARGEST), Some(second)]);
    }

    #[test]
    fn an_inbox_has_a_part_without_a_name() {
        let targets = [room("42"), Target::Inbox];
        let (at, number) = (StreamId::new(7, 0), StreamId::new(17, 0));
        for (inbox, text) in
            [(Some(number), "m2!42~7!~h"), (Some(StreamId::EMPTY), "m2!42~7!~0"), (None, "m2!42~7!~-")]
        {
            assert_eq!(written(&[(&targets[0], Some(at)), (&targets[1], inbox)]), text);
            assert_eq!(positions(text, &targets), [Some(at), inbox]);
        }
        assert_eq!(positions("0-0", &targets), [Some(StreamId::START), None]);
    }

    #[test]
    fn thirty_two_rooms_with_the_longest_names_and_an_inbox_fit() {
        let mut targets: Vec<Target> = (0..32).map(|n| room(&format!("{n:0>128}"))).collect();
        targets.push(Target::Inbox);
        let largest: Vec<_> = targets.iter().map(|target| (target, Some(LARGEST))).collect();
        let read = positions(&written(&largest), &targets);
        assert_eq!(read[..32], [Some(LARGEST); 32]);
        assert_eq!(read[32], Some(StreamId::new(u64::MAX, 0)));
    }

    #[test]
    fn a_digest_is_never_taken_for_a_name() {
        let long = room(&"a".repeat(23));
        let PartKey(key) = PartKey::of(&long);
        let named_so = room(&key[1..]);
        let text = written(&[(&named_so, Some(StreamId::new(7, 0)))]);
        assert_eq!(positions(&text, &[long, named_so]), [None, Some(StreamId::new(7, 0))]);
    }

    #[test]
    fn a_part_that_could_mean_two_rooms_is_unknown() {
        // As two rooms with one digest would have it.
        let (a, b) = (room("a"), room("b"));
        let unknown = Some(StreamId::UNKNOWN);
        assert_eq!(
            positions("m2!a~7!b~8", &[a.clone(), a, b]),
            [unknown, unknown, Some(StreamId::new(8, 0))]
        );
    }

    #[test]
    fn a_part_twice_and_an_inbox_too_many_or_too_few_are_refused() {
        for (text, targets, named) in [
            ("m2!a~7!a~9", vec![room("a")], "room a: it is there twice"),
            ("m2!a~7!~1!~2", vec![room("a"), Target::Inbox], "the inbox: it is there twice"),
            ("m2!a~7!~1", vec![room("a")], "the inbox: it was not asked for"),
            ("m2!a~7", vec![room("a"), Target::Inbox], "the inbox: it has no part"),
        ] {
            let refused = read(text).positions(&targets).unwrap_err().text();
            assert!(refused.en.contains(named), "{text}: {}", refused.en);
        }
    }

    #[test]
    fn positions_of_other_versions_are_unknown_for_all() {
        for text in ["m1", "m1.11pcryb~lsod0jk0.7v74r7~1", "m3!whatever it is", "m10.x"] {
            let targets = [room("42"), room("lobby"), Target::Inbox];
            let unknown = Some(StreamId::UNKNOWN);
            assert_eq!(positions(text, &targets), [unknown; 3], "{text}");
        }
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
            "m2!a~-",
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
            if let Ok(Composite::Parts(parts)) = text.parse::<Composite>() {
                let again = write(parts.iter().map(|(key, at)| (key, *at)));
                prop_assert_eq!(again.parse::<Composite>(), Ok(Composite::Parts(parts)));
            }
        }
    }
}
