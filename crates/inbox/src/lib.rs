//! The inbox: stored notifications per person, with unread counts, read marks, settings and retention.
//!
//! The SQL records are authoritative. One transaction stores a notification once, adds an inbox entry with a sequence
//! number for every recipient, and updates their unread counts. Callers use [`Inbox::notify`]; open streams receive new
//! entries through [`LiveDelivery`]. [`templates`] holds the wording; [`settings`] decides which
//! entries are sent to streams.

pub mod cache;
mod dead_letters;
mod delivery;
mod entry_message;
pub mod explain;
mod list;
mod live;
pub mod marks;
mod materialize;
mod notification;
mod notification_queue;
mod notify;
mod options;
mod part;
mod pending_pushes;
mod read;
mod retention;
pub mod routes;
pub mod settings;
mod source;
pub mod store;
pub mod templates;

use std::sync::Arc;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Millis};
use bongsu_sql::Records;

use cache::Cache;
pub use delivery::LocalDelivery;
pub use list::{EntryPage, ListFilter, UnreadState};
pub use live::LiveDelivery;
use marks::{MarkBuffer, WriteBehindOptions};
pub use materialize::RoomFollowUps;
pub use notification::{EventId, InboxEntry, Notification, NotificationType};
pub use notify::{MAX_TARGETS, NotifyError, NotifyOutcome};
pub use options::{INBOX_RETENTION_DAYS, Options, SETTINGS};
pub use part::INBOX_PART;
pub use pending_pushes::PendingPushes;
pub use read::{EntryId, InboxChange, ReadMark};
pub use retention::RetentionReport;
pub use source::{InboxSource, SUBJECT_KIND, subject};
pub use templates::Templates;

/// The handle of this part. Cheap to clone.
#[derive(Clone)]
pub struct Inbox(Arc<Inner>);

/// The mark buffer and the cache of a fleet, in Redis. Without Redis, read marks are written to SQL at once,
/// and every read is from SQL.
pub struct RedisDeps {
    pub buffer: Arc<dyn MarkBuffer>,
    pub cache: Cache,
    pub pending_pushes: PendingPushes,
}

struct Inner {
    records: Records,
    clock: Clock,
    live: Arc<dyn LiveDelivery>,
    redis_deps: Option<RedisDeps>,
    room_follow_ups: Option<RoomFollowUps>,
    write_behind: WriteBehindOptions,
    pending_pushes: PendingPushes,
    templates: Templates,
    /// How long entries are kept after they were created.
    retention: Millis,
}

impl Inbox {
    /// Starts the inbox and its background loops. Without `room_follow_ups`, no entries are made for room events.
    pub fn start(
        records: Records,
        options: Options,
        clock: Clock,
        live: Arc<dyn LiveDelivery>,
        redis_deps: Option<RedisDeps>,
        room_follow_ups: Option<RoomFollowUps>,
        supervisor: &Supervisor,
    ) -> Self {
        let Options { templates, retention, write_behind } = options;
        templates.start_reloading(supervisor);
        let pending_pushes = redis_deps.as_ref().map(|deps| deps.pending_pushes.clone()).unwrap_or_default();
        let retention = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
        let inbox = Self(Arc::new(Inner {
            records,
            clock,
            live,
            redis_deps,
            room_follow_ups,
            write_behind,
            pending_pushes,
            templates,
            retention,
        }));
        inbox.start_pending_pushes(supervisor);
        inbox
    }

    fn buffer(&self) -> Option<&dyn MarkBuffer> {
        self.0.redis_deps.as_ref().map(|deps| &*deps.buffer)
    }

    fn cache(&self) -> Option<&Cache> {
        self.0.redis_deps.as_ref().map(|deps| &deps.cache)
    }

    pub fn templates(&self) -> &Templates {
        &self.0.templates
    }
}
