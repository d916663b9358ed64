//! The outbox as a part of the hub: starts the tail, the sequencer, retention, the routes and the relay to rooms.

use std::borrow::Cow;
use std::sync::Arc;

use bongsu_coordination::runner;
use bongsu_kernel::settings::{SettingError, Values};
use bongsu_kernel::task::OnEnd;
use bongsu_live::SubjectKind;
use bongsu_part::{Assembly, Failure, Part};
use bongsu_sql::{Dialect, Migrations};

use crate::relay::RoomRelay;
use crate::store::{MEMBERSHIPS_STEP, MIGRATIONS, PART, QUERIES};
use crate::worker::{Handler, Worker};
use crate::{Options, Outbox, OutboxSource, SETTINGS, SUBJECT_KIND, TableNames, is_on, routes};

/// Sends rows that programs commit with their changes to the streams of their events, in one order.
pub static OUTBOX_PART: Part = Part {
    settings: SETTINGS,
    migrations: MIGRATIONS,
    queries: QUERIES,
    choose_tables,
    check,
    ..Part::new(PART, |assembly| Box::pin(start(assembly)))
};

fn choose_tables(all: Migrations, values: &Values, dialect: Dialect) -> Result<Migrations, SettingError> {
    if !is_on(values) {
        return Ok(all.without(PART));
    }
    let names = TableNames::from_settings(values, dialect)?;
    let needed = if names.has_query() { all.without_step(PART, MEMBERSHIPS_STEP) } else { all };
    Ok(needed.with_names(Arc::new(names.on(dialect))))
}

fn check(values: &Values) -> Result<(), SettingError> {
    options(values)?;
    let database = bongsu_sql::Options::from_settings(values)?;
    let dialect = database.map_or(Dialect::Sqlite, |options| options.address.dialect());
    TableNames::from_settings(values, dialect).map(drop)
}

async fn start(assembly: &mut Assembly) -> Result<(), Failure> {
    let outbox = start_outbox(assembly).await?;
    if let Some(outbox) = &outbox {
        let (checked, records) = (outbox.clone(), outbox.records().clone());
        // While the database is unreachable, the sequencer and the tail fail. The engines report the outage
        // once for all parts, so this check does not report it.
        let is_reachable = move || records.outage().is_none();
        assembly.add_health_check(move || checked.failing_loop().filter(|_| is_reachable()).map(Cow::from));
        assembly.add_dead_letters(outbox.clone());
    }
    assembly.add_routes(routes::router(outbox, assembly.engines.identity.clone()));
    Ok(())
}

fn options(values: &Values) -> Result<Options, SettingError> {
    Options::from_settings(values, bongsu_live::Options::from_settings(values).stream_config())
}

/// Starts the outbox. None when `OUTBOX` or `RECORDS` is off.
async fn start_outbox(assembly: &mut Assembly) -> Result<Option<Outbox>, Failure> {
    let engines = &assembly.engines;
    let Some(records) = engines.records.clone().filter(|_| is_on(&engines.values)) else { return Ok(None) };
    let options = options(&engines.values)?;
    let (hub, clock, relay) = (engines.hub.clone(), engines.clock.clone(), options.relay.clone());
    let outbox = Outbox::start(records, hub, options, clock, &engines.supervisor).await?;
    let kind = SubjectKind { source: Arc::new(OutboxSource(outbox.clone())), bus: None };
    engines.hub.register_subject_kind(SUBJECT_KIND, kind);
    let Some(worker) = assembly.worker_supervisor() else { return Ok(Some(outbox)) };
    let sequenced = outbox.clone();
    let sequencer = move || sequenced.clone().run_sequencer();
    runner::start(engines.locks.clone(), "outbox-sequencer", worker, sequencer).map_err(Failure::other)?;
    let cleaned = outbox.clone();
    let retention = move || cleaned.clone().run_retention();
    runner::start(engines.locks.clone(), "outbox-retention", worker, retention).map_err(Failure::other)?;
    if !relay.is_empty() {
        // Not a runner: every worker instance of the fleet relays rows at the same time, and a claim gives each row to
        // one of them.
        let handler: Arc<dyn Handler> = Arc::new(RoomRelay { rooms: assembly.expect_shared()?, relay });
        let (relayed, stop) = (outbox.clone(), worker.stop());
        worker.spawn("outbox-relay", OnEnd::Restart, move || {
            Worker::new(relayed.clone(), handler.clone(), stop.clone()).run()
        });
    }
    Ok(Some(outbox))
}
