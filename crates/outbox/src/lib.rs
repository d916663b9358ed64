//! The outbox: what a program wrote with its own change is told to everybody who may hear of it, in one order.
//!
//! Any program inserts rows into `outbox_events` (or what the settings call it), in its own transactions. Ids are given before
//! a commit and say nothing about order, so a sequencer gives every row its position once it can be seen ([`sequence`]); one
//! tail per process reads on by position ([`tail`]) and hands rows to the hub, whose streams read the same rows here when they
//! come back ([`source`]).

mod claim;
mod dead_letters;
mod delivery;
pub mod explain;
mod followers;
mod names;
mod options;
mod part;
mod record;
mod relay;
pub mod retention;
mod retries;
mod right;
pub mod routes;
mod row;
pub mod sequence;
pub mod source;
pub mod store;
pub mod tail;
pub mod worker;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id};
use bongsu_live::{Hub, SubjectName};
use bongsu_sql::{Error, Records};
use tokio::sync::Notify;

use delivery::Ends;
use followers::Followers;
pub use names::{TableNames, has_membership_query};
pub use options::{Options, Relay, SETTINGS, To, Waited, is_on};
pub use part::OUTBOX_PART;
pub use record::{Event, record};
use retries::Part;
pub use right::RightError;
pub use row::{Fault, Row};
pub use source::OutboxSource;
use tail::Seen;

/// The family of subjects that rows are about.
pub const FAMILY: &str = "outbox";
/// The target of rows that had none when the column was made: nobody hears of them.
pub const NOBODY: &str = "-";

pub fn subject(event: &Id) -> SubjectName {
    SubjectName::new(FAMILY, event)
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Outbox(Arc<Inner>);

struct Inner {
    records: Records,
    hub: Hub,
    options: Options,
    clock: Clock,
    ends: Ends,
    followers: Followers,
    /// Rows have got positions.
    sequenced: Notify,
    /// The hub was told of rows.
    arrived: Notify,
    /// How far the tail has come.
    seen: Mutex<Seen>,
    /// The position up to which the hub was told everything.
    reached: AtomicU64,
    /// How often the database turned out to be another one.
    era: AtomicU64,
    tail: Part,
    sequencer: Part,
}

impl Outbox {
    /// Follows the rows from now on, for as long as the process runs. Somebody in the fleet has to run [`Outbox::sequence`].
    pub async fn start(
        records: Records,
        hub: Hub,
        options: Options,
        clock: Clock,
        supervisor: &Supervisor,
    ) -> Result<Self, Error> {
        let outbox = Self(Arc::new(Inner {
            records,
            hub,
            options,
            clock,
            ends: Ends::default(),
            followers: Followers::default(),
            sequenced: Notify::new(),
            arrived: Notify::new(),
            seen: Mutex::default(),
            reached: AtomicU64::new(0),
            era: AtomicU64::new(0),
            tail: Part::tail(),
            sequencer: Part::sequencer(),
        }));
        outbox.tell_untargeted().await;
        outbox.start_tail(supervisor).await?;
        outbox.start_looking_again(supervisor);
        Ok(outbox)
    }

    fn records(&self) -> &Records {
        &self.0.records
    }

    /// What is nobody's is said once, at the start: somebody should look at it.
    async fn tell_untargeted(&self) {
        match self.records().count(&store::UNTARGETED).await {
            Ok(0) => {}
            Ok(rows) => tracing::warn!(
                rows,
                "rows of the outbox have no event that they are about: nobody hears of them"
            ),
            Err(error) => {
                tracing::warn!(%error, "rows of the outbox that are about no event were not counted");
            }
        }
    }
}
