//! The inbox: what people are told of, kept until its time is over, counted until they have read it.
//!
//! Rows in SQL are the truth: what happened is saved once, with an entry and a number for everybody who is told of it, and
//! their counts change in the same transaction. Others call [`Inbox::notify`]; whoever is connected hears of it through
//! [`Live`]. Wording is in [`templates`], what people want to hear of in [`settings`].

pub mod cache;
mod dead_letters;
mod derive;
pub mod explain;
mod list;
mod live;
pub mod marks;
mod notice;
mod notification;
mod notify;
mod options;
mod part;
mod personal;
mod read;
mod retention;
pub mod routes;
pub mod settings;
mod source;
pub mod store;
pub mod templates;
mod untold;

use std::sync::Arc;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Millis};
use bongsu_sql::Records;

use cache::Cache;
pub use derive::FromRooms;
pub use list::{Listed, Standing, Wanted};
pub use live::Live;
use marks::{Buffer, WriteBehind};
pub use notice::{Entry, EventId, Kind, Notice};
pub use notify::{MOST_TARGETS, NotifyError, Told};
pub use options::{INBOX_RETENTION_DAYS, Options, SETTINGS};
pub use part::INBOX_PART;
pub use personal::Personal;
pub use read::{Changed, EntryId, Read};
pub use retention::Forgotten;
pub use source::{FAMILY, InboxSource, subject};
pub use templates::Templates;
use untold::Untold;

/// Cheap to clone.
#[derive(Clone)]
pub struct Inbox(Arc<Inner>);

/// What a fleet has beside the records. Who is alone writes marks at once, and asks the records for everything.
pub struct Beside {
    pub buffer: Arc<dyn Buffer>,
    pub cache: Cache,
}

struct Inner {
    records: Records,
    clock: Clock,
    live: Arc<dyn Live>,
    beside: Option<Beside>,
    rooms: Option<FromRooms>,
    pace: WriteBehind,
    untold: Untold,
    templates: Templates,
    keeps: Millis,
}

impl Inbox {
    pub fn start(
        records: Records,
        options: Options,
        clock: Clock,
        live: Arc<dyn Live>,
        beside: Option<Beside>,
        rooms: Option<FromRooms>,
        supervisor: &Supervisor,
    ) -> Self {
        let Options { templates, keeps, write_behind: pace } = options;
        templates.start(supervisor);
        let keeps = u64::try_from(keeps.as_millis()).unwrap_or(u64::MAX);
        let inbox = Self(Arc::new(Inner {
            records,
            clock,
            live,
            beside,
            rooms,
            pace,
            untold: Untold::default(),
            templates,
            keeps,
        }));
        inbox.start_telling(supervisor);
        inbox
    }

    fn buffer(&self) -> Option<&dyn Buffer> {
        self.0.beside.as_ref().map(|beside| &*beside.buffer)
    }

    fn cache(&self) -> Option<&Cache> {
        self.0.beside.as_ref().map(|beside| &beside.cache)
    }

    pub fn templates(&self) -> &Templates {
        &self.0.templates
    }
}
