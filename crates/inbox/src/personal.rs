//! The way from the inbox to the streams: those of this process, or of all hubs over the bus ([`redis`]).

pub(crate) mod redis;

use std::time::Instant;

use bongsu_kernel::{Clock, Id, Millis, StreamId};
use bongsu_live::log::{Delivery, Sink};
use bongsu_live::{Entry, Hub};
use bytes::Bytes;
use serde::Serialize;

use crate::{Changed, Live, Notice, Told, subject, told};

/// Tells streams of what was saved and read here.
pub struct Personal {
    hub: Hub,
    clock: Clock,
}

impl Personal {
    pub fn new(hub: Hub, clock: Clock) -> Self {
        Self { hub, clock }
    }
}

impl Live for Personal {
    fn saved(&self, notice: &Notice, at: Millis, saved: &[Told]) {
        let accepted = self.clock.moment(at);
        for one in saved {
            if one.silent {
                pass_over(&self.hub, &one.person, one.seq);
            } else if self.hub.knows(&subject(&one.person)) {
                // Not for everybody: most people are not here, and who comes later finds it in the records.
                if let Some(entry) = told::written(one.seq, notice, at, (one.unread, one.version)) {
                    deliver(&self.hub, &one.person, &entry, accepted);
                }
            }
        }
    }

    fn changed(&self, person: &Id, changed: &Changed) {
        self.hub.pass_frame(&subject(person), read_frame(changed));
    }
}

/// Tells the streams of this process of an entry, which was on its way to being saved at that moment.
fn deliver(hub: &Hub, person: &Id, entry: &Entry, accepted: Instant) {
    let subject = subject(person);
    hub.deliver(Delivery { subject: &subject, previous: before(entry.place.id.ms), entry, accepted });
}

/// There is an entry of which nobody is told.
fn pass_over(hub: &Hub, person: &Id, seq: u64) {
    hub.advance(&subject(person), before(seq), told::place(seq));
}

/// The place before a number: numbers have no holes.
fn before(seq: u64) -> StreamId {
    StreamId::new(seq.saturating_sub(1), 0)
}

/// What other devices are told: which entries, and how many are unread now.
fn read_frame(changed: &Changed) -> Bytes {
    #[derive(Serialize)]
    struct Data {
        ids: Vec<Id>,
        unread: u64,
        version: u64,
    }
    let Changed { seqs, unread, version } = changed;
    let ids = seqs.iter().copied().map(Id::from).collect();
    let data = serde_json::to_string(&Data { ids, unread: *unread, version: *version });
    format!("event: read\ndata: {}\n\n", data.unwrap_or_default()).into()
}
