//! Reads the fields of a request one by one, so that an error names its field and the allowed values.
//!
//! A field stays raw JSON until it is read, so values that are not needed are never decoded.

use std::borrow::Cow;
use std::collections::HashMap;

use bongsu_kernel::{InvalidField, Reason};
use serde_json::value::RawValue;

use crate::request;

/// The members of a JSON object. Unknown members are ignored; of repeated members the last counts, as in
/// JavaScript.
#[derive(Debug)]
pub struct Fields<'a> {
    members: HashMap<Cow<'a, str>, &'a RawValue>,
    /// The prefix of field names in errors, such as `events[3].`; empty for the whole body.
    pub(crate) path: String,
}

impl<'a> Fields<'a> {
    /// Parses a whole body.
    pub fn parse_body(body: &'a str) -> Result<Self, InvalidField> {
        Self::read(body, String::new()).map_err(|reason| InvalidField::new("body", reason))
    }

    /// Parses an item of a list.
    pub fn parse_item(raw: &'a RawValue, list: &str, index: usize) -> Result<Self, InvalidField> {
        let name = format!("{list}[{index}]");
        Self::read(raw.get(), format!("{name}.")).map_err(|reason| InvalidField::new(name, reason))
    }

    fn read(text: &'a str, path: String) -> Result<Self, Reason> {
        let members = serde_json::from_str(text).map_err(|error| {
            if error.is_data() { Reason::NotAnObject } else { Reason::Json(error.to_string()) }
        })?;
        Ok(Self { members, path })
    }

    /// An error for a field, with the field's full path.
    pub fn invalid(&self, name: &str, reason: Reason) -> InvalidField {
        InvalidField::new(format!("{}{name}", self.path), reason)
    }

    /// The value of a field; None if the field is missing or `null`.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.members.get(name).copied().filter(|raw| raw.get() != "null")
    }

    /// Reads a field that may be missing.
    pub fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(&'a RawValue) -> Result<T, Reason>,
    ) -> Result<Option<T>, InvalidField> {
        self.get(name).map(read).transpose().map_err(|reason| self.invalid(name, reason))
    }

    pub fn required<T>(
        &self,
        name: &str,
        read: impl FnOnce(&'a RawValue) -> Result<T, Reason>,
    ) -> Result<T, InvalidField> {
        self.optional(name, read)?.ok_or_else(|| self.invalid(name, Reason::Required))
    }

    /// The members of a field that is itself an object; None if the field is missing or `null`.
    pub fn object(&self, name: &str) -> Result<Option<Self>, InvalidField> {
        let path = format!("{}{name}.", self.path);
        self.optional(name, |raw| Self::read(raw.get(), path))
    }

    /// Whether a field is present with the value `null`.
    pub fn is_null(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|raw| raw.get() == "null")
    }

    /// All members, in no particular order.
    pub fn members(&self) -> impl Iterator<Item = (&str, &'a RawValue)> {
        self.members.iter().map(|(name, raw)| (name.as_ref(), *raw))
    }
}

/// Reads a text of at most `max` characters without control characters.
pub fn text(raw: &RawValue, max: usize) -> Result<String, Reason> {
    let text: String = serde_json::from_str(raw.get()).map_err(|_| Reason::NotText)?;
    check_text(text.into(), max, char::is_control)
}

pub(crate) fn check_text(
    text: Cow<'_, str>,
    max: usize,
    is_forbidden: fn(char) -> bool,
) -> Result<String, Reason> {
    // A text of blanks alone counts as empty.
    if text.trim().is_empty() {
        Err(Reason::Empty)
    } else if text.chars().count() > max {
        Err(Reason::TooLong(max))
    } else if text.chars().any(is_forbidden) {
        Err(Reason::ControlCharacters)
    } else {
        Ok(text.into_owned())
    }
}

pub fn flag(raw: &RawValue) -> Result<bool, Reason> {
    parse_flag(raw.get())
}

pub(crate) fn parse_flag(text: &str) -> Result<bool, Reason> {
    text.parse().map_err(|_| Reason::NotABoolean)
}

/// Parses a list of at most `max` items, which stay raw JSON.
pub(crate) fn list(json: &str, max: usize) -> Result<Vec<&RawValue>, Reason> {
    let items: Vec<&RawValue> = serde_json::from_str(json).map_err(|_| Reason::NotAList)?;
    if items.len() > max { Err(Reason::TooMany(max)) } else { Ok(items) }
}

/// The query parameters of a URL. Of repeated parameters the first counts.
#[derive(Debug, Default)]
pub struct UrlQuery(pub(crate) Vec<(String, String)>);

impl UrlQuery {
    pub fn parse(query: Option<&str>) -> Result<Self, InvalidField> {
        let mut pairs = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name).ok_or_else(|| InvalidField::new("query", Reason::Utf8))?;
            let value = decode(value).ok_or_else(|| InvalidField::new(name.clone(), Reason::Utf8))?;
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

request! {
    /// A page of a list, newest first: the query parameters of every list.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub query Page {
        /// The maximum number of items in the page.
        limit: usize = request::limit(100, 20),
        /// The cursor that the previous page returned. Without it, the list begins with the newest item.
        before as "cursor": Option<u64> = request::cursor().optional(),
    }
}

/// Decodes percent and plus encoding; None if the encoding is malformed or the result is not UTF-8.
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
    use crate::request::RequestShape;

    #[test]
    fn a_body_is_an_object() {
        for body in ["", "[]", "1", "{", "{\"a\":}", "\"x\""] {
            assert_eq!(Fields::parse_body(body).unwrap_err().field, "body", "{body}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = UrlQuery::parse(Some("a=1&b=%EB%B0%A9+x&a=2&c&n=500")).unwrap();
        assert_eq!((query.get("a"), query.get("b"), query.get("c")), (Some("1"), Some("방 x"), Some("")));
        let page = |query| Page::read(&UrlQuery::parse(Some(query)).unwrap()).map_err(|error| error.text.en);
        assert_eq!(page("cursor=&x=1"), Ok(Page { before: None, limit: 20 }));
        assert_eq!(page("cursor=17&limit=100"), Ok(Page { before: Some(17), limit: 100 }));
        for bad in ["cursor=0", "cursor=-1", "cursor=x", "limit=0", "limit=101", "limit=", "limit=+1"] {
            assert!(page(bad).is_err(), "{bad}");
        }
        assert!(UrlQuery::parse(Some("a=%ff")).is_err());
        assert!(UrlQuery::parse(Some("a=%f")).is_err());
    }
}
