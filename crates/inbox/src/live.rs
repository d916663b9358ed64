//! The port through which the inbox delivers saved changes to open streams; the wiring in `part` provides the adapter.

use bongsu_kernel::{Id, Millis};

use crate::{InboxChange, Notification, NotifyOutcome};

/// Delivers durable changes to open streams. A lost entry is only delayed: the stream reads it from the
/// records. After a lost change, devices receive the right unread count with the next message.
pub trait LiveDelivery: Send + Sync {
    /// Delivers the new entries of a notification that was saved at the time `at`.
    fn deliver_entries(&self, notification: &Notification, at: Millis, outcomes: &[NotifyOutcome]);

    /// Delivers to a person's devices which entries were read or deleted, with the new unread count.
    fn deliver_change(&self, person: &Id, change: &InboxChange);
}
