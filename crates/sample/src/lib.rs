//! A part that does nothing: a setting, a table, a route, a loop, a health check and a WebSocket operation.
//!
//! It shows what a new part needs outside its own crate: a line in the workspace's manifest, one in the program's, and
//! one in the list of parts.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bongsu_http::{Answer, Person, envelope_document};
use bongsu_kernel::Code;
use bongsu_kernel::settings::Setting;
use bongsu_live::Operation;
use bongsu_live::log::Boxed as OperationAnswer;
use bongsu_part::{Assembly, Boxed, Failure, Part};
use bongsu_sql::Migration;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const SAMPLE_TURN_SECS: Setting =
    Setting::text("sample", "SAMPLE_TURN_SECS", "60", "Seconds between two turns of the sample.")
        .whole(1, 3_600);

pub struct SamplePart;

impl Part for SamplePart {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn settings(&self) -> &'static [&'static Setting] {
        &[&SAMPLE_TURN_SECS]
    }

    fn migrations(&self) -> &'static [Migration] {
        &[Migration {
            part: "sample",
            number: 1,
            sqlite: include_str!("../migrations/sqlite/0001_sample.sql"),
            servers: Some([
                include_str!("../migrations/postgres/0001_sample.sql"),
                include_str!("../migrations/mysql/0001_sample.sql"),
            ]),
        }]
    }

    fn start<'a>(&'a self, assembly: &'a mut Assembly) -> Boxed<'a, Result<(), Failure>> {
        let turns = Arc::new(AtomicU64::new(0));
        let (counted, checked) = (turns.clone(), turns);
        let interval = assembly.engines.values.seconds(&SAMPLE_TURN_SECS).max(Duration::from_secs(1));
        if let Some(worker) = assembly.worker() {
            worker.every("sample", interval, move || {
                counted.fetch_add(1, Ordering::Relaxed);
                ready(())
            });
        }
        assembly.health(move || {
            (checked.load(Ordering::Relaxed) == u64::MAX).then(|| "the sample has ended".into())
        });
        assembly.operation("sample", Echo);
        assembly.routes(OpenApiRouter::new().routes(routes!(sample)));
        Box::pin(ready(Ok(())))
    }
}

struct Echo;

impl Operation for Echo {
    fn call(&self, person: &Person, _: &str) -> OperationAnswer<'static, Result<String, Code>> {
        let answer = format!("{{\"event\":\"sample\",\"person\":\"{}\"}}", person.id);
        Box::pin(ready(Ok(answer)))
    }
}

#[derive(Serialize, ToSchema)]
struct Sample {
    sample: bool,
}

envelope_document!(struct SampleEnvelope(Sample));

/// Get the sample
#[utoipa::path(
    get,
    path = "/api/v1/sample",
    tag = "sample",
    responses((status = 200, description = "The sample.", body = SampleEnvelope)),
)]
async fn sample() -> Answer<Sample> {
    Answer(Sample { sample: true })
}
