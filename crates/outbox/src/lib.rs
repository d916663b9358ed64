//! The outbox: rows that a program commits together with its change are sent to the streams of their event, in order.
//!
//! Any program inserts rows into `outbox_events` (or the table that the settings name), in its own transactions. The
//! database assigns ids before the commit, so ids say nothing about the order of commits: a sequencer gives every
//! committed row its position ([`sequence`]). One tail per process reads rows by position ([`tail`]) and pushes them to
//! the hub. Resuming streams read the same rows from the database ([`source`]).

mod claim;
mod dead_letters;
pub mod explain;
mod membership;
mod membership_check;
mod names;
mod options;
mod part;
mod push_rows;
mod record;
mod relay;
pub mod retention;
mod retries;
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

pub use membership::MembershipError;
use membership_check::OpenStreams;
pub use names::{TableNames, has_membership_query};
pub use options::{Options, Relay, RelayTarget, RetainUntilDone, SETTINGS, is_on};
pub use part::OUTBOX_PART;
use push_rows::TargetHeads;
pub use record::{Event, record};
use retries::LoopHealth;
pub use row::{Fault, OutboxRow};
pub use source::OutboxSource;
use tail::TailProgress;

/// The subject kind of the events that rows are about.
pub const SUBJECT_KIND: &str = "outbox";
/// The target of rows that had none when the migration added the column, or that a program writes without one. No
/// stream receives such rows.
pub const NO_TARGET: &str = "-";

pub fn subject(event: &Id) -> SubjectName {
    SubjectName::new(SUBJECT_KIND, event)
}

/// The handle on the outbox of this process. Cheap to clone.
#[derive(Clone)]
pub struct Outbox(Arc<Inner>);

struct Inner {
    records: Records,
    hub: Hub,
    options: Options,
    clock: Clock,
    target_heads: TargetHeads,
    open_streams: OpenStreams,
    /// Notified when the sequencer has given rows their positions.
    rows_sequenced: Notify,
    /// Notified when the tail has pushed rows to the hub, and when an operator redrives rows.
    rows_arrived: Notify,
    /// How far the tail has read.
    tail_progress: Mutex<TailProgress>,
    /// The position up to which the tail has pushed every row to the hub.
    delivered_position: AtomicU64,
    /// How often the tail found that the database had been restored from a copy.
    db_generation: AtomicU64,
    tail_health: LoopHealth,
    sequencer_health: LoopHealth,
}

impl Outbox {
    /// Starts the tail at the current head, and the membership check; both run as long as the process. Rows get
    /// positions only while one instance of the fleet runs [`Outbox::run_sequencer`].
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
            target_heads: TargetHeads::default(),
            open_streams: OpenStreams::default(),
            rows_sequenced: Notify::new(),
            rows_arrived: Notify::new(),
            tail_progress: Mutex::default(),
            delivered_position: AtomicU64::new(0),
            db_generation: AtomicU64::new(0),
            tail_health: LoopHealth::tail(),
            sequencer_health: LoopHealth::sequencer(),
        }));
        outbox.log_untargeted_rows().await;
        outbox.start_tail(supervisor).await?;
        outbox.start_membership_check(supervisor);
        Ok(outbox)
    }

    fn records(&self) -> &Records {
        &self.0.records
    }

    /// Logs once, at the start, how many rows name no event (`target_event_id` is `-`): no stream receives them.
    async fn log_untargeted_rows(&self) {
        match self.records().count(&store::UNTARGETED).await {
            Ok(0) => {}
            Ok(rows) => tracing::warn!(rows, "outbox rows lack a target_event_id; no stream receives them"),
            Err(error) => {
                tracing::warn!(%error, "failed to count outbox rows without a target_event_id; counting again at the next start");
            }
        }
    }
}
