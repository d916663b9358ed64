//! Which pages of other origins may use the hub: CORS, and which requests may be authenticated by a browser's cookie.
//!
//! A browser sends the cookie whichever page makes the request. CORS only prevents foreign pages from reading
//! responses; [`Origins::permits_cookie`] prevents the effects of their requests.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bongsu_kernel::lock;
use bongsu_kernel::settings::{Kind, SettingError, Values};
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
        "Origins whose pages may call the hub: for CORS, for changes and streams authenticated by cookie, and for WebSockets.";
}

/// Refused origins that are logged, each once; further ones are not logged.
const MAX_LOGGED_ORIGINS: usize = 20;

/// The allowed origins. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Origins {
    allowed: Arc<[HeaderValue]>,
    /// Refused origins that were logged.
    logged: Arc<Mutex<HashSet<HeaderValue>>>,
}

impl Origins {
    pub fn from_settings(values: &Values) -> Result<Self, SettingError> {
        let check = |origin: &String| -> Result<HeaderValue, SettingError> {
            // An origin as a browser writes it: in lower case, without a path, without the default port of its scheme.
            let canonical = reqwest::Url::parse(origin).ok().map(|url| url.origin().ascii_serialization());
            let value = HeaderValue::from_str(origin).ok().filter(|_| canonical.as_ref() == Some(origin));
            let allowed = "origins as browsers send them, such as https://app.example.com, without a path or a slash at the end";
            value.ok_or_else(|| SettingError::invalid_value(&ALLOWED_ORIGINS, origin, allowed))
        };
        let allowed = values.list(&ALLOWED_ORIGINS).iter().map(check).collect::<Result<_, _>>()?;
        Ok(Self { allowed, logged: Arc::default() })
    }

    /// Whether the cookie of this request may authenticate it.
    ///
    /// - A request other than GET or HEAD, and a WebSocket, need an allowed Origin.
    /// - A stream is refused with an Origin that is not allowed, and without an Origin if `Sec-Fetch-Site` says that
    ///   another site makes the request: browsers send no Origin with a GET to the page's own origin. Opening a stream
    ///   has an effect, because it uses one of the person's connections.
    /// - All other reads are protected by CORS.
    pub(crate) fn permits_cookie(&self, parts: &Parts, is_stream: bool) -> bool {
        if !matches!(parts.method, Method::GET | Method::HEAD)
            || websocket::is_upgrade_request(&parts.headers)
        {
            return self.permits_origin(parts);
        }
        let is_cross_site =
            || parts.headers.get_all("sec-fetch-site").iter().any(|site| site == "cross-site");
        match is_stream {
            true if parts.headers.contains_key(ORIGIN) => self.permits_origin(parts),
            true => !is_cross_site(),
            false => true,
        }
    }

    /// Whether a request names an allowed Origin or the hub's own. A refused Origin is logged.
    pub(crate) fn permits_origin(&self, parts: &Parts) -> bool {
        let mut named = parts.headers.get_all(ORIGIN).iter();
        let (Some(origin), None) = (named.next(), named.next()) else { return false };
        let authority = host::authority(parts).ok().flatten();
        let own = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
        let is_own = own.zip(authority).is_some_and(|(own, host)| host.as_str().eq_ignore_ascii_case(own));
        let is_permitted = self.allowed.contains(origin) || is_own;
        if !is_permitted {
            self.log_refused(origin);
        }
        is_permitted
    }

    /// Logs a refused Origin the first time, so that an operator finds an origin that is missing in the setting.
    fn log_refused(&self, origin: &HeaderValue) {
        let mut logged = lock(&self.logged);
        if logged.len() < MAX_LOGGED_ORIGINS && logged.insert(origin.clone()) {
            let origin = origin.to_str().unwrap_or("(not ASCII)");
            tracing::warn!(origin, "refused a request whose Origin is not in ALLOWED_ORIGINS");
        }
    }

    /// Adds the headers that let a page of an allowed origin read the response.
    fn add_cors_headers(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        headers.append(VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = origin.filter(|origin| self.allowed.contains(origin)) {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
        }
    }
}

/// Middleware that tells browsers which pages may read a response. It has to surround all other layers, so that pages
/// can read errors as well.
pub async fn cors(State(origins): State<Origins>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(ORIGIN).cloned();
    let (parts, body) = request.into_parts();
    if origin.is_some() {
        // For the log: a browser hides the response from a page that is not allowed, and reports little.
        origins.permits_origin(&parts);
    }
    let mut response = next.run(Request::from_parts(parts, body)).await;
    origins.add_cors_headers(origin.as_ref(), response.headers_mut());
    response
}

/// Middleware that answers CORS preflight requests.
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
