//! The envelope that every JSON answer has, and the errors that become one.
//!
//! An error is said in the language of the request; one that passes is marked, so that a stream can say it as a stream.

use axum::response::{IntoResponse, Response};
use bongsu_kernel::text::{Language, Text};
use bongsu_kernel::{Close, Code, Invalid, Reason};
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use crate::frame::language;
use crate::identity::TicketError;

const SUCCESS: Text = Text::new("성공입니다.", "Success.");

/// A successful answer.
#[derive(Debug)]
pub struct Answer<T>(pub T);

/// A successful answer to what goes on after it (202).
#[derive(Debug)]
pub struct Accepted<T>(pub T);

/// What goes over the wire, for errors with `result: null`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Envelope<T> {
    #[schema(example = true)]
    pub is_success: bool,
    /// Stable; never changes with the language.
    #[schema(example = "COMMON200")]
    pub code: &'static str,
    /// For people, in Korean or English by `Accept-Language`, else by `DEFAULT_LANGUAGE`.
    #[schema(example = "성공입니다.")]
    pub message: String,
    pub result: T,
}

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        success(StatusCode::OK, self.0)
    }
}

impl<T: Serialize> IntoResponse for Accepted<T> {
    fn into_response(self) -> Response {
        success(StatusCode::ACCEPTED, self.0)
    }
}

fn success(status: StatusCode, result: impl Serialize) -> Response {
    json(status, &succeeded(result))
}

pub(crate) fn succeeded<T>(result: T) -> Envelope<T> {
    let message = SUCCESS.get(language()).to_owned();
    Envelope { is_success: true, code: "COMMON200", message, result }
}

/// A refusal or a failure, as a client may read it.
#[derive(Debug, Clone)]
pub struct ApiError {
    pub code: Code,
    pub text: Text,
    /// How a stream says the same, when the refusal passes.
    pub close: Close,
}

impl ApiError {
    pub fn new(code: Code, text: Text) -> Self {
        Self { code, text, close: Close::EngineLost }
    }

    /// With fixed words.
    pub fn of(code: Code, ko: &'static str, en: &'static str) -> Self {
        Self::new(code, Text::new(ko, en))
    }

    pub fn unauthorized(ko: &'static str, en: &'static str) -> Self {
        Self::of(Code::Auth4001, ko, en)
    }

    pub fn forbidden(ko: &'static str, en: &'static str) -> Self {
        Self::of(Code::Common403, ko, en)
    }

    pub fn not_found() -> Self {
        Self::new(Code::Common404, Text::new("찾을 수 없습니다.", "Not found."))
    }

    /// What is there does not allow it (any more).
    pub fn conflict(text: Text) -> Self {
        Self::new(Code::Common409, text)
    }

    /// What needs records, on a hub that has none.
    pub fn no_records() -> Self {
        Self::new(
            Code::Common503,
            Text::new("기록을 사용하지 않는 서버입니다.", "Nothing is recorded here: RECORDS is off."),
        )
    }

    pub fn too_large(limit: usize) -> Self {
        let kib = limit >> 10;
        Self::new(
            Code::Common413,
            Text::owned(
                format!("요청 본문은 {kib} KiB를 넘을 수 없습니다."),
                format!("The request body is limited to {kib} KiB."),
            ),
        )
    }

    pub fn too_many(ko: &'static str, en: &'static str) -> Self {
        Self { close: Close::TooMany, ..Self::of(Code::Common429, ko, en) }
    }

    pub fn draining() -> Self {
        let text = Text::new(
            "서버가 종료되는 중입니다. 다시 연결해 주세요.",
            "The server is shutting down; come back.",
        );
        Self { close: Close::Draining, ..Self::new(Code::Sse5001, text) }
    }

    pub fn unexpected() -> Self {
        Self::new(
            Code::Common500,
            Text::new("예상하지 못한 오류가 발생했습니다.", "An unexpected error occurred."),
        )
    }

    /// The whole message in a language.
    pub fn message(&self, language: Language) -> &str {
        self.text.get(language)
    }

    fn envelope(&self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let message = self.message(language()).to_owned();
        let mut response =
            json(status, &Envelope { is_success: false, code: self.code.as_str(), message, result: () });
        if self.code.passes() {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("3"));
        }
        if self.code == Code::Common426 {
            // What would be understood.
            let headers = response.headers_mut();
            headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.envelope();
        if self.code.passes() {
            response.extensions_mut().insert(PassingRefusal(self.close));
        }
        response
    }
}

/// Marks a refusal that an EventSource must not see as a status.
#[derive(Clone, Copy)]
pub(crate) struct PassingRefusal(pub Close);

impl From<TicketError> for ApiError {
    fn from(error: TicketError) -> Self {
        match error {
            TicketError::TooMany => {
                Self::too_many("지금은 티켓이 너무 많습니다.", "Too many tickets are waiting right now.")
            }
            TicketError::Away(_) => {
                tracing::error!(%error, "no ticket");
                let text =
                    Text::new("지금은 Redis에 연결할 수 없습니다.", "Redis cannot be reached right now.");
                Self::new(Code::Redis5001, text)
            }
        }
    }
}

impl From<Invalid> for ApiError {
    fn from(invalid: Invalid) -> Self {
        Self::new(Code::Common400, invalid.text())
    }
}

/// A refused value, by the name of its field.
pub fn invalid(field: &str, reason: Reason) -> ApiError {
    Invalid::new(field, reason).into()
}

/// The headers of every JSON answer: it is for one caller at one moment.
pub(crate) fn json_headers() -> [(HeaderName, HeaderValue); 3] {
    [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ]
}

fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, json_headers(), bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
