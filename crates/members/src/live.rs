//! The way from the inbox to the streams: those of this process, or of all hubs over the bus ([`redis`]).

pub mod redis;

use std::time::Instant;

use bongsu_inbox::{Changed, Live, Notice, Told, subject, told};
use bongsu_kernel::{Id, Millis, StreamId};
use bongsu_live::log::{Delivery, Sink};
use bongsu_live::{Entry, Hub};
use bytes::Bytes;
use serde::Serialize;

/// Tells streams of what was saved and read here.
pub struct Personal(pub Hub);

impl Live for Personal {
    fn saved(&self, notice: &Notice, at: Millis, saved: &[Told]) {
        for one in saved {
            if one.silent {
                deliver(&self.0, &one.person, one.seq, None);
            } else if self.0.knows(&subject(&one.person)) {
                // Not for everybody: most people are not here, and who comes later finds it in the records.
                if let Some(entry) = told::written(one.seq, notice, at) {
                    deliver(&self.0, &one.person, one.seq, Some(&entry));
                }
            }
        }
    }

    fn changed(&self, person: &Id, changed: &Changed) {
        self.0.pass_frame(&subject(person), read_frame(changed));
    }
}

/// Tells the streams of this process of an entry, or that there is one of which nobody is told.
fn deliver(hub: &Hub, person: &Id, seq: u64, entry: Option<&Entry>) {
    let (subject, previous) = (subject(person), StreamId::new(seq.saturating_sub(1), 0));
    match entry {
        Some(entry) => {
            hub.deliver(Delivery { subject: &subject, previous, entry, accepted: Instant::now() });
        }
        None => hub.advance(&subject, previous, told::place(seq)),
    }
}

/// What other devices are told: which entries, and how many are unread now.
fn read_frame(changed: &Changed) -> Bytes {
    #[derive(Serialize)]
    struct Data<'a> {
        ids: &'a [u64],
        unread: u64,
        version: u64,
    }
    let Changed { seqs, unread, version } = changed;
    let data = serde_json::to_string(&Data { ids: seqs, unread: *unread, version: *version });
    format!("event: read\ndata: {}\n\n", data.unwrap_or_default()).into()
}
