//! The page at `/docs`: Swagger UI, compiled into the binary, so that it also works without internet access.
//!
//! This crate has the page, its script and its style; the viewer's two files come from `utoipa-swagger-ui`.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use utoipa_swagger_ui::{Config, SwaggerFile, serve};

use crate::ApiError;

const PAGE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");

/// Swagger UI sets styles on elements; scripts come only from this hub.
const SECURITY_POLICY: &str =
    "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'self'";
/// Browsers cache the viewer for a day.
const ASSET_CACHING: &str = "public, max-age=86400";

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let policy = (CONTENT_SECURITY_POLICY, HeaderValue::from_static(SECURITY_POLICY));
    let text = |content_type, text: &'static str| {
        let head = [(CONTENT_TYPE, HeaderValue::from_static(content_type))];
        get(move || async move { (head, text) })
    };
    Router::new()
        .route("/", get(|| async { Redirect::temporary("/docs") }))
        .route("/docs", get(move || async move { ([policy], Html(PAGE)) }))
        .route("/docs/page.js", text("text/javascript; charset=utf-8", SCRIPT))
        .route("/docs/page.css", text("text/css; charset=utf-8", STYLE))
        .route("/docs/swagger-ui.css", get(|| async { asset("swagger-ui.css") }))
        .route("/docs/swagger-ui-bundle.js", get(|| async { asset("swagger-ui-bundle.js") }))
}

/// A file of the viewer, compressed as it is in the binary: every browser understands gzip.
fn asset(name: &str) -> Response {
    let Ok(Some(SwaggerFile { bytes, content_type, gzpipped, .. })) =
        serve(name, Arc::new(Config::default()))
    else {
        return ApiError::not_found().into_response();
    };
    let mut response = Bytes::from(bytes.into_owned()).into_response();
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    };
    set(CONTENT_TYPE, &content_type);
    set(CACHE_CONTROL, ASSET_CACHING);
    if gzpipped {
        set(CONTENT_ENCODING, "gzip");
    }
    response
}
