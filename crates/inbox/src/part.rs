//! The inbox as a part of the hub: what people are told, and what rooms wrote down for them.
//!
//! Entries are derived, and marks of a fleet written behind, by one process with the role `worker`.

use std::sync::Arc;

use bongsu_coordination::runner;
use bongsu_kernel::Invalid;
use bongsu_kernel::settings::Bad;
use bongsu_live::Family;
use bongsu_live::log::Bus;
use bongsu_part::{Assembly, Engines, Failure, Fleet, Part};

use crate::cache::Cache;
use crate::marks::redis::RedisBuffer;
use crate::personal::redis::RedisPersonal;
use crate::store::{MIGRATIONS, QUERIES};
use crate::{
    Beside, FAMILY, FromRooms, Inbox, InboxSource, Live, Options, Personal, SETTINGS, Templates, routes,
};

/// What people are told of.
pub static INBOX_PART: Part = Part {
    settings: SETTINGS,
    migrations: MIGRATIONS,
    queries: QUERIES,
    check: |values| Options::from_settings(values).map(drop).map_err(Bad),
    ..Part::new("inbox", |assembly| Box::pin(start(assembly)))
};

async fn start(assembly: &mut Assembly) -> Result<(), Failure> {
    let inbox = start_inbox(assembly)?;
    if let Some(inbox) = &inbox {
        let last = inbox.clone();
        assembly.at_stop(async move { last.flush().await });
        assembly.dead_letters(inbox.clone());
        assembly.share(inbox.clone());
    }
    assembly.routes(routes::router(inbox, assembly.engines.identity.clone()));
    Ok(())
}

/// How those who are connected hear of what is saved here.
struct Ways {
    live: Arc<dyn Live>,
    bus: Option<Arc<dyn Bus>>,
    beside: Option<Beside>,
}

impl Ways {
    fn of(engines: &Engines, templates: &Templates) -> Self {
        let (hub, clock, templates) = (engines.hub.clone(), engines.clock.clone(), templates.clone());
        let alone = || {
            let live = Personal::new(hub.clone(), clock.clone(), templates.clone());
            Self { live: Arc::new(live), bus: None, beside: None }
        };
        engines.choose(alone, |Fleet { redis, .. }| {
            let (buffer, supervisor) = (Arc::new(RedisBuffer::new(redis.clone())), &engines.supervisor);
            buffer.start_upkeep(supervisor);
            let (redis, hub, clock) = (redis.clone(), hub.clone(), clock.clone());
            let personal = RedisPersonal::start(
                redis.clone(),
                buffer.clone(),
                hub,
                clock,
                templates.clone(),
                supervisor,
            );
            let personal = Arc::new(personal);
            let cache = Cache::start(redis, supervisor);
            Self { live: personal.clone(), bus: Some(personal), beside: Some(Beside { buffer, cache }) }
        })
    }
}

/// None when nothing is recorded.
fn start_inbox(assembly: &Assembly) -> Result<Option<Inbox>, Failure> {
    let engines = &assembly.engines;
    let (Some(records), Some(follow_ups)) = (engines.records.clone(), engines.follow_ups.clone()) else {
        return Ok(None);
    };
    let options = Options::from_settings(&engines.values).map_err(Bad)?;
    let Ways { live, bus, beside } = Ways::of(engines, &options.templates);
    let buffered = beside.is_some();
    let rooms = FromRooms { follow_ups, members: assembly.expect_shared()? };
    let (clock, supervisor) = (engines.clock.clone(), &engines.supervisor);
    let inbox = Inbox::start(records, options, clock, live, beside, Some(rooms), supervisor);
    engines.hub.serves(FAMILY, Family { source: Arc::new(InboxSource(inbox.clone())), bus });
    if let Some(worker) = assembly.worker() {
        let unnamed = |invalid: Invalid| Failure::Other(invalid.to_string());
        inbox.start_retention(worker);
        let deriving = inbox.clone();
        let derive = move || deriving.clone().derive();
        runner::start(engines.locks.clone(), "inbox-derivation", worker, derive).map_err(unnamed)?;
        if buffered {
            let writing = inbox.clone();
            let write = move || writing.clone().write_behind();
            runner::start(engines.locks.clone(), "inbox-write-behind", worker, write).map_err(unnamed)?;
        }
    }
    Ok(Some(inbox))
}
