//! The outbox as a part of the hub: the sequencer, the streams, and the relay to rooms.

use std::borrow::Cow;
use std::sync::Arc;

use bongsu_coordination::runner;
use bongsu_kernel::Invalid;
use bongsu_kernel::settings::{Bad, Values};
use bongsu_kernel::task::OnEnd;
use bongsu_live::Family;
use bongsu_part::{Assembly, Failure, Part};
use bongsu_sql::{Dialect, Migrations};

use crate::relay::ToRooms;
use crate::store::{MEMBERSHIPS_STEP, MIGRATIONS, PART, QUERIES};
use crate::worker::{Handler, Worker};
use crate::{FAMILY, Options, Outbox, OutboxSource, SETTINGS, TableNames, is_on, routes};

/// What was committed with a change is told to everybody, in one order.
pub static OUTBOX_PART: Part = Part {
    settings: SETTINGS,
    migrations: MIGRATIONS,
    queries: QUERIES,
    choose_tables,
    check,
    ..Part::new(PART, |assembly| Box::pin(start(assembly)))
};

fn choose_tables(all: Migrations, values: &Values, dialect: Dialect) -> Result<Migrations, Bad> {
    if !is_on(values) {
        return Ok(all.without(PART));
    }
    let names = TableNames::from_settings(values, dialect)?;
    let wanted = if names.has_query() { all.without_step(PART, MEMBERSHIPS_STEP) } else { all };
    Ok(wanted.named(Arc::new(names.on(dialect))))
}

fn check(values: &Values) -> Result<(), Bad> {
    options(values)?;
    let database = bongsu_sql::Options::from_settings(values)?;
    let dialect = database.map_or(Dialect::Sqlite, |options| options.address.dialect());
    TableNames::from_settings(values, dialect).map(drop)
}

async fn start(assembly: &mut Assembly) -> Result<(), Failure> {
    let outbox = start_outbox(assembly).await?;
    if let Some(outbox) = &outbox {
        let (checked, records) = (outbox.clone(), outbox.records().clone());
        // Where the database is away, nothing of it goes on: that is told once, and not by this part.
        let is_there = move || records.trouble().is_none();
        assembly.health(move || checked.trouble().filter(|_| is_there()).map(Cow::from));
        assembly.dead_letters(outbox.clone());
    }
    assembly.routes(routes::router(outbox, assembly.engines.identity.clone()));
    Ok(())
}

fn options(values: &Values) -> Result<Options, Bad> {
    Options::from_settings(values, bongsu_live::Options::from_settings(values).manner())
}

/// None when the outbox is off, or nothing is recorded.
async fn start_outbox(assembly: &mut Assembly) -> Result<Option<Outbox>, Failure> {
    let engines = &assembly.engines;
    let Some(records) = engines.records.clone().filter(|_| is_on(&engines.values)) else { return Ok(None) };
    let options = options(&engines.values)?;
    let (hub, clock, relay) = (engines.hub.clone(), engines.clock.clone(), options.relay.clone());
    let outbox = Outbox::start(records, hub, options, clock, &engines.supervisor).await?;
    engines.hub.serves(FAMILY, Family { source: Arc::new(OutboxSource(outbox.clone())), bus: None });
    let Some(worker) = assembly.worker() else { return Ok(Some(outbox)) };
    let unnamed = |invalid: Invalid| Failure::Other(invalid.to_string());
    let sequencing = outbox.clone();
    let sequence = move || sequencing.clone().sequence();
    runner::start(engines.locks.clone(), "outbox-sequencer", worker, sequence).map_err(unnamed)?;
    let forgetting = outbox.clone();
    let forget = move || forgetting.clone().forget();
    runner::start(engines.locks.clone(), "outbox-retention", worker, forget).map_err(unnamed)?;
    if !relay.is_empty() {
        // Every worker of a fleet does it.
        let handler: Arc<dyn Handler> = Arc::new(ToRooms { rooms: assembly.expect_shared()?, relay });
        let (relayed, stop) = (outbox.clone(), worker.stop());
        worker.spawn("outbox-relay", OnEnd::Restart, move || {
            Worker::new(relayed.clone(), handler.clone(), stop.clone()).work()
        });
    }
    Ok(Some(outbox))
}
