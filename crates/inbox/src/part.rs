//! The inbox as a part of the hub: it connects the inbox to the records, the hub, Redis and the runners.
//!
//! Three runners, each on one instance with the role `worker` at a time: one makes inbox entries of follow-up records,
//! one writes buffered read marks to SQL, one handles the queue of notifications.

use std::sync::Arc;

use bongsu_coordination::runner;
use bongsu_kernel::settings::SettingError;
use bongsu_live::SubjectKind;
use bongsu_live::log::Bus;
use bongsu_part::{Assembly, Engines, Failure, FleetEngines, Part};

use crate::cache::Cache;
use crate::delivery::redis::RedisDelivery;
use crate::marks::redis::RedisMarkBuffer;
use crate::notification_queue::{self, NotificationHandler};
use crate::store::{MIGRATIONS, QUERIES};
use crate::{
    Inbox, InboxSource, LiveDelivery, LocalDelivery, Options, PendingPushes, RedisDeps, RoomFollowUps,
    SETTINGS, SUBJECT_KIND, Templates, routes,
};

/// Notifications for persons: the inbox, its settings and its retention.
pub static INBOX_PART: Part = Part {
    settings: SETTINGS,
    migrations: MIGRATIONS,
    queries: QUERIES,
    check: |values| Options::from_settings(values).map(drop).map_err(SettingError),
    ..Part::new("inbox", |assembly| Box::pin(start(assembly)))
};

async fn start(assembly: &mut Assembly) -> Result<(), Failure> {
    let inbox = start_inbox(assembly)?;
    if let Some(inbox) = &inbox {
        let flushed = inbox.clone();
        assembly.add_final_write(async move { flushed.flush().await });
        assembly.add_dead_letters(inbox.clone());
        if let Some(queues) = &assembly.engines.queues {
            queues.declare(notification_queue::QUEUE, notification_queue::topics());
        }
        let handler = Arc::new(NotificationHandler(inbox.clone()));
        assembly.add_consumer(notification_queue::QUEUE, handler)?;
        assembly.share(inbox.clone());
    }
    assembly.add_routes(routes::router(inbox, assembly.engines.identity.clone()));
    Ok(())
}

/// The delivery to open streams, and the mark buffer and cache in Redis. All depend on whether the hub is
/// part of a fleet.
struct DeliveryEngines {
    live: Arc<dyn LiveDelivery>,
    bus: Option<Arc<dyn Bus>>,
    redis_deps: Option<RedisDeps>,
}

impl DeliveryEngines {
    fn new(engines: &Engines, templates: &Templates) -> Self {
        let (hub, clock, templates) = (engines.hub.clone(), engines.clock.clone(), templates.clone());
        let embedded = || {
            let live = LocalDelivery::new(hub.clone(), clock.clone(), templates.clone());
            Self { live: Arc::new(live), bus: None, redis_deps: None }
        };
        engines.choose(embedded, |FleetEngines { redis, .. }| {
            let (buffer, supervisor) = (Arc::new(RedisMarkBuffer::new(redis.clone())), &engines.supervisor);
            buffer.start_upkeep(supervisor);
            let cache = Cache::start(redis.clone(), supervisor);
            let deps = RedisDeps { buffer, cache, pending_pushes: PendingPushes::default() };
            let (hub, clock) = (hub.clone(), clock.clone());
            let delivery =
                RedisDelivery::start(redis.clone(), &deps, hub, clock, templates.clone(), supervisor);
            let delivery = Arc::new(delivery);
            Self { live: delivery.clone(), bus: Some(delivery), redis_deps: Some(deps) }
        })
    }
}

/// Starts the inbox and its loops. None when RECORDS is off.
fn start_inbox(assembly: &Assembly) -> Result<Option<Inbox>, Failure> {
    let engines = &assembly.engines;
    let (Some(records), Some(follow_ups)) = (engines.records.clone(), engines.follow_ups.clone()) else {
        return Ok(None);
    };
    let options = Options::from_settings(&engines.values).map_err(SettingError)?;
    let DeliveryEngines { live, bus, redis_deps } = DeliveryEngines::new(engines, &options.templates);
    let is_buffered = redis_deps.is_some();
    let room_follow_ups = RoomFollowUps { follow_ups, members: assembly.expect_shared()? };
    let (clock, supervisor) = (engines.clock.clone(), &engines.supervisor);
    let inbox = Inbox::start(records, options, clock, live, redis_deps, Some(room_follow_ups), supervisor);
    let kind = SubjectKind { source: Arc::new(InboxSource(inbox.clone())), bus };
    engines.hub.register_subject_kind(SUBJECT_KIND, kind);
    if let Some(worker) = assembly.worker_supervisor() {
        inbox.start_retention(worker);
        let materializer = inbox.clone();
        let materialize = move || materializer.clone().materialize();
        runner::start(engines.locks.clone(), "inbox-derivation", worker, materialize)
            .map_err(Failure::other)?;
        if is_buffered {
            let writer = inbox.clone();
            let write = move || writer.clone().write_behind();
            runner::start(engines.locks.clone(), "inbox-write-behind", worker, write)
                .map_err(Failure::other)?;
        }
    }
    Ok(Some(inbox))
}
