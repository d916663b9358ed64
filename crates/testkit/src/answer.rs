//! An HTTP response, with access to the fields of the hub's response envelope.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

/// One HTTP response.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Boxed, so that a `Result` with an `Answer` as its error stays small.
    pub headers: Box<HeaderMap>,
    /// The body as JSON; null if it is not JSON.
    pub body: Value,
    /// The body as received.
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

    /// A header as text; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The envelope's code; empty if it is missing.
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// The envelope's human-readable message; empty if it is missing.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// The envelope's result; null if it is missing.
    pub fn result(&self) -> &Value {
        &self.body["result"]
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Asserts the status and returns the answer.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "the answer was {}", self.text());
        self
    }

    /// Asserts that this is the error `code` with this status in a well-formed envelope, and returns the answer.
    #[track_caller]
    pub fn expect_error(self, status: u16, code: &str) -> Self {
        let actual = (self.status, self.code(), &self.body["isSuccess"], self.result());
        assert_eq!(
            actual,
            (status, code, &Value::Bool(false), &Value::Null),
            "the answer was {}",
            self.text()
        );
        assert!(!self.message().is_empty(), "the error has no message: {}", self.text());
        self
    }
}
