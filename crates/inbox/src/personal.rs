//! The way from the inbox to the streams: those of this process, or of all hubs over the bus ([`redis`]).

pub(crate) mod redis;

use std::sync::Arc;
use std::time::Instant;

use bongsu_kernel::{Clock, Id, Millis, StreamId};
use bongsu_live::{Data, Hub, Item, Message};
use serde::Serialize;

use crate::notification::{Notification, WordedNotice, place};
use crate::{Changed, Live, Notice, Templates, Told, subject};

/// Tells streams of what was saved and read here.
pub struct Personal {
    hub: Hub,
    clock: Clock,
    templates: Templates,
}

impl Personal {
    pub fn new(hub: Hub, clock: Clock, templates: Templates) -> Self {
        Self { hub, clock, templates }
    }
}

impl Live for Personal {
    fn saved(&self, notice: &Notice, at: Millis, saved: &[Told]) {
        let accepted = self.clock.moment(at);
        let worded = WordedNotice::new(notice, at, &self.templates);
        for one in saved {
            if one.silent {
                pass_over(&self.hub, &one.person, one.seq);
            } else if self.hub.knows(&subject(&one.person)) {
                // Not for everybody: most people are not here, and who comes later finds it in the records.
                deliver(&self.hub, &one.person, one.notification(&worded), accepted);
            }
        }
    }

    fn changed(&self, person: &Id, changed: &Changed) {
        pass_read(&self.hub, person, read_data(changed));
    }
}

impl Told {
    fn notification(&self, worded: &Arc<WordedNotice>) -> Notification {
        let (unread, version) = (Some(self.unread), Some(self.version));
        Notification { seq: self.seq, unread, version, worded: worded.clone() }
    }
}

/// Tells the streams of this process of an entry, which was on its way to being saved at that moment.
fn deliver(hub: &Hub, person: &Id, notification: Notification, accepted: Instant) {
    let previous = before(notification.seq);
    hub.push(&subject(person), previous, || notification.into_item(), accepted);
}

/// There is an entry of which nobody is told.
fn pass_over(hub: &Hub, person: &Id, seq: u64) {
    hub.push(&subject(person), before(seq), || Item::silent(place(seq)), Instant::now());
}

/// The place before a number: numbers have no holes.
fn before(seq: u64) -> StreamId {
    StreamId::new(seq.saturating_sub(1), 0)
}

/// Tells the streams of this process what was read, as [`read_data`] wrote it.
fn pass_read(hub: &Hub, person: &Id, data: String) {
    hub.pass_message(&subject(person), Message::own("read", None, Data::Json(data.into())));
}

/// What other devices are told: which entries, and how many are unread now.
fn read_data(changed: &Changed) -> String {
    #[derive(Serialize)]
    struct Read {
        ids: Vec<Id>,
        unread: u64,
        version: u64,
    }
    let Changed { seqs, unread, version } = changed;
    let ids = seqs.iter().copied().map(Id::from).collect();
    serde_json::to_string(&Read { ids, unread: *unread, version: *version }).unwrap_or_default()
}
