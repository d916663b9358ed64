//! Stream ids: where an event stands in the order of its subject, written `<milliseconds>-<sequence>`.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::error::Reason;

/// The id of a stored event. Ids of one subject only grow and are never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId {
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    /// `0-0`: before everything.
    pub const START: Self = Self { ms: 0, seq: 0 };

    /// `0-1`: the beginning of a subject that was empty when the hub named it. Who comes back with it wants to know
    /// when events were trimmed meanwhile; who asks for `0-0` wants whatever there is.
    pub const EMPTY: Self = Self { ms: 0, seq: 1 };

    /// No event has this id, so every log answers that it does not know it: the stream is reset, and continues with what
    /// comes next.
    pub const UNKNOWN: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// The place of a number, for subjects whose places are numbers; None for what is no number of the usual form.
    pub fn of_number(text: &str) -> Option<Self> {
        let number = canonical(text).ok()?;
        Some(if number == 0 { Self::EMPTY } else { Self::new(number, 0) })
    }

    /// How the hub names this place to a client.
    #[must_use]
    pub fn named(self) -> Self {
        if self == Self::START { Self::EMPTY } else { self }
    }

    pub const fn new(ms: u64, seq: u64) -> Self {
        Self { ms, seq }
    }

    /// The id for an event that is accepted at `now_ms` after `self`: the clock's time, unless the clock
    /// stands still or went back; then the next sequence number.
    #[must_use]
    pub fn next(self, now_ms: u64) -> Self {
        if now_ms > self.ms {
            Self::new(now_ms, 0)
        } else if let Some(seq) = self.seq.checked_add(1) {
            Self::new(self.ms, seq)
        } else {
            Self::new(self.ms + 1, 0)
        }
    }
}

impl FromStr for StreamId {
    type Err = Reason;

    fn from_str(text: &str) -> Result<Self, Reason> {
        let (ms, seq) = text.split_once('-').ok_or(Reason::Position)?;
        Ok(Self::new(canonical(ms)?, canonical(seq)?))
    }
}

/// A decimal number without sign or leading zeros: one id has one spelling.
fn canonical(digits: &str) -> Result<u64, Reason> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits.len() == 1 || !digits.starts_with('0'));
    if !plain {
        return Err(Reason::Position);
    }
    digits.parse().map_err(|_| Reason::Position)
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl Serialize for StreamId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_in_one_spelling_only() {
        assert_eq!("1708070400000-0".parse(), Ok(StreamId::new(1_708_070_400_000, 0)));
        assert_eq!(
            "18446744073709551615-18446744073709551615".parse(),
            Ok(StreamId::new(u64::MAX, u64::MAX))
        );
        for bad in [
            "",
            "-",
            "1",
            "1-",
            "-1",
            "01-0",
            "1-00",
            "+1-0",
            "1-0-0",
            " 1-0",
            "1-0\n",
            "18446744073709551616-0",
        ] {
            assert_eq!(bad.parse::<StreamId>(), Err(Reason::Position), "{bad:?}");
        }
    }

    #[test]
    fn ids_grow_whatever_the_clock_does() {
        let a = StreamId::START.next(100);
        let b = a.next(100);
        let c = b.next(50);
        let d = c.next(101);
        assert_eq!([a, b, c, d].map(|id| id.to_string()), ["100-0", "100-1", "100-2", "101-0"]);
        assert_eq!(StreamId::new(5, u64::MAX).next(5), StreamId::new(6, 0));
    }
}
