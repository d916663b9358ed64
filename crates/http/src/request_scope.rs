//! The outermost middleware: sets the language and the trace of a request, records metrics, tracks the response
//! (`in_flight`), sends transient errors to an EventSource as events, and answers with 500 when a handler panics.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{FromRequestParts, MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bongsu_kernel::settings::{Kind, Values};
use bongsu_kernel::text::Language;
use bongsu_kernel::trace::{self, TRACEPARENT, TraceParent};
use bongsu_kernel::{Reason, StreamId, sse};
use futures_util::FutureExt;
use http::header::{ACCEPT, ACCEPT_LANGUAGE, CONNECTION};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use http_body::Body;
use metrics::{Counter, Histogram};

use crate::answer::{ApiError, TransientError, invalid};
use crate::in_flight::InFlightRequests;
use crate::server::ConnectionControl;
use crate::{UrlQuery, stream};

bongsu_kernel::settings! { "server":
    pub DEFAULT_LANGUAGE = "ko", kind(Kind::OneOf(Language::NAMES)):
        "The language of messages and notifications for requests that name no language in Accept-Language or, for streams, in the query parameter lang.";
}

pub fn default_language(values: &Values) -> Language {
    Language::from_name(values.text(&DEFAULT_LANGUAGE)).unwrap_or_default()
}

tokio::task_local! {
    static LANGUAGE: Cell<Language>;
}

/// The language of the current request.
pub fn language() -> Language {
    LANGUAGE.try_with(Cell::get).unwrap_or_default()
}

/// Sets the language of the current request from `?lang=`: for streams, because an EventSource cannot send
/// `Accept-Language`. This extractor has to be the first argument of a handler, so that errors of the other extractors
/// are in that language as well.
#[derive(Debug)]
pub struct StreamLanguage;

impl<S: Sync> FromRequestParts<S> for StreamLanguage {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let query = UrlQuery::parse(parts.uri.query())?;
        if let Some(name) = query.get("lang").filter(|name| !name.is_empty()) {
            let language = Language::from_name(name);
            let language = language.ok_or_else(|| invalid("lang", Reason::OneOf(Language::NAMES)))?;
            // An error means that the handler runs outside of `wrap`, where no language is set or read.
            let _ = LANGUAGE.try_with(|current| current.set(language));
        }
        Ok(Self)
    }
}

/// The state of [`wrap`].
#[derive(Clone)]
pub struct Options {
    pub default_language: Language,
    pub in_flight: InFlightRequests,
}

/// The outermost middleware of all routes.
pub async fn wrap(State(options): State<Options>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let default = options.default_language;
    let slot = options.in_flight.begin();
    request.extensions_mut().insert(slot.clone());
    let peer = request.extensions().get::<ConnectionControl>().cloned();
    let accepts_stream = accepts_stream(request.headers());
    let has_http1_body = request.version() == Version::HTTP_11 && !request.body().is_end_stream();
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let language = request.headers().get(ACCEPT_LANGUAGE).and_then(|header| header.to_str().ok());
    let language = language.map_or(default, |header| Language::from_accept(header, default));
    let trace = request.headers().get(TRACEPARENT).and_then(|header| header.to_str().ok());
    let trace = trace.and_then(TraceParent::parse);
    let run = trace::scope(trace, LANGUAGE.scope(Cell::new(language), next.run(request)));
    let run = AssertUnwindSafe(run).catch_unwind();
    let mut response = run.await.unwrap_or_else(|_| {
        let path = path.as_ref().map(MatchedPath::as_str);
        tracing::error!(%method, path, "a handler panicked; answering COMMON500");
        LANGUAGE.sync_scope(Cell::new(language), || ApiError::unexpected().into_response())
    });
    if accepts_stream && let Some(TransientError(close)) = response.extensions().get() {
        response = (stream::headers(), sse::close(*close, StreamId::START)).into_response();
    }
    if has_http1_body && matches!(response.status().as_u16(), 401 | 403 | 404 | 405 | 408 | 413) {
        // hyper closes a connection whose request body was not read completely; this header tells the client, which
        // would otherwise send its next request on that connection.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let path = path.as_ref().map_or("unmatched", MatchedPath::as_str);
    let status = response.status().as_u16();
    trace::span(trace).in_scope(
        || tracing::debug!(%method, path, status, took_us = started.elapsed().as_micros() as u64, "answered a request"),
    );
    record_metrics(&method, path, status, started);
    slot.track(response, peer)
}

fn accepts_stream(headers: &HeaderMap) -> bool {
    header_items(headers, ACCEPT, ',').any(|media_type| {
        let name = media_type.split(';').next().unwrap_or_default();
        name.trim().eq_ignore_ascii_case("text/event-stream")
    })
}

/// The items of a list header, over all of its lines.
pub(crate) fn header_items(
    headers: &HeaderMap,
    name: HeaderName,
    separator: char,
) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(move |value| value.split(separator)).map(str::trim)
}

/// The counter and the histogram for each method and status of one path.
type Metrics = HashMap<(&'static str, u16), (Counter, Histogram)>;

thread_local! {
    // By path. Looking up a metric by its labels allocates, so each thread keeps those that it uses.
    static METRICS: RefCell<HashMap<String, Metrics>> = RefCell::default();
}

fn record_metrics(method: &Method, path: &str, status: u16, started: Instant) {
    let method = method_label(method);
    METRICS.with_borrow_mut(|by_path| {
        if !by_path.contains_key(path) {
            by_path.insert(path.to_owned(), Metrics::default());
        }
        let Some(by_label) = by_path.get_mut(path) else { return };
        let (requests, seconds) = by_label.entry((method, status)).or_insert_with(|| {
            let labels =
                [("method", method.to_owned()), ("path", path.to_owned()), ("status", status.to_string())];
            (
                metrics::counter!("http_requests_total", &labels),
                metrics::histogram!("http_request_duration_seconds", &labels),
            )
        });
        requests.increment(1);
        seconds.record(started.elapsed().as_secs_f64());
    });
}

/// A metric label for a method. Unknown methods share one label, so that clients cannot create labels.
fn method_label(method: &Method) -> &'static str {
    let known = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    known.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_that_accept_event_streams_get_one() {
        let accepts = |value: &'static str| {
            accepts_stream(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))]))
        };
        assert!(accepts("text/event-stream"));
        assert!(accepts("text/html, Text/Event-Stream;q=0.9"));
        assert!(!accepts("*/*"));
        assert!(!accepts("application/json"));
    }
}
