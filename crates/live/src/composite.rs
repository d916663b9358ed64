//! The position of a stream that follows several subjects: one id that holds all of theirs.
//!
//! Written `m1.<room>~<position>.<room>~<position>...`, rooms by a short hash and positions in base 36, so that it
//! stays short. It is opaque to clients, and a room that is not in it begins with what comes next.

use std::fmt;
use std::str::FromStr;

use bongsu_kernel::{Id, Reason, StreamId};

/// The version, so that another form can follow.
const FORM: &str = "m1";
/// Before everything, of every room.
const START: &str = "0-0";
/// No position that we gave is longer: 32 rooms.
const LONGEST: usize = 32 * 48;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Composite {
    places: Vec<(u32, StreamId)>,
    /// Where rooms begin that are not named.
    others: Option<StreamId>,
}

impl Composite {
    pub(crate) fn of<'a>(places: impl Iterator<Item = (&'a Id, StreamId)>) -> Self {
        Self { places: places.map(|(room, place)| (hash(room), place)).collect(), others: None }
    }

    /// Where a room stands.
    pub fn position(&self, room: &Id) -> Option<StreamId> {
        let wanted = hash(room);
        self.places.iter().find(|(room, _)| *room == wanted).map(|(_, place)| *place).or(self.others)
    }

    /// Prepares to write many ids that differ in one place.
    pub(crate) fn at(&self, index: usize) -> At {
        let text =
            |places: &[(u32, StreamId)]| places.iter().map(|place| format!(".{}", Place(*place))).collect();
        let (before, rest) = self.places.split_at(index.min(self.places.len()));
        let (own, after) = rest.split_first().map_or((0, rest), |(own, after)| (own.0, after));
        At { before: text(before), room: own, after: text(after) }
    }
}

/// All of a composite but one place.
pub(crate) struct At {
    before: String,
    room: u32,
    after: String,
}

impl At {
    /// The composite with this place, as text. An id that is none of ours stays as it is.
    pub(crate) fn with(&mut self, id: &str) -> String {
        match id.parse() {
            Ok(place) => format!("{FORM}{}.{}{}", self.before, Place((self.room, place)), self.after),
            Err(_) => id.to_owned(),
        }
    }
}

struct Place((u32, StreamId));

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (room, StreamId { ms, seq }) = self.0;
        write!(f, "{}~{}", Base36(u64::from(room)), Base36(ms))?;
        if seq > 0 { write!(f, "~{}", Base36(seq)) } else { Ok(()) }
    }
}

impl fmt::Display for Composite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORM)?;
        self.places.iter().try_for_each(|place| write!(f, ".{}", Place(*place)))
    }
}

impl FromStr for Composite {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Self, Reason> {
        if text == START {
            return Ok(Self { places: Vec::new(), others: Some(StreamId::START) });
        }
        let rest = text.strip_prefix(FORM).filter(|_| text.len() <= LONGEST).ok_or(Reason::Position)?;
        let place = |part: &str| {
            let mut numbers = part.split('~').map(|digits| u64::from_str_radix(digits, 36));
            let mut next = || numbers.next().transpose().map_err(|_| Reason::Position);
            let room = next()?.and_then(|room| u32::try_from(room).ok()).ok_or(Reason::Position)?;
            let ms = next()?.ok_or(Reason::Position)?;
            let seq = next()?.unwrap_or(0);
            if numbers.next().is_some() { Err(Reason::Position) } else { Ok((room, StreamId::new(ms, seq))) }
        };
        let mut parts = rest.split('.');
        // What stands before the first point is nothing.
        if parts.next() != Some("") {
            return Err(Reason::Position);
        }
        Ok(Self { places: parts.map(place).collect::<Result<_, _>>()?, others: None })
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

/// FNV-1a: the same in every version and on every machine, as positions outlive both.
fn hash(room: &Id) -> u32 {
    room.as_str().bytes().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn room(name: &str) -> Id {
        Id::new(name).unwrap()
    }

    #[test]
    fn a_composite_is_written_and_read_back() {
        let (a, b) = (room("42"), room("lobby"));
        let places = [(&a, StreamId::new(1_708_070_400_000, 0)), (&b, StreamId::new(u64::MAX, u64::MAX))];
        let composite = Composite::of(places.into_iter());
        let text = composite.to_string();
        assert_eq!(
            text, "m1.11pcryb~lsod0jk0.7v74r7~3w5e11264sgsf~3w5e11264sgsf",
            "the form is never changed"
        );
        assert_eq!(text.parse(), Ok(composite.clone()));
        assert_eq!(composite.position(&b), Some(StreamId::new(u64::MAX, u64::MAX)));
        assert_eq!(composite.position(&room("other")), None);
        assert_eq!("0-0".parse::<Composite>().unwrap().position(&a), Some(StreamId::START));
        let next = composite.at(0).with("1708070400001-7");
        assert_eq!(
            next.parse::<Composite>().unwrap().position(&a),
            Some(StreamId::new(1_708_070_400_001, 7))
        );
        assert_eq!(next.parse::<Composite>().unwrap().position(&b), composite.position(&b));
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "m1x",
            "m2.1~2",
            "m1.",
            "m1.1",
            "m1.1~",
            "m1.1~2~3~4",
            "m1.~1",
            "m1.1~2.",
            "1-0",
            "m1.zzzzzzzzz~1",
        ] {
            assert_eq!(text.parse::<Composite>(), Err(Reason::Position), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(m1)?[.~a-z0-9-]{0,60}") {
            if let Ok(composite) = text.parse::<Composite>() {
                prop_assert_eq!(composite.to_string().parse::<Composite>(), Ok(composite));
            }
        }
    }
}
