//! Messages, and the topics they are published to.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Error, Row};
use bytes::Bytes;

/// A message to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueMessage {
    /// Chosen by the publisher. A message that is published again with the same id is handled again, so handlers
    /// recognise it by the id.
    pub id: Id,
    pub topic: Id,
    /// Messages with the same key are handled one after the other, as they were stored. None: the message has no order.
    pub key: Option<Id>,
    pub headers: BTreeMap<String, String>,
    pub payload: Bytes,
}

/// A message of a queue, for its handler.
#[derive(Clone, Debug)]
pub struct QueueDelivery {
    pub message: QueueMessage,
    pub published_at: Millis,
    /// How often handling the message has failed.
    pub attempts: u64,
    /// An operator has redriven the message: it is outside the order of its key.
    pub is_redriven: bool,
    pub(crate) row: i64,
}

impl QueueDelivery {
    /// The key in whose order the message is handled.
    pub(crate) fn ordering_key(&self) -> Option<&Id> {
        self.message.key.as_ref().filter(|_| !self.is_redriven)
    }

    /// Reads a row of the query `messages`.
    pub(crate) fn read(row: &Row) -> Result<Self, Error> {
        let key = row.text(3)?;
        let headers = serde_json::from_str(row.text(5)?)
            .map_err(|error| Error::Failed(format!("the headers of a message are not valid: {error}")))?;
        let message = QueueMessage {
            id: row.id(1)?,
            topic: row.id(2)?,
            key: if key.is_empty() { None } else { Some(row.id(3)?) },
            headers,
            payload: decode_payload(row.text(6)?, row.int(7)?)?,
        };
        let is_redriven = message.key.is_some() && row.int(4)? == 0;
        let (published_at, attempts) = (row.count(8)?, row.count(9)?);
        Ok(Self { row: row.int(0)?, message, published_at, attempts, is_redriven })
    }
}

/// The payload as a text column stores it, and whether that is base64: databases store only UTF-8 text without NUL.
pub(crate) fn encode_payload(payload: &[u8]) -> (String, i64) {
    match std::str::from_utf8(payload) {
        Ok(text) if !text.contains('\0') => (text.to_owned(), 0),
        _ => (STANDARD.encode(payload), 1),
    }
}

pub(crate) fn decode_payload(text: &str, is_base64: i64) -> Result<Bytes, Error> {
    if is_base64 == 0 {
        return Ok(Bytes::copy_from_slice(text.as_bytes()));
    }
    let decoded = STANDARD.decode(text);
    decoded.map(Bytes::from).map_err(|error| Error::Failed(format!("a payload is not valid base64: {error}")))
}

/// A pattern of topics as RabbitMQ has it: words between dots, where `*` is any one word and `#` any number of words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPattern(Arc<str>);

impl TopicPattern {
    pub fn new(pattern: impl Into<Arc<str>>) -> Self {
        Self(pattern.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, topic: &Id) -> bool {
        let pattern: Vec<&str> = self.0.split('.').collect();
        let words: Vec<&str> = topic.as_str().split('.').collect();
        matches(&pattern, &words)
    }
}

fn matches(pattern: &[&str], words: &[&str]) -> bool {
    match (pattern, words) {
        ([], []) => true,
        (["#", rest @ ..], _) => (0..=words.len()).any(|taken| matches(rest, &words[taken..])),
        (["*", rest @ ..], [_, words @ ..]) => matches(rest, words),
        ([first, rest @ ..], [word, words @ ..]) => first == word && matches(rest, words),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_topics_word_by_word() {
        for (pattern, matching, others) in [
            ("chat.sent", &["chat.sent"][..], &["chat", "chat.sent.x", "Chat.sent"][..]),
            ("notification.*", &["notification.FOLLOW"], &["notification", "notification.a.b"]),
            ("#", &["a", "a.b"], &[]),
            ("a.#", &["a", "a.b", "a.b.c"], &["b.a"]),
            ("#.c", &["c", "a.c", "a.b.c"], &["a.c.b"]),
        ] {
            let pattern = TopicPattern::new(pattern);
            let is_match = |topic: &&str| pattern.matches(&Id::new(topic).unwrap());
            assert!(matching.iter().all(is_match), "{pattern:?}");
            assert!(!others.iter().any(is_match), "{pattern:?}");
        }
    }

    #[test]
    fn payloads_of_all_bytes_are_stored_without_loss() {
        for payload in [&b"{\"a\":1}"[..], "봉수".as_bytes(), b"", b"a\0b", &[0xFF, 0xFE]] {
            let (text, is_base64) = encode_payload(payload);
            assert!(!text.contains('\0'));
            assert_eq!(decode_payload(&text, is_base64).unwrap(), payload);
        }
        assert_eq!(encode_payload(b"{}"), ("{}".to_owned(), 0), "text stays readable");
    }
}
