//! Ids of rooms, persons, posts and events: text of 1 to 128 characters out of `A-Z a-z 0-9 . _ @ : -`.
//!
//! In JSON an id that is a canonical decimal integer within ±(2^53−1) is written as a number and any other as a string,
//! because JavaScript rounds larger numbers. Both forms are accepted as input.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::error::Reason;

/// The largest integer that every JSON parser represents exactly.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// A validated id. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(Arc<str>);

impl Id {
    pub const MAX_LEN: usize = 128;

    /// Validates the text form.
    pub fn new(text: &str) -> Result<Self, Reason> {
        if text.is_empty() {
            return Err(Reason::Empty);
        }
        if text.len() > Self::MAX_LEN {
            return Err(Reason::TooLong(Self::MAX_LEN));
        }
        if !text.bytes().all(is_id_byte) {
            return Err(Reason::IdCharacters);
        }
        Ok(Self(text.into()))
    }

    /// Parses the JSON form: a string, or an integer within ±(2^53−1).
    pub fn from_json(raw: &str) -> Result<Self, Reason> {
        if raw.starts_with('"') {
            let text: String = serde_json::from_str(raw).map_err(|_| Reason::IdForm)?;
            return Self::new(&text);
        }
        match raw.parse::<i64>() {
            Ok(n) if (-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER).contains(&n) => Self::new(&n.to_string()),
            _ => Err(Reason::IdForm),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number that represents this id in JSON; None when the id is written as a string.
    fn as_number(&self) -> Option<i64> {
        let number: i64 = self.0.parse().ok()?;
        // Only the canonical form may be written as a number: "007", "+7" and "-0" would be read back as different ids.
        ((-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER).contains(&number) && *number.to_string() == *self.0)
            .then_some(number)
    }
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'@' | b':' | b'-')
}

/// For numeric ids from a database. A number outside ±(2^53−1) is written to JSON as a string.
impl From<i64> for Id {
    fn from(number: i64) -> Self {
        Self(number.to_string().into())
    }
}

impl From<u64> for Id {
    fn from(number: u64) -> Self {
        Self(number.to_string().into())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_number() {
            Some(number) => serializer.serialize_i64(number),
            None => serializer.serialize_str(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Id;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id: text, or an integer within ±(2^53−1)")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
                Id::new(text).map_err(|reason| E::custom(reason.text().en))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Id, E> {
                if (-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER).contains(&number) {
                    self.visit_str(&number.to_string())
                } else {
                    Err(E::custom(Reason::IdForm.text().en))
                }
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Id, E> {
                i64::try_from(number)
                    .map_err(|_| E::custom(Reason::IdForm.text().en))
                    .and_then(|n| self.visit_i64(n))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_safe_integers_travel_as_numbers_and_all_else_as_text() {
        for (text, json) in [
            ("42", "42"),
            ("-7", "-7"),
            ("0", "0"),
            ("9007199254740991", "9007199254740991"),
            ("9007199254740992", "\"9007199254740992\""),
            ("007", "\"007\""),
            ("-0", "\"-0\""),
            ("user:1@x.y_z-", "\"user:1@x.y_z-\""),
        ] {
            let id = Id::new(text).unwrap();
            assert_eq!(serde_json::to_string(&id).unwrap(), json);
            assert_eq!(Id::from_json(json).unwrap(), id);
            assert_eq!(serde_json::from_str::<Id>(json).unwrap(), id);
        }
    }

    #[test]
    fn numbers_of_a_database_travel_as_text_past_what_javascript_keeps() {
        let json = |id: Id| serde_json::to_string(&id).unwrap();
        assert_eq!(json(Id::from(MAX_SAFE_INTEGER)), "9007199254740991");
        assert_eq!(json(Id::from(MAX_SAFE_INTEGER + 1)), "\"9007199254740992\"");
        assert_eq!(json(Id::from(i64::MIN)), "\"-9223372036854775808\"");
        assert_eq!(json(Id::from(u64::MAX)), "\"18446744073709551615\"");
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for raw in
            ["\"\"", "\"a b\"", "\"a\\n\"", "1.5", "1e3", "9007199254740992", "null", "true", "[]", "{}"]
        {
            assert!(Id::from_json(raw).is_err(), "{raw}");
            assert!(serde_json::from_str::<Id>(raw).is_err(), "{raw}");
        }
        assert!(Id::new(&"a".repeat(128)).is_ok());
        assert_eq!(Id::new(&"a".repeat(129)), Err(Reason::TooLong(128)));
        assert!(Id::new("방").is_err());
    }
}
