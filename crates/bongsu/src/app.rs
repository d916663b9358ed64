//! The hub as an HTTP application: what the parts serve, what operators use, and what surrounds every request.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use bongsu_http::host::HostPolicy;
use bongsu_http::{ApiError, InFlight, frame, host, in_flight, openapi, origins};
use bongsu_kernel::Code;
use bongsu_kernel::telemetry;
use bongsu_kernel::text::Text;
use bongsu_live::Hub;
use bongsu_part::{Assembly, Boxed, Engines, Failure, Start};
use bongsu_sql::{Store, WriterState};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::admin::{self, Admin};
use crate::operate::{self, Operations};
use crate::{PARTS, dead_letters};

/// A hub that is ready to be served.
pub(crate) struct App {
    pub(crate) router: Router,
    pub(crate) hub: Hub,
    /// What is written when the hub stops, while it still serves.
    pub(crate) last_writes: Vec<Boxed<'static, ()>>,
    /// What has to be finished at the end; nothing when nothing is kept here.
    pub(crate) file: Option<(Store, WriterState)>,
    pub(crate) ready: Arc<AtomicBool>,
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Bongsu",
    description = "A real-time event hub: keeps what happens, decides who hears of it, delivers it."
))]
struct Document;

/// Starts the engines and every part that runs here.
pub(crate) async fn start(start: Start, weak: Vec<&'static str>) -> Result<App, Failure> {
    let metrics = telemetry::start_metrics(&start.supervisor)?;
    let engines = Engines::start(PARTS, start).await?;
    let mut assembly = Assembly::new(engines);
    for part in PARTS.running(&assembly.engines.roles.clone()) {
        (part.start)(&mut assembly).await?;
    }
    let mut assembled = assembly.finish();
    let file = assembled.engines.take_file();
    let (engines, last_writes) = (Arc::new(assembled.engines), assembled.last_writes);
    let (identity, supervisor, values) = (&engines.identity, &engines.supervisor, &engines.values);
    let ready = Arc::new(AtomicBool::new(false));
    let operations = Operations {
        engines: engines.clone(),
        checks: assembled.checks.into(),
        metrics,
        started: Instant::now(),
        ready: ready.clone(),
    };
    let mut routes = OpenApiRouter::with_openapi(Document::openapi()).merge(assembled.routes);
    if engines.roles.api {
        let admin = Admin {
            orders: engines.orders.clone(),
            identity: identity.clone(),
            clock: engines.clock.clone(),
        };
        routes = routes
            .merge(dead_letters::router(assembled.dead_letters, identity.clone(), supervisor))
            .merge(operate::tickets(identity.clone()))
            .merge(admin::router(admin));
    }
    if !engines.is_admitted() {
        routes = routes.layer(middleware::from_fn_with_state(engines.clone(), check_admitted));
    }
    let (routes, document) = routes.merge(operate::router(operations)).split_for_parts();
    let frame = frame::Options {
        default_language: frame::default_language(values),
        in_flight: InFlight::start(in_flight::Options::from_settings(values), supervisor),
    };
    let origins = engines.origins.clone();
    let router = routes
        .merge(openapi::routes(&openapi::complete(&document)))
        .fallback(|| async { ApiError::not_found().into_response() })
        .method_not_allowed_fallback(|| async { method_not_allowed().into_response() })
        .layer(middleware::from_fn(origins::preflight))
        .layer(middleware::from_fn_with_state(HostPolicy::new(&weak), host::check_host))
        .layer(middleware::from_fn_with_state(frame, frame::around))
        .layer(middleware::from_fn_with_state(origins, origins::cors));
    Ok(App { router, hub: engines.hub.clone(), last_writes, file, ready })
}

/// Answers nothing for a hub that was not let into its fleet yet.
async fn check_admitted(State(engines): State<Arc<Engines>>, request: Request, next: Next) -> Response {
    if engines.is_admitted() {
        return next.run(request).await;
    }
    let text = Text::new(
        "Redis에 아직 연결되지 않아 요청을 처리할 수 없습니다.",
        "Redis was not reached yet, so this hub does not know whether it may serve; try again.",
    );
    ApiError::new(Code::Redis5001, text).into_response()
}

fn method_not_allowed() -> ApiError {
    let text = Text::new("허용되지 않은 메서드입니다.", "This method is not allowed here.");
    ApiError::new(Code::Common405, text)
}
