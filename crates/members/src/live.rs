//! The way from the inbox to the streams of this process.

use std::time::Instant;

use bongsu_inbox::{Changed, Live, Notice, Told, subject, told};
use bongsu_kernel::{Id, Millis, StreamId};
use bongsu_live::Hub;
use bongsu_live::log::{Delivery, Sink};
use serde::Serialize;

/// Tells streams of what was saved and read here.
pub struct Personal(pub Hub);

impl Live for Personal {
    fn saved(&self, notice: &Notice, at: Millis, saved: &[Told]) {
        let accepted = Instant::now();
        for one in saved {
            let subject = subject(&one.person);
            let previous = StreamId::new(one.seq - 1, 0);
            if one.silent || self.0.listeners(&subject) == 0 {
                self.0.advance(&subject, previous, told::place(one.seq));
            } else if let Some(entry) = told::written(one.seq, notice, at) {
                self.0.deliver(Delivery { subject: &subject, previous, entry: &entry, accepted });
            }
        }
    }

    fn changed(&self, person: &Id, changed: &Changed) {
        self.0.pass_frame(&subject(person), read_frame(changed).into());
    }
}

/// What other devices are told: which entries, and how many are unread now.
pub(crate) fn read_frame(changed: &Changed) -> Vec<u8> {
    #[derive(Serialize)]
    struct Data<'a> {
        ids: &'a [u64],
        unread: u64,
        version: u64,
    }
    let Changed { seqs, unread, version } = changed;
    let data = serde_json::to_string(&Data { ids: seqs, unread: *unread, version: *version });
    format!("event: read\ndata: {}\n\n", data.unwrap_or_default()).into_bytes()
}
