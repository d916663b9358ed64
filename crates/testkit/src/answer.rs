//! What a server answered, with the hub's envelope within reach.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

/// One HTTP answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Boxed, so that a `Result` with an answer as its error stays small.
    pub headers: Box<HeaderMap>,
    /// The body as JSON; null when it is none.
    pub body: Value,
    /// The body as it came.
    pub bytes: Bytes,
}

impl Answer {
    pub fn new(status: u16, headers: HeaderMap, bytes: Bytes) -> Self {
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Self { status, headers: Box::new(headers), body, bytes }
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// A header as text; empty when it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The envelope's code; empty when there is none.
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// The envelope's message for people; empty when there is none.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// The envelope's result; null when there is none.
    pub fn result(&self) -> &Value {
        &self.body["result"]
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// The answer again, after making sure that it has this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "the answer was {}", self.text());
        self
    }

    /// Makes sure that this is the error `code` with this status, in a well-formed envelope.
    #[track_caller]
    pub fn expect_error(self, status: u16, code: &str) -> Self {
        let told = (self.status, self.code(), &self.body["isSuccess"], self.result());
        assert_eq!(told, (status, code, &Value::Bool(false), &Value::Null), "the answer was {}", self.text());
        assert!(!self.message().is_empty(), "an error without a message: {}", self.text());
        self
    }
}
