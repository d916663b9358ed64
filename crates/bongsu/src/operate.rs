//! The routes for operators and load balancers: health, readiness, metrics; and stream tickets for people.
//!
//! `/health` always answers 200 and lists every problem; `/ready` answers 503 when no requests should be sent here.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use axum::extract::State;
use axum::response::IntoResponse;
use bongsu_http::answer::Answer;
use bongsu_http::identity::Ticket;
use bongsu_http::{ApiError, Identity, Person};
use bongsu_kernel::Code;
use bongsu_kernel::text::Text;
use bongsu_part::{Engines, HealthCheck};
use bongsu_redis::Redis;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The state of these routes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Operations {
    pub(crate) engines: Arc<Engines>,
    /// The health checks of the parts.
    pub(crate) checks: Arc<[HealthCheck]>,
    pub(crate) metrics: PrometheusHandle,
    pub(crate) started: Instant,
    pub(crate) ready: Arc<AtomicBool>,
}

pub(crate) fn router(operations: Operations) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(ready))
        .routes(routes!(metrics))
        .with_state(operations)
}

/// The route of stream tickets.
pub(crate) fn tickets(identity: Identity) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(ticket)).with_state(identity)
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Health {
    #[schema(example = "healthy")]
    status: &'static str,
    /// The version of the program.
    #[schema(example = "0.1.0")]
    version: &'static str,
    /// Whether Redis is connected; null without REDIS_URL.
    redis_connected: Option<bool>,
    active_connections: usize,
    active_rooms: usize,
    uptime_secs: u64,
    /// A description of each current problem. Empty if and only if the status is `healthy`.
    #[schema(value_type = Vec<String>)]
    degraded: Vec<Cow<'static, str>>,
}

/// Get the health of this instance
///
/// Answers 200 even if this instance has problems; `degraded` lists them.
#[utoipa::path(get, path = "/health", tag = "operating", responses((status = 200, description = "The health of this instance.", body = Health)))]
async fn health(State(operations): State<Operations>) -> Answer<Health> {
    let Operations { engines, checks, started, .. } = operations;
    let mut degraded = engines.problems();
    degraded.extend(checks.iter().filter_map(|check| check()));
    Answer(Health {
        status: if degraded.is_empty() { "healthy" } else { "degraded" },
        version: env!("CARGO_PKG_VERSION"),
        redis_connected: engines.redis().map(Redis::is_connected),
        active_connections: engines.hub.open_stream_count(),
        active_rooms: engines.hub.active_subject_count(bongsu_rooms::SUBJECT_KIND),
        uptime_secs: started.elapsed().as_secs(),
        degraded,
    })
}

#[derive(Serialize, ToSchema)]
struct Readiness {
    ready: bool,
}

/// Check whether this instance takes requests
///
/// Answers 503 before the start has finished, while the instance drains, until a hub that started without
/// Redis has reached it, and while Redis answers but refuses writes.
#[utoipa::path(get, path = "/ready", tag = "operating", responses((status = 200, description = "This instance takes requests.", body = Readiness)))]
async fn ready(State(operations): State<Operations>) -> Result<Answer<Readiness>, ApiError> {
    if !operations.ready.load(Ordering::SeqCst) {
        return Err(ApiError::draining());
    }
    if !operations.engines.is_admitted() {
        return Err(not_admitted());
    }
    if operations.engines.redis().is_some_and(|redis| !redis.write_refusals().is_empty()) {
        let text =
            Text::new("지금은 Redis에 쓸 수 없습니다.", "Redis refuses writes right now; see /health.");
        return Err(ApiError::new(Code::Redis5001, text));
    }
    Ok(Answer(Readiness { ready: true }))
}

/// Why an instance that has not joined its fleet yet refuses requests.
pub(crate) fn not_admitted() -> ApiError {
    let text = Text::new(
        "Redis에 아직 연결되지 않아 요청을 처리할 수 없습니다.",
        "This instance has not reached Redis since its start and serves no requests until then; try again.",
    );
    ApiError::new(Code::Redis5001, text)
}

/// Get metrics for Prometheus
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "operating",
    responses((status = 200, description = "The metrics of this instance, in the text format of Prometheus.", content_type = "text/plain", body = String)),
)]
async fn metrics(State(operations): State<Operations>) -> impl IntoResponse {
    let hub = &operations.engines.hub;
    metrics::gauge!("sse_active_connections").set(hub.open_stream_count() as f64);
    metrics::gauge!("sse_active_rooms").set(hub.active_subject_count(bongsu_rooms::SUBJECT_KIND) as f64);
    metrics::gauge!("live_subjects").set(hub.subject_count() as f64);
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, text)], operations.metrics.render())
}

/// Get a stream ticket
///
/// Get a ticket that opens one stream or WebSocket within 30 seconds, as the query parameter `ticket`, so
/// that no token appears in a URL.
#[utoipa::path(
    post,
    path = "/api/v1/stream-tickets",
    tag = "streams",
    responses((status = 200, description = "The new ticket, which can be used once.", body = Ticket)),
    security(("person" = [])),
)]
async fn ticket(person: Person, State(identity): State<Identity>) -> Result<Answer<Ticket>, ApiError> {
    Ok(Answer(identity.tickets().issue(person).await?))
}
