//! JSON objects as text: validated once and stored in compact form. Values are never parsed and serialized again, so
//! numbers keep their digits.
//!
//! An [`Object`] has the bytes that a publisher sent, without the white space outside strings. It contains no line
//! break, so it fits into one SSE data line, and no unpaired surrogate, which some JSON parsers reject.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::Reason;

/// Maximum levels of nesting. Deeper objects are rejected, because JSON parsers of other languages fail on
/// deep nesting.
pub const MAX_DEPTH: usize = 64;

/// The compact text of a JSON object. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object(Arc<str>);

impl Object {
    /// Validates and compacts an object that is given as valid JSON text, and removes its member `except`.
    pub fn parse(raw: &RawValue, except: &str) -> Result<Self, Reason> {
        let text = raw.get();
        if !text.starts_with('{') {
            return Err(Reason::NotAnObject);
        }
        let mut compactor = Compactor { rest: text.as_bytes(), out: Vec::with_capacity(text.len()), except };
        compactor.value(1)?;
        String::from_utf8(compactor.out).map(|text| Self(text.into())).map_err(|_| Reason::Utf8)
    }

    /// Restores an object from the text that [`Object::as_str`] returned and an engine stored. None for text that
    /// cannot be an object.
    pub fn from_stored(text: &str) -> Option<Self> {
        (text.starts_with('{') && text.ends_with('}') && !text.contains(['\n', '\r']))
            .then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The object with the members of every level sorted by key, for comparing contents.
    pub fn canonical(&self) -> String {
        let mut out = String::with_capacity(self.0.len());
        canonical_value(&self.0, &mut out);
        out
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Copies a JSON value without its white space. The input is valid JSON, so the compactor checks only two
/// properties that serde_json does not check in a raw value: the depth, and surrogates. Unexpected input
/// causes an error, never an endless loop.
struct Compactor<'a> {
    rest: &'a [u8],
    out: Vec<u8>,
    except: &'a str,
}

impl Compactor<'_> {
    fn value(&mut self, depth: usize) -> Result<(), Reason> {
        if depth > MAX_DEPTH {
            return Err(Reason::TooDeep(MAX_DEPTH));
        }
        match self.peek()? {
            b'{' => self.object(depth),
            b'[' => self.list(depth),
            b'"' => self.string(),
            _ => {
                let end = self
                    .rest
                    .iter()
                    .position(|b| matches!(b, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r'))
                    .unwrap_or(self.rest.len());
                self.copy(end)
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<(), Reason> {
        self.copy(1)?;
        let mut is_first = true;
        loop {
            match self.peek()? {
                b'}' => return self.copy(1),
                b',' => self.skip(1),
                _ => {
                    let member_start = self.out.len();
                    if !is_first {
                        self.out.push(b',');
                    }
                    let key_start = self.out.len();
                    self.string()?;
                    let is_removed = depth == 1 && self.is_excepted(key_start);
                    self.peek()?;
                    self.copy(1)?;
                    self.peek()?;
                    self.value(depth + 1)?;
                    if is_removed {
                        self.out.truncate(member_start);
                    } else {
                        is_first = false;
                    }
                }
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<(), Reason> {
        self.copy(1)?;
        loop {
            match self.peek()? {
                b']' => return self.copy(1),
                b',' => self.copy(1)?,
                _ => self.value(depth + 1)?,
            }
        }
    }

    fn string(&mut self) -> Result<(), Reason> {
        let mut at = 1;
        loop {
            match self.rest.get(at) {
                Some(b'"') => return self.copy(at + 1),
                Some(b'\\') => {
                    at += match surrogate(&self.rest[at..]) {
                        None => 2,
                        Some(0xD800..0xDC00) => {
                            match surrogate(&self.rest[(at + 6).min(self.rest.len())..]) {
                                Some(0xDC00..0xE000) => 12,
                                _ => return Err(Reason::Escape),
                            }
                        }
                        Some(_) => return Err(Reason::Escape),
                    }
                }
                Some(_) => at += 1,
                None => return Err(Reason::NotText),
            }
        }
    }

    /// Whether the key that was just copied to `key_start` is the member to remove. The key may contain escapes.
    fn is_excepted(&self, key_start: usize) -> bool {
        serde_json::from_slice::<String>(&self.out[key_start..]).is_ok_and(|key| key == self.except)
    }

    /// Skips white space and returns the next byte without consuming it.
    fn peek(&mut self) -> Result<u8, Reason> {
        let start = self.rest.iter().position(|b| !matches!(b, b' ' | b'\t' | b'\n' | b'\r'));
        self.skip(start.unwrap_or(self.rest.len()));
        self.rest.first().copied().ok_or(Reason::NotAnObject)
    }

    fn copy(&mut self, count: usize) -> Result<(), Reason> {
        // At least one byte is consumed, so that unexpected input cannot cause an endless loop.
        let bytes = self.rest.get(..count.max(1)).ok_or(Reason::NotAnObject)?;
        self.out.extend_from_slice(bytes);
        self.skip(count.max(1));
        Ok(())
    }

    fn skip(&mut self, count: usize) {
        self.rest = &self.rest[count..];
    }
}

/// The surrogate that the escape sequence at the start of the bytes encodes (`\uD800` to `\uDFFF`); None for any other
/// escape.
fn surrogate(escape: &[u8]) -> Option<u16> {
    let digits = escape.strip_prefix(b"\\u")?.get(..4)?;
    let unit = u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    (0xD800..0xE000).contains(&unit).then_some(unit)
}

/// Appends the compact JSON `text` to `out`, with the members of every object sorted by key.
fn canonical_value(text: &str, out: &mut String) {
    match text.as_bytes().first() {
        Some(b'{') => {
            let mut members = split(text);
            members.sort_by_key(|member| key_of(member));
            out.push('{');
            for (at, member) in members.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                let key = key_of(member);
                out.push_str(key);
                out.push(':');
                canonical_value(&member[key.len() + 1..], out);
            }
            out.push('}');
        }
        Some(b'[') => {
            out.push('[');
            for (at, item) in split(text).into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                canonical_value(item, out);
            }
            out.push(']');
        }
        _ => out.push_str(text),
    }
}

/// Splits the members or items between the outer brackets of compact JSON text.
fn split(text: &str) -> Vec<&str> {
    let inner = &text[1..text.len() - 1];
    let (mut parts, mut depth, mut start, mut in_string, mut escaped) =
        (Vec::new(), 0_usize, 0, false, false);
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inner.is_empty() {
        parts.push(&inner[start..]);
    }
    parts
}

/// The key at the start of a member, with its quotes.
fn key_of(member: &str) -> &str {
    let mut escaped = false;
    for (at, byte) in member.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return &member[..=at],
            _ => {}
        }
    }
    member
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn parse(text: &str) -> Result<Object, Reason> {
        Object::parse(serde_json::from_str(text).unwrap(), "timestamp")
    }

    #[test]
    fn white_space_goes_and_everything_else_stays() {
        let text =
            "{ \"a\" : [ 1 , 2.50, 1e400 , -0 ] ,\n\"b\":{ },\r\n\t\"c\": \"x y\\n\\\"z\" , \"d\":[ ]}";
        assert_eq!(parse(text).unwrap().as_str(), r#"{"a":[1,2.50,1e400,-0],"b":{},"c":"x y\n\"z","d":[]}"#);
    }

    #[test]
    fn one_member_of_the_outer_object_is_left_out() {
        for (text, kept) in [
            (r#"{"timestamp":1}"#, "{}"),
            (r#"{"timestamp":{"x":[1]},"a":1}"#, r#"{"a":1}"#),
            (r#"{"a":1,"timestamp":"2","b":2}"#, r#"{"a":1,"b":2}"#),
            (r#"{"a":1,"time\u0073tamp":2}"#, r#"{"a":1}"#),
            (r#"{"a":{"timestamp":1}}"#, r#"{"a":{"timestamp":1}}"#),
        ] {
            assert_eq!(parse(text).unwrap().as_str(), kept, "{text}");
        }
    }

    #[test]
    fn what_readers_would_choke_on_is_refused() {
        assert_eq!(parse("[1]"), Err(Reason::NotAnObject));
        assert_eq!(parse("null"), Err(Reason::NotAnObject));
        for bad in [
            r#"{"a":"\ud800"}"#,
            r#"{"a":"\ud800x"}"#,
            r#"{"a":"\udc00"}"#,
            r#"{"\udfff":1}"#,
            r#"{"a":"\ud800\ud800"}"#,
        ] {
            assert_eq!(parse(bad), Err(Reason::Escape), "{bad}");
        }
        assert!(parse(r#"{"a":"\ud83d\ude00 \u0000"}"#).is_ok());
        let deep = |n: usize| format!("{{\"a\":{}{}}}", "[".repeat(n), "]".repeat(n));
        assert!(parse(&deep(MAX_DEPTH - 1)).is_ok());
        assert_eq!(parse(&deep(MAX_DEPTH)), Err(Reason::TooDeep(MAX_DEPTH)));
    }

    #[test]
    fn contents_compare_without_the_order_of_members() {
        let a = parse(r#"{"b":[{"y":1,"x":"},{"}],"a":{"d":[],"c":{}}}"#).unwrap();
        let b = parse(r#"{"a":{"c":{},"d":[]},"b":[{"x":"},{","y":1}]}"#).unwrap();
        assert_eq!(a.canonical(), b.canonical());
        let c = parse(r#"{"a":{"c":{},"d":[]},"b":[{"x":"},{","y":2}]}"#).unwrap();
        assert_ne!(a.canonical(), c.canonical());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_object_keeps_its_meaning(map in prop::collection::btree_map(any::<String>(), any_json(), 0..6)) {
            let value = Value::Object(map.into_iter().filter(|(k, _)| k != "timestamp").collect());
            for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                let object = parse(&text).unwrap();
                prop_assert!(!object.as_str().contains(['\n', '\r']));
                prop_assert_eq!(serde_json::from_str::<Value>(object.as_str()).unwrap(), value.clone());
                prop_assert_eq!(serde_json::from_str::<Value>(&object.canonical()).unwrap(), value.clone());
                prop_assert_eq!(Object::from_stored(object.as_str()), Some(object));
            }
        }
    }
}
