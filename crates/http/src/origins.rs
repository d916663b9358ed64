//! Which pages of other origins may use the hub: CORS, and the Origin check of changes made with a cookie.

use std::sync::Arc;

use bongsu_kernel::settings::{Bad, Kind, Setting, Values};
use http::header::{
    ACCEPT_LANGUAGE, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderName, ORIGIN, RETRY_AFTER,
};
use http::request::Parts;
use http::{HeaderValue, Method};
use tower_http::cors::{AllowOrigin, CorsLayer};

pub const ALLOWED_ORIGINS: Setting = Setting::text(
    "server",
    "ALLOWED_ORIGINS",
    "http://localhost:3000,http://localhost:5173,http://localhost:5174",
    "Origins whose pages may call the hub: CORS, and changes or WebSockets authenticated by cookie.",
)
.kind(Kind::List);

/// The allowed origins. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Origins(Arc<[HeaderValue]>);

impl Origins {
    pub fn from_settings(values: &Values) -> Result<Self, Bad> {
        let check = |origin: &String| -> Result<HeaderValue, Bad> {
            let bare = origin.split_once("://").is_some_and(|(scheme, host)| {
                matches!(scheme, "http" | "https")
                    && !host.is_empty()
                    && !host.contains(['/', '?', '#', '*', '@'])
            });
            let value = HeaderValue::from_str(origin).ok().filter(|_| bare);
            value.ok_or_else(|| {
                Bad::value(&ALLOWED_ORIGINS, origin, "origins such as https://app.example.com")
            })
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

    pub fn cors(&self) -> CorsLayer {
        CorsLayer::new()
            .allow_origin(AllowOrigin::list(self.0.iter().cloned()))
            .allow_credentials(true)
            .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
            .allow_headers([
                ACCEPT_LANGUAGE,
                AUTHORIZATION,
                CACHE_CONTROL,
                CONTENT_TYPE,
                HeaderName::from_static("last-event-id"),
            ])
            .expose_headers([RETRY_AFTER])
            .max_age(std::time::Duration::from_secs(600))
    }
}
