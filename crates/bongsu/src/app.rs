//! Builds the HTTP application of the hub: the routes of the parts and of operators, and the middleware of every
//! request.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Router, middleware};
use bongsu_http::host::HostPolicy;
use bongsu_http::{ApiError, InFlightRequests, host, in_flight, openapi, origins, request_scope};
use bongsu_kernel::Code;
use bongsu_kernel::telemetry;
use bongsu_kernel::text::Text;
use bongsu_live::Hub;
use bongsu_part::{Assembly, BoxFuture, EngineInputs, Engines, Failure};
use bongsu_sql::{Store, WriterThread};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::admin::{self, Admin};
use crate::operate::{self, Operations};
use crate::{PARTS, dead_letters, metric_descriptions};

/// A hub that is ready to be served.
pub(crate) struct App {
    pub(crate) router: Router,
    pub(crate) hub: Hub,
    /// Futures that run once during a shutdown: after the requests in progress, and before the hub stops accepting.
    pub(crate) final_writes: Vec<BoxFuture<'static, ()>>,
    /// The embedded store and its writer thread, closed last. None if the data folder is not used.
    pub(crate) file: Option<(Store, WriterThread)>,
    /// Set while `/ready` answers 200.
    pub(crate) ready: Arc<AtomicBool>,
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Bongsu",
    description = "A real-time event hub: stores events, decides who receives them, and delivers them live (SSE, WebSocket) or \
                   later (inbox).\n\n\
                   To try operations here, press *Authorize*. `bongsu token --user 7` prints a person's token; \
                   with the development settings the service key is `local_dev_internal_key` and the operator key \
                   `local_dev_admin_key`. A stream stays open: follow it with `curl -N` or an EventSource."
))]
struct Document;

/// Starts the engines and every part that runs in this process. `weak_secrets` names the settings with development
/// secrets.
pub(crate) async fn start(inputs: EngineInputs, weak_secrets: Vec<&'static str>) -> Result<App, Failure> {
    let metrics = telemetry::start_metrics(&inputs.supervisor)?;
    metric_descriptions::register();
    let engines = Engines::start(PARTS, inputs).await?;
    let mut assembly = Assembly::new(engines);
    for part in PARTS.running(&assembly.engines.roles.clone()) {
        (part.start)(&mut assembly).await?;
    }
    let Assembly { mut engines, routes, checks, dead_letters, final_writes, .. } = assembly;
    let (file, engines) = (engines.take_file(), Arc::new(engines));
    let (identity, supervisor, values) = (&engines.identity, &engines.supervisor, &engines.values);
    let ready = Arc::new(AtomicBool::new(false));
    let operations = Operations {
        engines: engines.clone(),
        checks: checks.into(),
        metrics,
        started: Instant::now(),
        ready: ready.clone(),
    };
    let mut routes = OpenApiRouter::with_openapi(Document::openapi()).merge(routes);
    if engines.roles.api {
        let admin = Admin { access_commands: engines.access_commands.clone(), clock: engines.clock.clone() };
        routes = routes
            .merge(dead_letters::router(dead_letters, identity.clone(), supervisor))
            .merge(operate::tickets(identity.clone()))
            .merge(admin::router(admin, identity.clone()));
    }
    if !engines.is_admitted() {
        routes = routes.layer(middleware::from_fn_with_state(engines.clone(), check_admitted));
    }
    let (routes, document) = routes.merge(operate::router(operations)).split_for_parts();
    let scope_options = request_scope::Options {
        default_language: request_scope::default_language(values),
        in_flight: InFlightRequests::start(in_flight::Options::from_settings(values), supervisor),
    };
    let origins = engines.origins.clone();
    let router = routes
        .merge(openapi::routes(&openapi::complete(&document)))
        .fallback(|| async { ApiError::not_found().into_response() })
        .method_not_allowed_fallback(|| async { method_not_allowed().into_response() })
        .layer(middleware::from_fn(origins::preflight))
        .layer(middleware::from_fn_with_state(HostPolicy::new(&weak_secrets), host::check_host))
        .layer(middleware::from_fn_with_state(scope_options, request_scope::wrap))
        .layer(middleware::from_fn_with_state(origins, origins::cors));
    Ok(App { router, hub: engines.hub.clone(), final_writes, file, ready })
}

/// Refuses requests with 503 until this instance has joined its fleet.
async fn check_admitted(State(engines): State<Arc<Engines>>, request: Request, next: Next) -> Response {
    if engines.is_admitted() {
        return next.run(request).await;
    }
    operate::not_admitted().into_response()
}

fn method_not_allowed() -> ApiError {
    let text = Text::new("허용되지 않은 메서드입니다.", "The path does not support this method.");
    ApiError::new(Code::Common405, text)
}
