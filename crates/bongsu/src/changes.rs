//! Puts together what is told of changes that other programs commit: the outbox, its sequencer and its streams.

use std::sync::Arc;

use bongsu_coordination::lock::embedded::EmbeddedLocks;
use bongsu_coordination::lock::redis::RedisLocks;
use bongsu_coordination::{Locks, runner};
use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_kernel::{Clock, Invalid};
use bongsu_live::{Family, Hub};
use bongsu_outbox::worker::{Handler, Worker};
use bongsu_outbox::{FAMILY, Options, Outbox, OutboxSource, Relay};
use bongsu_redis::Redis;
use bongsu_rooms::Rooms;
use bongsu_sql::Records;

use crate::failure::Failure;
use crate::relay::ToRooms;

/// What the outbox stands on.
pub(crate) struct Ground {
    pub(crate) hub: Hub,
    pub(crate) records: Records,
    /// Nothing for a hub that is alone.
    pub(crate) redis: Option<Redis>,
    pub(crate) coordination: bongsu_coordination::Options,
    pub(crate) clock: Clock,
}

pub(crate) async fn start(
    ground: Ground,
    options: Options,
    supervisor: &Supervisor,
) -> Result<Outbox, Failure> {
    let Ground { hub, records, redis, coordination, clock } = ground;
    let locks: Arc<dyn Locks> = match redis {
        Some(redis) => Arc::new(RedisLocks::new(redis, coordination.lock_ttl)),
        None => Arc::new(EmbeddedLocks::new(coordination.lock_ttl, clock.clone())),
    };
    let outbox = Outbox::start(records, hub.clone(), options, clock, supervisor).await?;
    hub.serves(FAMILY, Family { source: Arc::new(OutboxSource(outbox.clone())), bus: None });
    let sequencing = outbox.clone();
    let sequence = move |_| sequencing.clone().sequence();
    let unnamed = |invalid: Invalid| Failure::Other(invalid.to_string());
    runner::start(locks.clone(), "outbox-sequencer", supervisor, sequence).map_err(unnamed)?;
    let forgetting = outbox.clone();
    let forget = move |_| forgetting.clone().forget();
    runner::start(locks, "outbox-retention", supervisor, forget).map_err(unnamed)?;
    Ok(outbox)
}

/// Has rows go on to rooms, if that was asked for. Every hub of a fleet does it.
pub(crate) fn relay(outbox: &Outbox, rooms: &Rooms, relay: Relay, supervisor: &Supervisor) {
    if relay.is_empty() {
        return;
    }
    let (outbox, stop) = (outbox.clone(), supervisor.stop());
    let handler: Arc<dyn Handler> = Arc::new(ToRooms { rooms: rooms.clone(), relay });
    supervisor.spawn("outbox-relay", OnEnd::Restart, move || {
        Worker::new(outbox.clone(), handler.clone(), stop.clone()).work()
    });
}
