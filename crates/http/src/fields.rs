//! Reads the fields of a request one by one, so that an error names its field and says what is allowed.
//!
//! Values that are not needed are never decoded: a field stays raw JSON until its reader takes it.

use std::borrow::Cow;
use std::collections::HashMap;

use axum::extract::FromRequestParts;
use bongsu_kernel::json::Object;
use bongsu_kernel::{Code, Id, Invalid, Reason};
use http::request::Parts;
use serde_json::value::RawValue;

use crate::answer::ApiError;
use crate::body::SMALL_BODY;

/// The members of a JSON object. Unknown ones are ignored; of repeated ones the last counts, as in JavaScript.
#[derive(Debug)]
pub struct Fields<'a> {
    members: HashMap<Cow<'a, str>, &'a RawValue>,
    /// Where this object stands in the request: `events[3].`, or nothing.
    path: String,
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

    /// A field that may be missing. `null` is as good as missing.
    pub fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(&'a RawValue) -> Result<T, Reason>,
    ) -> Result<Option<T>, Invalid> {
        match self.members.get(name) {
            Some(raw) if raw.get() != "null" => {
                read(raw).map(Some).map_err(|reason| self.invalid(name, reason))
            }
            _ => Ok(None),
        }
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

    /// In a large body, too, an event is no larger than one that comes alone: rings and pages hold whole events.
    pub fn of_one_event(&self, name: &str, object: Object) -> Result<Object, ApiError> {
        if object.as_str().len() > SMALL_BODY {
            let text = self.invalid(name, Reason::TooManyBytes(SMALL_BODY)).text();
            return Err(ApiError::new(Code::Common413, text));
        }
        Ok(object)
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

/// Readers for [`Fields`].
pub fn id(raw: &RawValue) -> Result<Id, Reason> {
    Id::from_json(raw.get())
}

/// Text without control characters.
pub fn text(raw: &RawValue, most: usize) -> Result<String, Reason> {
    checked_text(raw, most, char::is_control)
}

/// Text of several lines: line breaks and tabs are the only control characters.
pub fn prose(raw: &RawValue, most: usize) -> Result<String, Reason> {
    checked_text(raw, most, |c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
}

fn checked_text(raw: &RawValue, most: usize, is_refused: fn(char) -> bool) -> Result<String, Reason> {
    let text: String = serde_json::from_str(raw.get()).map_err(|_| Reason::NotText)?;
    // Blanks alone say nothing to whoever reads it.
    if text.trim().is_empty() {
        Err(Reason::Empty)
    } else if text.chars().count() > most {
        Err(Reason::TooLong(most))
    } else if text.chars().any(is_refused) {
        Err(Reason::ControlCharacters)
    } else {
        Ok(text)
    }
}

pub fn flag(raw: &RawValue) -> Result<bool, Reason> {
    match raw.get() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Reason::NotAFlag),
    }
}

/// A whole number within its bounds.
pub fn whole(raw: &RawValue, min: u64, max: u64) -> Result<u64, Reason> {
    let number = raw.get().parse().ok().filter(|number| (min..=max).contains(number));
    number.ok_or(Reason::Whole { min, max })
}

/// One of a few words.
pub fn one_of(raw: &RawValue, known: &'static [&'static str]) -> Result<&'static str, Reason> {
    let word: Option<String> = serde_json::from_str(raw.get()).ok();
    let found = known.iter().find(|known| word.as_deref() == Some(known));
    found.copied().ok_or(Reason::OneOf(known))
}

/// A list of at most `most` items, still unread.
pub fn list(raw: &RawValue, most: usize) -> Result<Vec<&RawValue>, Reason> {
    let items: Vec<&RawValue> = serde_json::from_str(raw.get()).map_err(|_| Reason::NotAList)?;
    if items.len() > most { Err(Reason::TooMany(most)) } else { Ok(items) }
}

/// The parameters behind the question mark. Of repeated ones the first counts.
#[derive(Debug, Default)]
pub struct Query(Vec<(String, String)>);

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

    /// A whole number within its bounds, when given.
    pub fn whole(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>, Invalid> {
        self.get(name)
            .map(|text| match text.parse() {
                Ok(number) if (min..=max).contains(&number) && !text.starts_with('+') => Ok(number),
                _ => Err(Invalid::new(name, Reason::Whole { min, max })),
            })
            .transpose()
    }
}

/// A part of a list, newest first, as every list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Those before this number: what `cursor` says.
    pub before: Option<u64>,
    pub limit: usize,
}

impl Page {
    /// How many are listed where nothing is said, and at most.
    const USUAL: u64 = 20;
    pub const MOST: u64 = 100;

    pub fn of(query: &Query) -> Result<Self, Invalid> {
        let limit = query.whole("limit", 1, Self::MOST)?.unwrap_or(Self::USUAL);
        // Only what was given out: a number above zero.
        let before = match query.get("cursor") {
            None | Some("") => None,
            Some(_) => query.whole("cursor", 1, i64::MAX as u64)?,
        };
        Ok(Self { before, limit: usize::try_from(limit).unwrap_or(usize::MAX) })
    }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(Self::of(parts.uri.query())?)
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

    #[test]
    fn an_error_names_its_field() {
        let message = |result: Result<Id, Invalid>| result.unwrap_err().to_string();
        let fields = Fields::of_body(r#"{"roomId":"a b","n":null,"x":{}}"#).unwrap();
        assert!(message(fields.required("roomId", id)).starts_with("roomId: "));
        assert_eq!(message(fields.required("n", id)), "n: required");
        assert_eq!(message(fields.required("missing", id)), "missing: required");
        let raw: Box<RawValue> = serde_json::from_str(r#"{"roomId":[]}"#).unwrap();
        let item = Fields::of_item(&raw, "events", 3).unwrap();
        assert!(message(item.required("roomId", id)).starts_with("events[3].roomId: "));
        for body in ["", "[]", "1", "{", "{\"a\":}", "\"x\""] {
            assert_eq!(Fields::of_body(body).unwrap_err().field, "body", "{body}");
        }
    }

    #[test]
    fn values_are_held_against_what_is_allowed() {
        let raw = |text: &str| serde_json::from_str::<Box<RawValue>>(text).unwrap();
        assert_eq!(whole(&raw("100"), 1, 100), Ok(100));
        for other in ["0", "101", "-1", "1.0", "1e1", "\"7\"", "true", "[]"] {
            assert_eq!(whole(&raw(other), 1, 100), Err(Reason::Whole { min: 1, max: 100 }), "{other}");
        }
        assert_eq!(one_of(&raw("\"a\""), &["a", "b"]), Ok("a"));
        for other in ["\"A\"", "\"\"", "1", "{}"] {
            assert_eq!(one_of(&raw(other), &["a", "b"]), Err(Reason::OneOf(&["a", "b"])), "{other}");
        }
        assert_eq!(prose(&raw(r#""a\n\tb""#), 4), Ok("a\n\tb".to_owned()));
        assert_eq!(prose(&raw(r#""a\u0000""#), 4), Err(Reason::ControlCharacters));
        assert_eq!(text(&raw(r#""a\nb""#), 4), Err(Reason::ControlCharacters));
        assert_eq!(prose(&raw(r#""12345""#), 4), Err(Reason::TooLong(4)));
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::of(Some("a=1&b=%EB%B0%A9+x&a=2&c&n=500")).unwrap();
        assert_eq!((query.get("a"), query.get("b"), query.get("c")), (Some("1"), Some("방 x"), Some("")));
        assert_eq!(query.whole("n", 1, 500).unwrap(), Some(500));
        assert!(query.whole("n", 1, 499).is_err());
        assert!(query.whole("b", 1, 499).is_err());
        let page = |query| Page::of(&Query::of(Some(query)).unwrap());
        assert_eq!(page("cursor=&x=1"), Ok(Page { before: None, limit: 20 }));
        assert_eq!(page("cursor=17&limit=100"), Ok(Page { before: Some(17), limit: 100 }));
        for bad in ["cursor=0", "cursor=-1", "cursor=x", "limit=0", "limit=101", "limit="] {
            assert!(page(bad).is_err(), "{bad}");
        }
        assert!(Query::of(Some("a=%ff")).is_err());
        assert!(Query::of(Some("a=%f")).is_err());
    }
}
