//! JSON objects as text: checked once, kept compact, never turned into numbers and back.
//!
//! An [`Object`] is what a publisher sent, byte for byte but for white space outside strings. It has no line
//! break, so it can stand in an SSE data line, and no unpaired surrogate, so that every reader takes it.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::Reason;

/// Deeper nesting is refused: readers in other languages give up on it, and nobody needs it.
pub const MAX_DEPTH: usize = 64;

/// The compact text of a JSON object. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object(Arc<str>);

impl Object {
    /// Takes an object out of valid JSON text, leaving out its member `except`.
    pub fn parse(raw: &RawValue, except: &str) -> Result<Self, Reason> {
        let text = raw.get();
        if !text.starts_with('{') {
            return Err(Reason::NotAnObject);
        }
        let mut compactor = Compactor { rest: text.as_bytes(), out: Vec::with_capacity(text.len()), except };
        compactor.value(1)?;
        String::from_utf8(compactor.out).map(|text| Self(text.into())).map_err(|_| Reason::Utf8)
    }

    /// Reads back what [`Object::as_str`] gave and a store kept.
    pub fn stored(text: &str) -> Option<Self> {
        (text.starts_with('{') && text.ends_with('}') && !text.contains(['\n', '\r']))
            .then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same object whatever the order of its members was: for comparing contents.
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

/// Copies a value without the white space around it. The input is known to be JSON: only what serde_json lets
/// pass unread (depth, surrogates) is checked here, and anything unexpected ends as an error, not in a loop.
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
        let mut first = true;
        loop {
            match self.peek()? {
                b'}' => return self.copy(1),
                b',' => self.skip(1),
                _ => {
                    let before = self.out.len();
                    if !first {
                        self.out.push(b',');
                    }
                    let key = self.out.len();
                    self.string()?;
                    let left_out = depth == 1 && self.is_excepted(key);
                    self.peek()?;
                    self.copy(1)?;
                    self.peek()?;
                    self.value(depth + 1)?;
                    if left_out {
                        self.out.truncate(before);
                    } else {
                        first = false;
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

    /// Whether the key that was just copied is the one to leave out, also when it is written with escapes.
    fn is_excepted(&self, from: usize) -> bool {
        serde_json::from_slice::<String>(&self.out[from..]).is_ok_and(|key| key == self.except)
    }

    fn peek(&mut self) -> Result<u8, Reason> {
        let start = self.rest.iter().position(|b| !matches!(b, b' ' | b'\t' | b'\n' | b'\r'));
        self.skip(start.unwrap_or(self.rest.len()));
        self.rest.first().copied().ok_or(Reason::NotAnObject)
    }

    fn copy(&mut self, count: usize) -> Result<(), Reason> {
        // A value of no length would be copied for ever.
        let taken = self.rest.get(..count.max(1)).ok_or(Reason::NotAnObject)?;
        self.out.extend_from_slice(taken);
        self.skip(count.max(1));
        Ok(())
    }

    fn skip(&mut self, count: usize) {
        self.rest = &self.rest[count..];
    }
}

/// The surrogate that an escape `\uD8..` to `\uDF..` at the start stands for.
fn surrogate(escape: &[u8]) -> Option<u16> {
    let digits = escape.strip_prefix(b"\\u")?.get(..4)?;
    let unit = u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
    (0xD800..0xE000).contains(&unit).then_some(unit)
}

/// Appends compact `text` with the members of every object sorted by key.
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

/// The members or items between the outer brackets of compact text.
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

/// The quoted key at the start of a member.
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
                prop_assert_eq!(Object::stored(object.as_str()), Some(object));
            }
        }
    }
}
