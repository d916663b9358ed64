//! The composite position: one id that holds the positions of all subjects of a stream.
//!
//! The form is `m2!<room>~<ms>[~<seq>]!...`, with numbers in base 36. A room name of up to 22 characters is written as
//! it is, a longer one as `*` and 132 bits of its SHA-256, so that 32 rooms fit into 2 KiB. The part of the inbox has
//! no name: `~<number>`, or `~-` while the initial page was not sent. Clients send the id back unchanged. An id of
//! another version, or one in which a part may mean two rooms, is answered with `system.reset`.

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
/// The separators do not occur in room names and need no escaping in a URL.
const PART_SEPARATOR: char = '!';
const FIELD_SEPARATOR: char = '~';
/// Marks a digest that replaces a name.
const DIGEST_MARK: char = '*';
/// The position of an inbox whose initial page was not sent.
const NOT_BEGUN: &str = "-";
/// Characters of a digest, and of the longest name that is written as it is.
const KEY_LEN: usize = 22;
/// Maximum bytes of a composite position; enough for 32 rooms and an inbox with the largest numbers.
const MAX_LEN: usize = 2048;

/// The position that a client sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompositePosition {
    Parts(Vec<(PartKey, Option<StreamId>)>),
    /// One position for all subjects. For an inbox, `0-0` means the initial page.
    SameForAll(StreamId),
}

impl CompositePosition {
    /// The position after which each target continues. None: a room continues with its next event, an inbox with its
    /// initial page. Refuses a part that occurs twice, and an inbox that is only in the position or only in the
    /// targets. If one part may mean two of the rooms, their position is [`StreamId::UNKNOWN`].
    pub fn positions(&self, targets: &[Target]) -> Result<Vec<Option<StreamId>>, Reason> {
        let parts = match self {
            Self::Parts(parts) => parts,
            Self::SameForAll(position) => {
                let gets_initial_page =
                    |target: &Target| *target == Target::Inbox && *position == StreamId::START;
                let position = |target: &Target| (!gets_initial_page(target)).then_some(*position);
                return Ok(targets.iter().map(position).collect());
            }
        };
        let keys: Vec<PartKey> = targets.iter().map(PartKey::of).collect();
        for (at, (key, _)) in parts.iter().enumerate() {
            if parts[..at].iter().any(|(other, _)| other == key) {
                return Err(key.error(("두 번 들어 있습니다", "occurs twice")));
            }
        }
        // Rooms may differ, because a client adds and removes rooms. An inbox without a position would skip
        // unread entries.
        match [parts.iter().any(|(key, _)| *key == PartKey::INBOX), keys.contains(&PartKey::INBOX)] {
            [true, false] => {
                return Err(PartKey::INBOX.error(("요청하지 않은 대상입니다", "was not requested (inbox=1)")));
            }
            [false, true] => return Err(PartKey::INBOX.error(("위치가 없습니다", "has no position"))),
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

impl FromStr for CompositePosition {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Self, Reason> {
        // From the beginning of every room.
        if text == "0-0" {
            return Ok(Self::SameForAll(StreamId::START));
        }
        let rest =
            text.strip_prefix('m').filter(|_| text.len() <= MAX_LEN).ok_or(Reason::CompositePosition)?;
        let (version, parts) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()));
        let is_version =
            !version.is_empty() && (parts.is_empty() || parts.starts_with([PART_SEPARATOR, '.']));
        if is_version && version != VERSION {
            // A hub of another version wrote the position, and only that version can read its parts.
            return Ok(Self::SameForAll(StreamId::UNKNOWN));
        }
        let mut parts = parts.split(PART_SEPARATOR);
        if !is_version || parts.next() != Some("") {
            return Err(Reason::CompositePosition);
        }
        parts.map(read_part).collect::<Result<_, _>>().map(Self::Parts)
    }
}

fn read_part(part: &str) -> Result<(PartKey, Option<StreamId>), Reason> {
    let (key, numbers) = part.split_once(FIELD_SEPARATOR).ok_or(Reason::CompositePosition)?;
    let key = PartKey::read(key)?;
    if key == PartKey::INBOX && numbers == NOT_BEGUN {
        return Ok((key, None));
    }
    let mut numbers = numbers.split(FIELD_SEPARATOR).map(|digits| u64::from_str_radix(digits, 36));
    let mut next = || numbers.next().transpose().map_err(|_| Reason::CompositePosition);
    let (ms, seq) = (next()?.unwrap_or(0), next()?);
    if numbers.next().is_some() || (key == PartKey::INBOX && seq.is_some()) {
        return Err(Reason::CompositePosition);
    }
    let position = StreamId::new(ms, seq.unwrap_or(0));
    // The position of an inbox without entries is written `0`.
    let is_empty_inbox = key == PartKey::INBOX && ms == 0;
    Ok((key, Some(if is_empty_inbox { StreamId::EMPTY_SUBJECT } else { position })))
}

/// The key of a subject in a composite position. The same in every process, because positions outlive processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartKey(Cow<'static, str>);

impl PartKey {
    /// The inbox has the empty key, because room names are never empty.
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

    fn error(&self, (ko, en): (&str, &str)) -> Reason {
        let (ko_name, en_name) = match self {
            key if *key == Self::INBOX => ("알림함".to_owned(), "the inbox".to_owned()),
            Self(key) => (format!("방 {key}"), format!("room {key}")),
        };
        Reason::Custom(Text::owned(
            format!("이 스트림의 위치가 아닙니다. {ko_name}: {ko}"),
            format!("is not a position of this stream: {en_name}: {en}"),
        ))
    }

    fn read(text: &str) -> Result<Self, Reason> {
        if text.is_empty() {
            return Ok(Self::INBOX);
        }
        let digest = text.strip_prefix(DIGEST_MARK);
        // All characters of a digest are allowed in an id.
        let name = Id::new(digest.unwrap_or(text)).map_err(|_| Reason::CompositePosition)?;
        let len = name.as_str().len();
        let fits = if digest.is_some() { len == KEY_LEN } else { len <= KEY_LEN };
        if fits { Ok(Self(text.to_owned().into())) } else { Err(Reason::CompositePosition) }
    }
}

/// Writes a composite position.
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

/// Writes many composite positions that differ in the position of one subject.
pub(crate) struct Writer<'a> {
    before: String,
    key: &'a PartKey,
    after: String,
}

impl<'a> Writer<'a> {
    /// `index` is the index in `positions` of the subject whose position differs.
    pub(crate) fn new(positions: &[(&'a PartKey, Option<StreamId>)], index: usize) -> Self {
        let before = write(positions[..index].iter().copied());
        let after = write_parts(positions[index + 1..].iter().copied());
        Self { before, key: positions[index].0, after }
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

    fn read(text: &str) -> CompositePosition {
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
        assert_eq!(
            text, "m2!42~lsod0jk0!*-KeUEIk6f7yuNKdX1Ir68u~lsod0jk1~7",
            "the released form must not change"
        );
        assert_eq!(positions(&text, &[long.clone(), short.clone()]), [Some(second), Some(first)]);
        assert_eq!(
            positions(&text, &[room("43"), short.clone()]),
            [None, Some(first)],
            "room 43 was added, the long room was removed"
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
        for (inbox, text) in [
            (Some(number), "m2!42~7!~h"),
            (Some(StreamId::EMPTY_SUBJECT), "m2!42~7!~0"),
            (None, "m2!42~7!~-"),
        ] {
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
    fn a_digest_is_not_read_as_a_room_name() {
        let long = room(&"a".repeat(23));
        let PartKey(key) = PartKey::of(&long);
        let room_named_like_digest = room(&key[1..]);
        let text = written(&[(&room_named_like_digest, Some(StreamId::new(7, 0)))]);
        assert_eq!(positions(&text, &[long, room_named_like_digest]), [None, Some(StreamId::new(7, 0))]);
    }

    #[test]
    fn a_part_that_could_mean_two_rooms_is_unknown() {
        // The same room twice, as a stand-in for two rooms with the same digest.
        let (a, b) = (room("a"), room("b"));
        let unknown = Some(StreamId::UNKNOWN);
        assert_eq!(
            positions("m2!a~7!b~8", &[a.clone(), a, b]),
            [unknown, unknown, Some(StreamId::new(8, 0))]
        );
    }

    #[test]
    fn a_repeated_part_and_an_unrequested_or_missing_inbox_are_refused() {
        for (text, targets, named) in [
            ("m2!a~7!a~9", vec![room("a")], "room a: occurs twice"),
            ("m2!a~7!~1!~2", vec![room("a"), Target::Inbox], "the inbox: occurs twice"),
            ("m2!a~7!~1", vec![room("a")], "the inbox: was not requested"),
            ("m2!a~7", vec![room("a"), Target::Inbox], "the inbox: has no position"),
        ] {
            let error = read(text).positions(&targets).unwrap_err().text();
            assert!(error.en.contains(named), "{text}: {}", error.en);
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
            assert_eq!(text.parse::<CompositePosition>(), Err(Reason::CompositePosition), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(m[0-9])?[!.~*a-z0-9-]{0,60}") {
            if let Ok(CompositePosition::Parts(parts)) = text.parse::<CompositePosition>() {
                let again = write(parts.iter().map(|(key, at)| (key, *at)));
                prop_assert_eq!(again.parse::<CompositePosition>(), Ok(CompositePosition::Parts(parts)));
            }
        }
    }
}
