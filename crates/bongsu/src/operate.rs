//! What operators and load balancers ask: health, readiness, metrics; and tickets for people.
//!
//! `/health` always answers, with a line for everything that is wrong; `/ready` says whether to send requests here.

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
use bongsu_part::{Check, Engines};
use bongsu_redis::Redis;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// What these routes look at. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Operations {
    pub(crate) engines: Arc<Engines>,
    /// Those of the parts.
    pub(crate) checks: Arc<[Check]>,
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

/// The route of tickets for people.
pub(crate) fn tickets(identity: Identity) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(ticket)).with_state(identity)
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Health {
    #[schema(example = "healthy")]
    status: &'static str,
    /// Null: embedded, there is no Redis.
    redis_connected: Option<bool>,
    active_connections: usize,
    active_rooms: usize,
    uptime_secs: u64,
    /// What does not work as it should, in words.
    #[schema(value_type = Vec<String>)]
    degraded: Vec<Cow<'static, str>>,
}

/// How the hub does
#[utoipa::path(get, path = "/health", tag = "operating", responses((status = 200, description = "Also when something does not work as it should: see degraded.", body = Health)))]
async fn health(State(operations): State<Operations>) -> Answer<Health> {
    let Operations { engines, checks, started, .. } = operations;
    let mut degraded = engines.trouble();
    degraded.extend(checks.iter().filter_map(|check| check()));
    Answer(Health {
        status: if degraded.is_empty() { "healthy" } else { "degraded" },
        redis_connected: engines.redis().map(Redis::is_connected),
        active_connections: engines.hub.open_streams(),
        active_rooms: engines.hub.active_subjects(bongsu_rooms::FAMILY),
        uptime_secs: started.elapsed().as_secs(),
        degraded,
    })
}

#[derive(Serialize, ToSchema)]
struct Readiness {
    ready: bool,
}

/// Whether to send requests here
#[utoipa::path(get, path = "/ready", tag = "operating", responses((status = 200, description = "Yes; 503 before start-up ends, while draining, and while Redis answers but takes no writes.", body = Readiness)))]
async fn ready(State(operations): State<Operations>) -> Result<Answer<Readiness>, ApiError> {
    if !operations.ready.load(Ordering::SeqCst) {
        return Err(ApiError::draining());
    }
    if operations.engines.redis().is_some_and(|redis| !redis.refusals().is_empty()) {
        let text =
            Text::new("지금은 Redis에 쓸 수 없습니다.", "Redis takes no writes right now: see /health.");
        return Err(ApiError::new(Code::Redis5001, text));
    }
    Ok(Answer(Readiness { ready: true }))
}

/// Metrics for Prometheus
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "operating",
    responses((status = 200, description = "In Prometheus' text format.", content_type = "text/plain", body = String)),
)]
async fn metrics(State(operations): State<Operations>) -> impl IntoResponse {
    let hub = &operations.engines.hub;
    metrics::gauge!("sse_active_connections").set(hub.open_streams() as f64);
    metrics::gauge!("sse_active_rooms").set(hub.active_subjects(bongsu_rooms::FAMILY) as f64);
    metrics::gauge!("live_subjects").set(hub.known_subjects() as f64);
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, text)], operations.metrics.render())
}

/// Get a stream ticket
///
/// Good once, for 30 seconds, as `?ticket=` on a stream: so that the JWT need not stand in a URL.
#[utoipa::path(
    post,
    path = "/api/v1/stream-tickets",
    tag = "streams",
    responses((status = 200, description = "A ticket.", body = Ticket)),
    security(("person" = [])),
)]
async fn ticket(person: Person, State(identity): State<Identity>) -> Result<Answer<Ticket>, ApiError> {
    Ok(Answer(identity.tickets().issue(person).await?))
}
