//! Rooms as a part of the hub.

use std::sync::Arc;

use bongsu_kernel::settings::{SettingError, Values};
use bongsu_kernel::telemetry::BoundedCounters;
use bongsu_part::{Assembly, Failure, Part, keeps_records};
use bongsu_sql::Dialect;

use crate::membership::Memberships;
use crate::store::sql::{MIGRATIONS, QUERIES, SqlStore};
use crate::{Inner, MAX_EVENT_TYPE_LABELS, Mode, Options, Rooms, SETTINGS, SUBJECT_KIND, routes};

/// Delivers live events of rooms to the people who watch them.
pub static ROOMS_PART: Part = Part {
    settings: SETTINGS,
    migrations: MIGRATIONS,
    queries: QUERIES,
    check,
    ..Part::new("rooms", |assembly| Box::pin(start(assembly)))
};

fn check(values: &Values) -> Result<(), SettingError> {
    if Options::from_settings(values)?.mode == Mode::Registered && !keeps_records(values) {
        return Err(SettingError("ROOMS_MODE=registered needs records: set RECORDS=on".to_owned()));
    }
    Ok(())
}

async fn start(assembly: &mut Assembly) -> Result<(), Failure> {
    let presence = assembly.expect_shared()?;
    let engines = &assembly.engines;
    let options = Options::from_settings(&engines.values)?;
    let store = engines.records.clone().map(SqlStore);
    engines.hub.register_subject_kind(SUBJECT_KIND, engines.log_subject_kind());
    let (hub, log, buckets) = (engines.hub.clone(), engines.log.clone(), engines.buckets.clone());
    let memberships = store.clone().map(|store| {
        let (log, clock) = (log.clone(), engines.clock.clone());
        let is_local = engines.records.as_ref().is_some_and(|records| records.dialect() == Dialect::Sqlite);
        Memberships::start(log, store, options.mode, is_local, clock, &engines.supervisor)
    });
    let published = BoundedCounters::new("events_published_total", "event_type", MAX_EVENT_TYPE_LABELS);
    let rooms = Rooms(Arc::new(Inner { hub, log, memberships, presence, buckets, options, published }));
    let identity = engines.identity.clone();
    if let Some(store) = store {
        assembly.share(store);
    }
    assembly.share(rooms.clone());
    assembly.add_routes(routes::router(rooms, identity));
    Ok(())
}
