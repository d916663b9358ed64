//! Puts together what people are told: the inbox, their personal streams, and what rooms wrote down for them.

use std::sync::Arc;

use bongsu_coordination::lock::embedded::EmbeddedLocks;
use bongsu_coordination::{Locks, runner};
use bongsu_inbox::{Inbox, InboxSource};
use bongsu_kernel::Clock;
use bongsu_kernel::task::Supervisor;
use bongsu_live::log::FollowUps;
use bongsu_live::{Family, Hub};
use bongsu_members::{EmbeddedConnections, Members, Personal};
use bongsu_sql::Records;

use crate::failure::Failure;
use crate::settings::People;

/// What the inbox stands on.
pub(crate) struct Ground {
    pub(crate) hub: Hub,
    pub(crate) records: Records,
    pub(crate) follow_ups: Arc<dyn FollowUps>,
    pub(crate) clock: Clock,
}

/// Starts the inbox and personal streams.
pub(crate) fn start(
    ground: Ground,
    options: People,
    supervisor: &Supervisor,
) -> Result<(Inbox, Members), Failure> {
    let Ground { hub, records, follow_ups, clock } = ground;
    let People { inbox, members, coordination } = options;
    let live = Arc::new(Personal(hub.clone()));
    let inbox = Inbox::start(records, inbox, clock.clone(), live, supervisor);
    let source = Arc::new(InboxSource(inbox.clone()));
    hub.serves(bongsu_inbox::FAMILY, Family { source, bus: None });
    let locks: Arc<dyn Locks> = Arc::new(EmbeddedLocks::new(coordination.lock_ttl, clock));
    let deriving = inbox.clone();
    runner::start(locks, "inbox-derivation", supervisor, move |_| {
        deriving.clone().derive(follow_ups.clone())
    })
    .map_err(|invalid| Failure::Other(invalid.to_string()))?;
    let connections = Arc::new(EmbeddedConnections::default());
    Ok((inbox.clone(), Members::new(hub, inbox, connections, members)))
}
