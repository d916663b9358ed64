//! The envelope of every JSON response, and the errors that are sent in it.
//!
//! An error message is in the language of the request. A transient error is marked, so that `request_scope` can send it
//! to an EventSource as an event.

use axum::response::{IntoResponse, Response};
use bongsu_kernel::text::{Language, Text};
use bongsu_kernel::{Close, Code, InvalidField, Reason};
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use crate::identity::TicketError;
use crate::request_scope::language;

const SUCCESS: Text = Text::new("성공입니다.", "Success.");

/// A successful response (200).
#[derive(Debug)]
pub struct Answer<T>(pub T);

/// A successful response to a request whose work continues after the response (202).
#[derive(Debug)]
pub struct AcceptedAnswer<T>(pub T);

/// The body of every JSON response; `result` is null in an error.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Envelope<T> {
    #[schema(example = true)]
    pub is_success: bool,
    /// A stable code, the same in every language.
    #[schema(example = "COMMON200")]
    pub code: &'static str,
    /// A message for people, in the language of `Accept-Language` (Korean or English), or in
    /// `DEFAULT_LANGUAGE`.
    #[schema(example = "성공입니다.")]
    pub message: String,
    pub result: T,
}

impl<T: Serialize> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        json(StatusCode::OK, &succeeded(self.0))
    }
}

impl<T: Serialize> IntoResponse for AcceptedAnswer<T> {
    fn into_response(self) -> Response {
        json(StatusCode::ACCEPTED, &succeeded(self.0))
    }
}

pub(crate) fn succeeded<T>(result: T) -> Envelope<T> {
    let message = SUCCESS.get(language()).to_owned();
    Envelope { is_success: true, code: "COMMON200", message, result }
}

/// An error as the client sees it.
#[derive(Debug, Clone)]
pub struct ApiError {
    pub code: Code,
    pub text: Text,
    /// The close code that a stream sends for this error, if the error is transient.
    pub close: Close,
}

impl ApiError {
    pub fn new(code: Code, text: Text) -> Self {
        Self { code, text, close: Close::EngineLost }
    }

    /// An error with a constant text.
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

    /// For a request that the current state does not allow.
    pub fn conflict(text: Text) -> Self {
        Self::new(Code::Common409, text)
    }

    /// For a request that needs the records, on a hub that keeps none.
    pub fn no_records() -> Self {
        Self::new(
            Code::Common503,
            Text::new("기록을 사용하지 않는 서버입니다.", "This hub keeps no records: RECORDS is off."),
        )
    }

    pub fn database_unavailable() -> Self {
        let text =
            Text::new("지금은 데이터베이스를 사용할 수 없습니다.", "The database cannot be used right now.");
        Self::new(Code::Common503, text)
    }

    pub fn redis_unavailable() -> Self {
        let text = Text::new("지금은 Redis에 연결할 수 없습니다.", "Redis cannot be reached right now.");
        Self::new(Code::Redis5001, text)
    }

    pub fn redis_refused() -> Self {
        Self::of(Code::Redis5002, "Redis가 요청을 거부했습니다.", "Redis refused the command.")
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
            "서버가 시작되거나 종료되는 중입니다. 다시 시도해 주세요.",
            "This instance is starting or shutting down; try again.",
        );
        Self { close: Close::Draining, ..Self::new(Code::Sse5001, text) }
    }

    pub fn unexpected() -> Self {
        Self::of(Code::Common500, "예상하지 못한 오류가 발생했습니다.", "An unexpected error occurred.")
    }

    /// The message in a language.
    pub fn message(&self, language: Language) -> &str {
        self.text.get(language)
    }

    fn envelope(&self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let message = self.message(language()).to_owned();
        let mut response =
            json(status, &Envelope { is_success: false, code: self.code.as_str(), message, result: () });
        if self.code.is_transient() {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("3"));
        }
        if self.code == Code::Common426 {
            // The protocol and the version that the server supports.
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
        if self.code.is_transient() {
            response.extensions_mut().insert(TransientError(self.close));
        }
        response
    }
}

/// Marks an error that an EventSource must not receive as a status: after an error status it does not
/// reconnect.
#[derive(Clone, Copy)]
pub(crate) struct TransientError(pub Close);

impl From<TicketError> for ApiError {
    fn from(error: TicketError) -> Self {
        match error {
            TicketError::TooMany => Self::too_many(
                "지금은 티켓이 너무 많습니다.",
                "There are too many unused stream tickets; try again when some have expired.",
            ),
            TicketError::Unavailable(_) => {
                tracing::error!(%error, "failed to issue or redeem a stream ticket; answering REDIS5001");
                Self::redis_unavailable()
            }
        }
    }
}

impl From<InvalidField> for ApiError {
    fn from(invalid: InvalidField) -> Self {
        Self::new(Code::Common400, invalid.text())
    }
}

/// The error for an invalid value, which names its field.
pub fn invalid(field: &str, reason: Reason) -> ApiError {
    InvalidField::new(field, reason).into()
}

/// The headers of every JSON response. Responses depend on caller and time, so they must not be cached.
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
            tracing::error!(%error, "failed to serialize a response as JSON; answering 500 without a body");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
