//! Which pages of other origins may use the hub: CORS, and the Origin check of changes made with a cookie and of
//! WebSockets.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bongsu_kernel::settings::{Bad, Kind, Setting, Values};
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

pub const ALLOWED_ORIGINS: Setting = Setting::text(
    "server",
    "ALLOWED_ORIGINS",
    "http://localhost:3000,http://localhost:5173,http://localhost:5174",
    "Origins whose pages may call the hub: CORS, changes authenticated by cookie, and WebSockets.",
)
.kind(Kind::List);

/// The allowed origins. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Origins(Arc<[HeaderValue]>);

impl Origins {
    pub fn from_settings(values: &Values) -> Result<Self, Bad> {
        let check = |origin: &String| -> Result<HeaderValue, Bad> {
            // As a browser writes it: lower case, no path, no port that the scheme implies.
            let canonical = reqwest::Url::parse(origin).ok().map(|url| url.origin().ascii_serialization());
            let value = HeaderValue::from_str(origin).ok().filter(|_| canonical.as_ref() == Some(origin));
            let allowed = "origins as browsers send them, such as https://app.example.com";
            value.ok_or_else(|| Bad::value(&ALLOWED_ORIGINS, origin, allowed))
        };
        Ok(Self(values.list(&ALLOWED_ORIGINS).iter().map(check).collect::<Result<_, _>>()?))
    }

    /// Whether a request that a browser makes with its cookies comes from an allowed page, or from our own.
    pub fn permit(&self, parts: &Parts) -> bool {
        let Some(origin) = parts.headers.get(ORIGIN) else { return false };
        let authority = parts
            .uri
            .authority()
            .map(http::uri::Authority::as_str)
            .or_else(|| parts.headers.get(HOST).and_then(|host| host.to_str().ok()));
        let own = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
        self.0.contains(origin) || (own.is_some() && own == authority)
    }

    /// What a browser must be told so that a page of an allowed origin may read the answer.
    fn allow(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        headers.append(VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = origin.filter(|origin| self.0.contains(origin)) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
        }
    }
}

/// CORS for all routes: answers preflight requests itself, and marks the other answers.
pub async fn cors(State(origins): State<Origins>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let preflight = request.method() == Method::OPTIONS
        && origin.is_some()
        && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if preflight {
        let allowed = [
            (ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE")),
            (
                ACCESS_CONTROL_ALLOW_HEADERS,
                HeaderValue::from_static(
                    "accept-language, authorization, cache-control, content-type, last-event-id",
                ),
            ),
            (ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600")),
        ];
        (StatusCode::NO_CONTENT, allowed).into_response()
    } else {
        next.run(request).await
    };
    origins.allow(origin.as_ref(), response.headers_mut());
    response
}
