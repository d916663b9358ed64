//! Delivers saved inbox changes to personal streams: to those of this process, or over the bus to all instances
//! ([`redis`]).
//!
//! Sequence numbers are the positions of entries. They have no gaps, so a stream notices a missed entry and reads it
//! from the records.

pub(crate) mod redis;

use std::sync::Arc;
use std::time::Instant;

use bongsu_kernel::{Clock, Id, Millis, StreamId};
use bongsu_live::{Data, Hub, Item, Message};
use serde::Serialize;

use crate::entry_message::{EntryMessage, LocalizedNotification, log_position};
use crate::{InboxChange, LiveDelivery, Notification, NotifyOutcome, Templates, subject};

/// Delivers to the streams of this process: the adapter for a hub without a fleet.
pub struct LocalDelivery {
    hub: Hub,
    clock: Clock,
    templates: Templates,
}

impl LocalDelivery {
    pub fn new(hub: Hub, clock: Clock, templates: Templates) -> Self {
        Self { hub, clock, templates }
    }
}

impl LiveDelivery for LocalDelivery {
    fn deliver_entries(&self, notification: &Notification, at: Millis, outcomes: &[NotifyOutcome]) {
        let accepted = self.clock.instant_of(at);
        let localized = LocalizedNotification::new(notification, at, &self.templates);
        for outcome in outcomes {
            if outcome.is_muted {
                push_muted(&self.hub, &outcome.person, outcome.seq);
            } else if self.hub.has_subject(&subject(&outcome.person)) {
                // The message is made only for persons with a subscription: most persons have none, and a
                // later stream reads the entry from the records.
                push_entry(&self.hub, &outcome.person, outcome.entry_message(&localized), accepted);
            }
        }
    }

    fn deliver_change(&self, person: &Id, change: &InboxChange) {
        push_change(&self.hub, person, change_data(change));
    }
}

impl NotifyOutcome {
    fn entry_message(&self, localized: &Arc<LocalizedNotification>) -> EntryMessage {
        let (unread, version) = (Some(self.unread), Some(self.version));
        EntryMessage { seq: self.seq, unread, version, localized: localized.clone() }
    }
}

/// Pushes an entry to the streams of this process. `accepted` is the time at which the notification was saved.
fn push_entry(hub: &Hub, person: &Id, entry: EntryMessage, accepted: Instant) {
    let previous = position_before(entry.seq);
    hub.push(&subject(person), previous, || entry.into_item(), accepted);
}

/// Pushes the position of an entry that the person has muted, without a message: otherwise streams would see a gap.
fn push_muted(hub: &Hub, person: &Id, seq: u64) {
    let item = || Item::without_message(log_position(seq));
    hub.push(&subject(person), position_before(seq), item, Instant::now());
}

/// The position before an entry: sequence numbers have no gaps.
fn position_before(seq: u64) -> StreamId {
    StreamId::new(seq.saturating_sub(1), 0)
}

/// Pushes a change to the streams of this process. [`change_data`] made `data`.
fn push_change(hub: &Hub, person: &Id, data: String) {
    hub.push_ephemeral(&subject(person), Message::built_in("read", None, Data::Json(data.into())));
}

/// The data of the `read` message for the person's other devices: the entries, and the unread count after the change.
fn change_data(change: &InboxChange) -> String {
    #[derive(Serialize)]
    struct ReadMessage {
        ids: Vec<Id>,
        unread: u64,
        version: u64,
    }
    let InboxChange { seqs, unread, version } = change;
    let ids = seqs.iter().copied().map(Id::from).collect();
    serde_json::to_string(&ReadMessage { ids, unread: *unread, version: *version }).unwrap_or_default()
}
