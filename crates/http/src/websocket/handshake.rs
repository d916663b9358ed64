//! The handshake of a WebSocket, as an extractor: a handler that takes an [`Upgrade`] runs only for a valid handshake.
//!
//! The handshake of HTTP/2 (extended CONNECT) is not supported: a browser then opens an HTTP/1.1 connection for the
//! WebSocket.

use axum::extract::{FromRef, FromRequestParts};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bongsu_kernel::text::Text;
use bongsu_kernel::{Code, InvalidField, Reason};
use http::header::{
    CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use sha1::{Digest, Sha1};

use super::Session;
use crate::answer::{ApiError, invalid};
use crate::detached_body::DetachedBody;
use crate::identity::Identity;
use crate::request_scope::header_items;

/// The GUID that RFC 6455 appends to the client's key for `Sec-WebSocket-Accept`.
const ACCEPT_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A request with a valid handshake that does not come from a page of a foreign origin. The extractor
/// [`StreamPerson`](crate::StreamPerson) authenticates the person.
#[derive(Debug)]
pub struct Upgrade {
    accept: HeaderValue,
}

impl Upgrade {
    /// The response (101) after which the server runs the session on the connection.
    pub fn answer(self, session: impl Session + 'static) -> Response {
        let head = [(UPGRADE, HeaderValue::from_static("websocket")), (SEC_WEBSOCKET_ACCEPT, self.accept)];
        let mut response = DetachedBody::Session(Box::new(session)).with_head(head);
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        response
    }
}

impl<S: Sync> FromRequestParts<S> for Upgrade
where
    Identity: FromRef<S>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        check_handshake(parts)?;
        let key = key(&parts.headers)?;
        Identity::from_ref(state).check_socket_origin(parts)?;
        let digest = Sha1::new().chain_update(key).chain_update(ACCEPT_GUID).finalize();
        let accept = HeaderValue::try_from(STANDARD.encode(digest)).map_err(|_| ApiError::unexpected())?;
        Ok(Self { accept })
    }
}

fn check_handshake(parts: &Parts) -> Result<(), ApiError> {
    let headers = &parts.headers;
    if parts.version != Version::HTTP_11 || parts.method != Method::GET {
        let text = Text::new(
            "WebSocket은 HTTP/1.1 GET 요청으로만 열 수 있습니다",
            "a WebSocket can only be opened with GET over HTTP/1.1",
        );
        return Err(invalid("request", Reason::Custom(text)));
    }
    if !list_contains(headers, &CONNECTION, "upgrade") {
        return Err(invalid_header(&CONNECTION, "'Upgrade'가 있어야 합니다", "must contain 'Upgrade'"));
    }
    if !is_upgrade_request(headers) {
        return Err(invalid_header(&UPGRADE, "'websocket'이어야 합니다", "must be 'websocket'"));
    }
    // A body is refused, because the bytes after the head are parsed as frames.
    let has_body = headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
    if has_body || headers.contains_key(TRANSFER_ENCODING) {
        let name = if has_body { &CONTENT_LENGTH } else { &TRANSFER_ENCODING };
        return Err(invalid_header(
            name,
            "WebSocket 요청에는 본문이 없어야 합니다",
            "the request of a WebSocket must have no body",
        ));
    }
    if single(headers, &SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        let text = Text::new("13이어야 합니다", "must be 13");
        let invalid_field = InvalidField::new(SEC_WEBSOCKET_VERSION.as_str(), Reason::Custom(text));
        return Err(ApiError::new(Code::Common426, invalid_field.text()));
    }
    Ok(())
}

/// The client's key: 16 bytes in base64.
fn key(headers: &HeaderMap) -> Result<&HeaderValue, ApiError> {
    single(headers, &SEC_WEBSOCKET_KEY)
        .filter(|key| STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16))
        .ok_or_else(|| {
            invalid_header(&SEC_WEBSOCKET_KEY, "16바이트의 base64여야 합니다", "must be 16 bytes in base64")
        })
}

/// Whether a request asks to become a WebSocket.
pub(crate) fn is_upgrade_request(headers: &HeaderMap) -> bool {
    list_contains(headers, &UPGRADE, "websocket")
}

/// Whether a list header contains a word, in any case.
fn list_contains(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    header_items(headers, name.clone(), ',').any(|item| item.eq_ignore_ascii_case(word))
}

/// The value of a header that occurs exactly once.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

fn invalid_header(name: &HeaderName, ko: &'static str, en: &'static str) -> ApiError {
    invalid(name.as_str(), Reason::Custom(Text::new(ko, en)))
}
