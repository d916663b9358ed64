//! The inbox as a part of the hub: what people are told, and what rooms wrote down for them.
//!
//! Entries are derived, and marks of a fleet written behind, by one process with the role `worker`.

use std::collections::HashSet;
use std::sync::Arc;

use bongsu_coordination::runner;
use bongsu_kernel::settings::{Bad, Setting, Values};
use bongsu_kernel::{Id, Invalid};
use bongsu_live::Family;
use bongsu_live::log::Bus;
use bongsu_part::{Assembly, Boxed, DeadLetter, DeadLetters, Engines, Failure, Fleet, Part};
use bongsu_rooms::store::Standing;
use bongsu_rooms::store::sql::SqlStore;
use bongsu_sql::{Error, Migration, Query};

use crate::cache::redis::RedisCache;
use crate::marks::redis::RedisBuffer;
use crate::personal::redis::RedisPersonal;
use crate::store::{MIGRATIONS, QUERIES};
use crate::{
    Beside, FAMILY, FromRooms, Inbox, InboxSource, Live, Options, Personal, RoomMembers, SETTINGS, Templates,
    routes,
};

/// What people are told of.
pub struct InboxPart;

impl Part for InboxPart {
    fn name(&self) -> &'static str {
        "inbox"
    }

    fn settings(&self) -> &'static [&'static Setting] {
        SETTINGS
    }

    fn migrations(&self) -> &'static [Migration] {
        MIGRATIONS
    }

    fn queries(&self) -> &'static [&'static Query] {
        QUERIES
    }

    fn check(&self, values: &Values) -> Result<(), Bad> {
        Options::from_settings(values).map(drop).map_err(Bad)
    }

    fn start<'a>(&'a self, assembly: &'a mut Assembly) -> Boxed<'a, Result<(), Failure>> {
        Box::pin(async {
            let inbox = start(assembly)?;
            if let Some(inbox) = &inbox {
                let last = inbox.clone();
                assembly.at_stop(async move { last.flush().await });
                assembly.dead_letters(inbox.clone());
                assembly.share(inbox.clone());
            }
            assembly.routes(routes::router(inbox, assembly.engines.identity.clone()));
            Ok(())
        })
    }
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
            let cache = Arc::new(RedisCache::start(redis.clone(), supervisor));
            Self { live: personal.clone(), bus: Some(personal), beside: Some(Beside { buffer, cache }) }
        })
    }
}

/// Nothing when nothing is recorded.
fn start(assembly: &Assembly) -> Result<Option<Inbox>, Failure> {
    let engines = &assembly.engines;
    let (Some(records), Some(follow_ups)) = (engines.records.clone(), engines.follow_ups.clone()) else {
        return Ok(None);
    };
    let options = Options::from_settings(&engines.values).map_err(Bad)?;
    let Ways { live, bus, beside } = Ways::of(engines, &options.templates);
    let buffered = beside.is_some();
    let members = Arc::new(Registered(assembly.expect_shared()?));
    let rooms = FromRooms { family: bongsu_rooms::FAMILY, follow_ups, members };
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

/// The members that get the entries of events that name nobody.
struct Registered(SqlStore);

impl RoomMembers for Registered {
    fn registered<'a>(&'a self, rooms: &'a [Id]) -> Boxed<'a, Result<HashSet<Id>, Error>> {
        Box::pin(async move { Ok(self.0.registered(rooms).await?) })
    }

    fn members<'a>(&'a self, room: &'a Id) -> Boxed<'a, Result<Vec<Id>, Error>> {
        Box::pin(async move { Ok(self.0.members(room).await?.unwrap_or_default()) })
    }

    fn is_member<'a>(&'a self, room: &'a Id, person: &'a Id) -> Boxed<'a, Result<bool, Error>> {
        Box::pin(async move { Ok(self.0.standing(room, person).await? == Standing::Member) })
    }
}

impl DeadLetters for Inbox {
    fn name(&self) -> &'static str {
        "follow-ups"
    }

    fn depth(&self) -> Boxed<'_, Result<u64, Error>> {
        Box::pin(self.dead_letter_count())
    }

    fn after(&self, id: i64, most: usize) -> Boxed<'_, Result<Vec<DeadLetter>, Error>> {
        Box::pin(self.dead_letters(id, most))
    }

    fn redrive(&self, ids: Vec<i64>) -> Boxed<'_, Result<u64, Error>> {
        Box::pin(async move { self.redrive_dead_letters(&ids).await })
    }

    fn discard(&self, id: i64) -> Boxed<'_, Result<bool, Error>> {
        Box::pin(self.drop_dead_letter(id))
    }
}
