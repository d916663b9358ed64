//! Event types: dotted lower-case names such as `retrospect.submitted` or `comment.created.v2`.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::error::Reason;

/// The regular expression of event types, as the contract and the OpenAPI document state it.
pub const PATTERN: &str = r"^[a-z][a-z0-9]*(\.[a-z][a-z0-9_]*)+(\.v[0-9]+)?$";

/// A validated event type. It contains no line break, so it is safe in an SSE line.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventType(Arc<str>);

impl EventType {
    pub const MAX_LEN: usize = 64;
    /// Prefixes of the event types that only the hub sends.
    pub const RESERVED_PREFIXES: [&'static str; 2] = ["system.", "presence."];

    pub fn new(text: &str) -> Result<Self, Reason> {
        if text.len() > Self::MAX_LEN {
            return Err(Reason::TooLong(Self::MAX_LEN));
        }
        if !matches_pattern(text) {
            return Err(Reason::EventTypeForm);
        }
        Ok(Self(text.into()))
    }

    /// Whether only the hub may send events of this type.
    pub fn is_reserved(&self) -> bool {
        Self::RESERVED_PREFIXES.iter().any(|prefix| self.0.starts_with(prefix))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Matches [`PATTERN`] without a regular expression engine: a first word without underscore, then at least one more
/// word. A version such as `.v2` at the end is a word like the others, so no separate rule checks it.
fn matches_pattern(text: &str) -> bool {
    let mut words = text.split('.');
    let is_first_valid = words.next().is_some_and(|word| is_word(word, false));
    let mut further_words = 0;
    is_first_valid
        && words.all(|word| {
            further_words += 1;
            is_word(word, true)
        })
        && further_words > 0
}

fn is_word(word: &str, allows_underscore: bool) -> bool {
    let mut bytes = word.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || (allows_underscore && b == b'_'))
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for EventType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_is_kept() {
        for good in ["a.b", "retrospect.submitted", "comment.created.v2", "a1.b_c.d", "x.v1"] {
            assert!(EventType::new(good).is_ok(), "{good}");
        }
        for bad in [
            "", "a", "a.", ".a", "A.b", "a.B", "a_b.c", "1a.b", "a.1b", "a..b", "a.b\n", "a.b c", "a.b:",
            "가.나",
        ] {
            assert!(EventType::new(bad).is_err(), "{bad:?}");
        }
        assert!(EventType::new(&format!("a.{}", "b".repeat(62))).is_ok());
        assert_eq!(EventType::new(&format!("a.{}", "b".repeat(63))), Err(Reason::TooLong(64)));
    }

    #[test]
    fn the_hubs_own_families_are_reserved() {
        assert!(EventType::new("system.close").unwrap().is_reserved());
        assert!(EventType::new("presence.update").unwrap().is_reserved());
        assert!(!EventType::new("systems.close").unwrap().is_reserved());
    }
}
