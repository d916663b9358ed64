//! The handshake of a WebSocket, as an extractor: a handler that takes an [`Upgrade`] is reached only by a request
//! that may become one.
//!
//! HTTP/2 has a handshake of its own (extended CONNECT), which is not offered: a browser that is not offered it opens
//! an HTTP/1.1 connection for the WebSocket.

use axum::extract::{FromRef, FromRequestParts};
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bongsu_kernel::text::Text;
use bongsu_kernel::{Code, Invalid, Reason};
use http::header::{
    CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};
use sha1::{Digest, Sha1};

use super::Session;
use crate::answer::{ApiError, invalid};
use crate::carried::Carried;
use crate::frame::header_items;
use crate::identity::Identity;

/// What a server shows that it knows, by the standard.
const SIGNATURE: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// A request that may become a WebSocket: its handshake is right, and it comes from no page of a foreign origin. Who
/// sent it is for [`StreamPerson`](crate::StreamPerson) to say.
#[derive(Debug)]
pub struct Upgrade {
    accept: HeaderValue,
}

impl Upgrade {
    /// The answer after which the connection is the session's.
    pub fn answer(self, session: impl Session + 'static) -> Response {
        let head = [(UPGRADE, HeaderValue::from_static("websocket")), (SEC_WEBSOCKET_ACCEPT, self.accept)];
        let mut response = Carried::Session(Box::new(session)).with_head(head);
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
        check(parts)?;
        let key = key(&parts.headers)?;
        Identity::from_ref(state).permit_socket(parts)?;
        let digest = Sha1::new().chain_update(key).chain_update(SIGNATURE).finalize();
        let accept = HeaderValue::try_from(STANDARD.encode(digest)).map_err(|_| ApiError::unexpected())?;
        Ok(Self { accept })
    }
}

fn check(parts: &Parts) -> Result<(), ApiError> {
    let headers = &parts.headers;
    if parts.version != Version::HTTP_11 || parts.method != Method::GET {
        let text = Text::new(
            "WebSocket은 HTTP/1.1 GET 요청으로만 열 수 있습니다",
            "a WebSocket needs GET and HTTP/1.1",
        );
        return Err(invalid("request", Reason::Given(text)));
    }
    if !says(headers, &CONNECTION, "upgrade") {
        return Err(bad(&CONNECTION, "'Upgrade'가 있어야 합니다", "must say 'Upgrade'"));
    }
    if !is_wanted(headers) {
        return Err(bad(&UPGRADE, "'websocket'이어야 합니다", "must be 'websocket'"));
    }
    // What follows the head is read as frames.
    let has_body = headers.get(CONTENT_LENGTH).is_some_and(|length| length != "0");
    if has_body || headers.contains_key(TRANSFER_ENCODING) {
        let name = if has_body { &CONTENT_LENGTH } else { &TRANSFER_ENCODING };
        return Err(bad(
            name,
            "WebSocket 요청에는 본문이 없어야 합니다",
            "a WebSocket's request has no body",
        ));
    }
    if single(headers, &SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        let text = Text::new("13이어야 합니다", "must be 13");
        let named = Invalid::new(SEC_WEBSOCKET_VERSION.as_str(), Reason::Given(text));
        return Err(ApiError::new(Code::Common426, named.text()));
    }
    Ok(())
}

/// Sixteen bytes in base64, whatever they are.
fn key(headers: &HeaderMap) -> Result<&HeaderValue, ApiError> {
    single(headers, &SEC_WEBSOCKET_KEY)
        .filter(|key| STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16))
        .ok_or_else(|| bad(&SEC_WEBSOCKET_KEY, "16바이트의 base64여야 합니다", "must be 16 bytes in base64"))
}

/// Whether a request asks to become a WebSocket.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    says(headers, &UPGRADE, "websocket")
}

/// Whether a header that is a list has the word in it.
fn says(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    header_items(headers, name.clone(), ',').any(|item| item.eq_ignore_ascii_case(word))
}

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

fn bad(name: &HeaderName, ko: &'static str, en: &'static str) -> ApiError {
    invalid(name.as_str(), Reason::Given(Text::new(ko, en)))
}
