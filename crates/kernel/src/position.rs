//! Stream ids: the position of an event in the order of its subject, written `<milliseconds>-<sequence>`.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::error::Reason;

/// The id of a stored event. Ids of one subject increase strictly and are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId {
    pub ms: u64,
    pub seq: u64,
}

impl StreamId {
    /// `0-0`: the position before all events.
    pub const START: Self = Self { ms: 0, seq: 0 };

    /// `0-1`: the position that a client receives while its subject has no events. A client that resumes from
    /// `0-1` gets a reset when events were trimmed in the meantime; a client that asks for `0-0` gets all
    /// entries that the log still has.
    pub const EMPTY_SUBJECT: Self = Self { ms: 0, seq: 1 };

    /// A position that no event has. Every log reports it as unknown, so the stream is reset and continues with the
    /// next event.
    pub const UNKNOWN: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// The position for a number, for subjects whose positions are numbers. None when the text is not a canonical
    /// decimal number.
    pub fn from_number(text: &str) -> Option<Self> {
        let number = canonical(text).ok()?;
        Some(if number == 0 { Self::EMPTY_SUBJECT } else { Self::new(number, 0) })
    }

    /// The position as the hub sends it to a client: [`START`](Self::START) becomes [`EMPTY_SUBJECT`](Self::EMPTY_SUBJECT).
    #[must_use]
    pub fn for_client(self) -> Self {
        if self == Self::START { Self::EMPTY_SUBJECT } else { self }
    }

    pub const fn new(ms: u64, seq: u64) -> Self {
        Self { ms, seq }
    }

    /// The id for the event after `self` that is accepted at `now_ms`. It has the time of the clock; when the clock did
    /// not advance or went back, it has the time of `self` and the next sequence number.
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

/// Parses a decimal number without sign and leading zeros, so that each id has only one text form.
fn canonical(digits: &str) -> Result<u64, Reason> {
    let is_canonical =
        digits.bytes().all(|b| b.is_ascii_digit()) && (digits.len() == 1 || !digits.starts_with('0'));
    if !is_canonical {
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
