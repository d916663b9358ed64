//! The port through which the inbox delivers saved changes to open streams; the wiring in `part` provides the adapter.

use bongsu_kernel::{Id, Millis};

use crate::{InboxChange, Notification, NotifyOutcome};

/// Delivers durable changes to open streams. A lost delivery only delays a message: the stream reads a missed entry
/// from the records.
pub trait LiveDelivery: Send + Sync {
    /// Delivers the new entries of a notification that was saved at the time `at`.
    fn deliver_entries(&self, notification: &Notification, at: Millis, outcomes: &[NotifyOutcome]);

    /// Delivers to a person's other devices that entries were read or deleted.
    fn deliver_change(&self, person: &Id, change: &InboxChange);
}
