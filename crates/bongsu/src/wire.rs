//! Puts the parts together: store, hub, rooms, identity, routes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use axum::response::IntoResponse;
use axum::{Router, middleware};
use bongsu_http::identity::Identity;
use bongsu_http::origins;
use bongsu_http::{ApiError, frame, openapi, server};
use bongsu_kernel::Clock;
use bongsu_kernel::settings::Values;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::telemetry;
use bongsu_kernel::text::Text;
use bongsu_live::log::embedded::{self, EmbeddedLog};
use bongsu_live::{Hub, Log};
use bongsu_rooms::Rooms;
use bongsu_sql::{DATA_DIR, DataFolder, Database, Migrations, WriterState};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::failure::Failure;
use crate::operate::{self, Operations};
use crate::settings::{self, Checked};

/// A hub that is ready to be served.
pub(crate) struct Wired {
    pub(crate) app: Router,
    pub(crate) hub: Hub,
    pub(crate) log: Arc<EmbeddedLog>,
    pub(crate) writer: WriterState,
    pub(crate) ready: Arc<AtomicBool>,
}

#[derive(OpenApi)]
#[openapi(info(
    title = "Bongsu",
    description = "A real-time event hub: keeps what happens, decides who hears of it, delivers it."
))]
struct Document;

/// Opens the data folder and everything in it, migrated.
pub(crate) fn open_database(values: &Values) -> Result<Database, Failure> {
    let folder = DataFolder::take(Path::new(values.text(&DATA_DIR)))?;
    Ok(Database::open(folder, &migrations())?)
}

/// The tables of all parts.
pub(crate) fn migrations() -> Migrations {
    Migrations::new([embedded::MIGRATIONS])
}

pub(crate) fn wire(
    values: &Values,
    checked: Checked,
    shards: usize,
    supervisor: &Supervisor,
) -> Result<Wired, Failure> {
    let clock = Clock::system();
    let Checked { identity, origins, rooms, .. } = checked;
    let database = open_database(values)?;
    let metrics = telemetry::start_metrics(supervisor)?;
    let mut live = bongsu_live::Options::from_settings(values);
    let (_, most_streams) = server::capacity();
    // A limit of 0 is none of ours, but the system has one, and requests need their share of it.
    live.most = if live.most == 0 { most_streams } else { live.most.min(most_streams) };
    let hub = Hub::new(live, shards, clock.clone());
    let keys = embedded::Options { most_keys: settings::most_keys(values) };
    let (log, writer) = EmbeddedLog::start(database, keys, clock.clone(), Arc::new(hub.clone()), supervisor)?;
    let log = Arc::new(log);
    hub.reads_from(log.clone());
    hub.start_upkeep(supervisor);
    let identity = Identity::new(&identity, origins.clone(), clock, supervisor)
        .map_err(|error| Failure::other(error.text.en))?;
    let ready = Arc::new(AtomicBool::new(false));
    let operations = Operations {
        hub: hub.clone(),
        log: log.clone(),
        identity: identity.clone(),
        metrics,
        started: Instant::now(),
        ready: ready.clone(),
    };
    let rooms = Rooms::new(hub.clone(), log.clone() as Arc<dyn Log>, rooms);
    let (routes, document) = OpenApiRouter::with_openapi(Document::openapi())
        .merge(bongsu_rooms::routes::router(rooms, identity))
        .merge(operate::router(operations))
        .split_for_parts();
    let app = routes
        .merge(openapi::routes(&openapi::complete(&document)))
        .fallback(|| async { ApiError::not_found().into_response() })
        .method_not_allowed_fallback(|| async { method_not_allowed().into_response() })
        .layer(middleware::from_fn(frame::around))
        .layer(middleware::from_fn_with_state(origins, origins::cors));
    Ok(Wired { app, hub, log, writer, ready })
}

fn method_not_allowed() -> ApiError {
    ApiError::new(
        bongsu_kernel::Code::Common405,
        Text::new("허용되지 않은 메서드입니다.", "This method is not allowed here."),
    )
}
