//! Which pages of other origins may use the hub: CORS, and what a request may do with a browser's cookie.
//!
//! A browser sends the cookie for whichever page asks. CORS keeps foreign pages from reading answers, and nothing else:
//! what a request does by being sent is decided by [`Origins::permit_cookie`].

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bongsu_kernel::settings::{Bad, Kind, Values};
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::{host, websocket};

bongsu_kernel::settings! { "server":
    pub ALLOWED_ORIGINS = "http://localhost:3000,http://localhost:5173,http://localhost:5174", kind(Kind::List):
        "Origins whose pages may call the hub: CORS, changes and streams authenticated by cookie, and WebSockets.";
}

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

    /// Whether the cookie of this request counts.
    ///
    /// - A change, and a WebSocket, needs an Origin that is allowed.
    /// - A stream is refused with an Origin that is not allowed, and without one when the browser says that another site
    ///   asks (`Sec-Fetch-Site`): browsers send no Origin with a GET to their own. Opening a stream takes a person's place.
    /// - Anything else that is read is guarded by CORS.
    pub(crate) fn permit_cookie(&self, parts: &Parts, is_stream: bool) -> bool {
        if !matches!(parts.method, Method::GET | Method::HEAD) || websocket::is_wanted(&parts.headers) {
            return self.permit(parts);
        }
        let is_cross_site =
            || parts.headers.get_all("sec-fetch-site").iter().any(|site| site == "cross-site");
        match is_stream {
            true if parts.headers.contains_key(ORIGIN) => self.permit(parts),
            true => !is_cross_site(),
            false => true,
        }
    }

    /// Whether a request names an allowed Origin, or our own.
    pub(crate) fn permit(&self, parts: &Parts) -> bool {
        let mut named = parts.headers.get_all(ORIGIN).iter();
        let (Some(origin), None) = (named.next(), named.next()) else { return false };
        let authority = host::authority(parts).ok().flatten();
        let own = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
        let is_own = own.zip(authority).is_some_and(|(own, host)| host.as_str().eq_ignore_ascii_case(own));
        self.0.contains(origin) || is_own
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

/// Tells browsers which pages may read an answer. Around everything, so that a refusal can be read, too.
pub async fn cors(State(origins): State<Origins>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let mut response = next.run(request).await;
    origins.allow(origin.as_ref(), response.headers_mut());
    response
}

/// Answers the question that a browser asks before a request of another origin.
pub async fn preflight(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let is_preflight = request.method() == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    if !is_preflight {
        return next.run(request).await;
    }
    let allowed = [
        (ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE")),
        (
            ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static(
                "accept-language, authorization, cache-control, content-type, last-event-id, traceparent",
            ),
        ),
        (ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600")),
    ];
    (StatusCode::NO_CONTENT, allowed).into_response()
}
