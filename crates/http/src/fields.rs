//! Reads the fields of a request one by one, so that an error names its field and says what is allowed.
//!
//! Values that are not needed are never decoded: a field stays raw JSON until its reader takes it.

use std::borrow::Cow;
use std::collections::HashMap;

use bongsu_kernel::{Invalid, Reason};
use serde_json::value::RawValue;

use crate::request;

/// The members of a JSON object. Unknown ones are ignored; of repeated ones the last counts, as in JavaScript.
#[derive(Debug)]
pub struct Fields<'a> {
    members: HashMap<Cow<'a, str>, &'a RawValue>,
    /// Where this object stands in the request: `events[3].`, or nothing.
    pub(crate) path: String,
}

impl<'a> Fields<'a> {
    /// Reads a whole body.
    pub fn of_body(body: &'a str) -> Result<Self, Invalid> {
        Self::read(body, String::new()).map_err(|reason| Invalid::new("body", reason))
    }

    /// Reads an item of a list.
    pub fn of_item(raw: &'a RawValue, list: &str, index: usize) -> Result<Self, Invalid> {
        let name = format!("{list}[{index}]");
        Self::read(raw.get(), format!("{name}.")).map_err(|reason| Invalid::new(name, reason))
    }

    fn read(text: &'a str, path: String) -> Result<Self, Reason> {
        let members = serde_json::from_str(text).map_err(|error| {
            if error.is_data() { Reason::NotAnObject } else { Reason::Json(error.to_string()) }
        })?;
        Ok(Self { members, path })
    }

    /// An error of a field, with where the field stands.
    pub fn invalid(&self, name: &str, reason: Reason) -> Invalid {
        Invalid::new(format!("{}{name}", self.path), reason)
    }

    /// A field that is given. `null` is as good as missing.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.members.get(name).copied().filter(|raw| raw.get() != "null")
    }

    /// A field that may be missing.
    pub fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(&'a RawValue) -> Result<T, Reason>,
    ) -> Result<Option<T>, Invalid> {
        self.get(name).map(read).transpose().map_err(|reason| self.invalid(name, reason))
    }

    pub fn required<T>(
        &self,
        name: &str,
        read: impl FnOnce(&'a RawValue) -> Result<T, Reason>,
    ) -> Result<T, Invalid> {
        self.optional(name, read)?.ok_or_else(|| self.invalid(name, Reason::Required))
    }
}

impl<'a> Fields<'a> {
    /// The members of a field that is an object itself, if it is there.
    pub fn within(&self, name: &str) -> Result<Option<Self>, Invalid> {
        let path = format!("{}{name}.", self.path);
        self.optional(name, |raw| Self::read(raw.get(), path))
    }

    /// Whether a field is there and says nothing.
    pub fn is_null(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|raw| raw.get() == "null")
    }

    /// All of them, in no order.
    pub fn members(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.members.iter().map(|(name, raw)| (name.as_ref(), *raw))
    }
}

/// Text without control characters.
pub fn text(raw: &RawValue, most: usize) -> Result<String, Reason> {
    let text: String = serde_json::from_str(raw.get()).map_err(|_| Reason::NotText)?;
    check_text(text.into(), most, char::is_control)
}

pub(crate) fn check_text(
    text: Cow<'_, str>,
    most: usize,
    is_refused: fn(char) -> bool,
) -> Result<String, Reason> {
    // Blanks alone say nothing to whoever reads it.
    if text.trim().is_empty() {
        Err(Reason::Empty)
    } else if text.chars().count() > most {
        Err(Reason::TooLong(most))
    } else if text.chars().any(is_refused) {
        Err(Reason::ControlCharacters)
    } else {
        Ok(text.into_owned())
    }
}

pub fn flag(raw: &RawValue) -> Result<bool, Reason> {
    parse_flag(raw.get())
}

pub(crate) fn parse_flag(text: &str) -> Result<bool, Reason> {
    text.parse().map_err(|_| Reason::NotAFlag)
}

/// A list of at most `most` items, still unread.
pub(crate) fn list(json: &str, most: usize) -> Result<Vec<&RawValue>, Reason> {
    let items: Vec<&RawValue> = serde_json::from_str(json).map_err(|_| Reason::NotAList)?;
    if items.len() > most { Err(Reason::TooMany(most)) } else { Ok(items) }
}

/// The parameters behind the question mark. Of repeated ones the first counts.
#[derive(Debug, Default)]
pub struct Query(pub(crate) Vec<(String, String)>);

impl Query {
    pub fn of(query: Option<&str>) -> Result<Self, Invalid> {
        let mut pairs = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name).ok_or_else(|| Invalid::new("query", Reason::Utf8))?;
            let value = decode(value).ok_or_else(|| Invalid::new(name.clone(), Reason::Utf8))?;
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

request! {
    /// A part of a list, newest first, as every list is asked for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub query Page {
        /// How many at most.
        limit: usize = request::limit(100, 20),
        /// The cursor for the next page that came with the page before.
        before as "cursor": Option<u64> = request::cursor().optional(),
    }
}

/// Undoes percent and plus encoding. Nothing when the result is not UTF-8.
pub fn decode(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let (high, low) = (bytes.next()?, bytes.next()?);
                let digit = |b: u8| char::from(b).to_digit(16);
                out.push(u8::try_from(digit(high)? * 16 + digit(low)?).ok()?);
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;

    #[test]
    fn a_body_is_an_object() {
        for body in ["", "[]", "1", "{", "{\"a\":}", "\"x\""] {
            assert_eq!(Fields::of_body(body).unwrap_err().field, "body", "{body}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::of(Some("a=1&b=%EB%B0%A9+x&a=2&c&n=500")).unwrap();
        assert_eq!((query.get("a"), query.get("b"), query.get("c")), (Some("1"), Some("방 x"), Some("")));
        let page = |query| Page::read(&Query::of(Some(query)).unwrap()).map_err(|error| error.text.en);
        assert_eq!(page("cursor=&x=1"), Ok(Page { before: None, limit: 20 }));
        assert_eq!(page("cursor=17&limit=100"), Ok(Page { before: Some(17), limit: 100 }));
        for bad in ["cursor=0", "cursor=-1", "cursor=x", "limit=0", "limit=101", "limit=", "limit=+1"] {
            assert!(page(bad).is_err(), "{bad}");
        }
        assert!(Query::of(Some("a=%ff")).is_err());
        assert!(Query::of(Some("a=%f")).is_err());
    }
}
