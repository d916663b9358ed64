//! The tail: reads rows by position, once for all streams of this process, and pushes them to the hub.
//!
//! Positions become visible in their order, so a reader that sees a position has seen all earlier ones. During an
//! outage of the database the tail waits, and then resumes. A database that was restored from a copy has a lower head,
//! or another row at the last position read. It assigns ids again that clients already have: the tail records the
//! range of these ids in `bongsu_outbox_again`, so that no instance accepts one as a position.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Millis, lock};
use bongsu_sql::{Dialect, Error, Records, Result, Transaction};

use crate::retention::position_at;
use crate::retries::Retries;
use crate::worker::millis;
use crate::{Outbox, OutboxRow, store};

/// The most rows of one read.
const MAX_BATCH_ROWS: usize = 500;
/// The most payload bytes of one read; a single row may exceed it.
const MAX_BATCH_BYTES: usize = 1 << 20;
/// Time between two reads when the sequencer notifies the tail of new rows.
const NOTIFIED_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two reads when the tail gets no notifications.
const POLL_INTERVAL: Duration = Duration::from_millis(40);
/// Time between two removals of the heads of targets without subscribers.
const PRUNE_INTERVAL: Duration = Duration::from_secs(60);
/// How far the clocks of a fleet may differ.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(60);

/// A reader of rows in the order of their positions, each once.
pub struct Tail {
    records: Records,
    progress: TailProgress,
    /// The largest id that any client may have received.
    max_id: i64,
    /// When a read last found that the database had not been restored from a copy.
    verified_at: Instant,
}

/// How far a tail has read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TailProgress {
    pub(crate) position: u64,
    /// The row at that position. None until the tail has read it.
    row: Option<RowIdentity>,
    /// How many restores the database had recorded at the last read. None until the first read.
    restores: Option<u64>,
}

/// Distinguishes a row from another row at the same position. In a restored database the other row may have
/// the same id as well, but was created at another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowIdentity {
    id: i64,
    created_at: u64,
}

/// The outcome of one read.
#[derive(Debug)]
pub enum TailRead {
    /// The next rows (empty when there are no new ones), and how many positions are still unread.
    Rows { rows: Vec<OutboxRow>, behind: u64 },
    /// The database was restored from a copy, so rows that were read earlier may no longer exist. `is_recorded`:
    /// another instance has already recorded the restore.
    Restored { is_recorded: bool },
}

impl Tail {
    /// A tail before the first position.
    pub fn from_start(records: Records) -> Self {
        Self { records, progress: TailProgress::default(), max_id: 0, verified_at: Instant::now() }
    }

    /// A tail at the current head.
    pub async fn from_now(records: Records) -> Result<Self> {
        let verified_at = Instant::now();
        let (progress, max_id) = records.read((), read_current).await?;
        Ok(Self { records, progress, max_id, verified_at })
    }

    /// Reads the next rows. The progress does not change after an error, nor in a restored database until
    /// [`Self::restart`].
    pub async fn read_next(&mut self) -> Result<TailRead> {
        let started_at = Instant::now();
        let (read, progress) = self.records.read(self.progress, read_after).await?;
        if let TailRead::Rows { rows, .. } = &read {
            self.progress = progress;
            self.max_id = rows.iter().map(|row| row.id).fold(self.max_id, i64::max);
            self.verified_at = started_at;
        }
        Ok(read)
    }

    /// Continues at the current head of a restored database, after recording for all instances which ids the
    /// database may assign a second time. With `is_recorded`, another instance has recorded the restore, and
    /// this tail adds no record.
    pub async fn restart(&mut self, now: Millis, is_recorded: bool) -> Result<()> {
        let since = now.saturating_sub(millis(self.verified_at.elapsed() + MAX_CLOCK_SKEW));
        let record = (!is_recorded).then_some(RestoreRecord { since, max_id: self.max_id });
        self.progress = self.records.write(record, record_restore).await?;
        self.verified_at = Instant::now();
        Ok(())
    }
}

/// The progress of a tail at the current head, and the largest id.
async fn read_current((): &(), tx: &mut Transaction<'_>) -> Result<(TailProgress, i64)> {
    let Head { position, restores, .. } = read_head(0, tx).await?;
    let max_id = tx.row(&store::LARGEST, &[]).await?;
    let max_id = max_id.map(|row| row.maybe_int(0)).transpose()?.flatten();
    Ok((TailProgress { position, row: None, restores: Some(restores) }, max_id.unwrap_or_default()))
}

/// A restore to be recorded: which ids the database may assign a second time.
struct RestoreRecord {
    /// Rows that had their positions by this time are the same as before the restore.
    since: Millis,
    /// The largest id that any client may have received.
    max_id: i64,
}

/// Records the restore, if any, and returns the progress at the current head.
async fn record_restore(record: &Option<RestoreRecord>, tx: &mut Transaction<'_>) -> Result<TailProgress> {
    if let Some(record) = record {
        let position = position_at(record.since, tx).await?;
        let arguments = [("position", position.into()), ("largest", record.max_id.into())];
        tx.run(&store::RESTORE_PUT, &arguments).await?;
    }
    Ok(read_current(&(), tx).await?.0)
}

/// The head of the order.
struct Head {
    position: u64,
    /// The row that now has the position of the reader.
    row_at_position: Option<RowIdentity>,
    /// How many restores are recorded.
    restores: u64,
}

impl Head {
    /// Whether the reader's progress is possible in this database.
    fn is_consistent_with(&self, progress: &TailProgress) -> bool {
        // If the position has no row any more, retention has removed the row. Another row at the position
        // proves that the database was restored.
        let is_another_row =
            progress.row.is_some() && self.row_at_position.is_some() && self.row_at_position != progress.row;
        self.position >= progress.position && !is_another_row
    }

    /// Whether an instance has recorded a restore since the reader's progress.
    fn has_new_restore(&self, progress: &TailProgress) -> bool {
        progress.restores.is_some_and(|restores| restores != self.restores)
    }
}

async fn read_head(reader_position: u64, tx: &mut Transaction<'_>) -> Result<Head> {
    let row = tx.row(&store::HEAD, &[("remembered", reader_position.into())]).await?;
    let row = row.ok_or_else(|| Error::Failed("bongsu_outbox_head is empty".to_owned()))?;
    let created_at = u64::try_from(row.maybe_int(2)?.unwrap_or_default()).unwrap_or_default();
    let row_at_position = row.maybe_int(1)?.map(|id| RowIdentity { id, created_at });
    Ok(Head { position: row.count(0)?, row_at_position, restores: row.count(3)? })
}

/// Whether the database shows no restore from a copy since the tail made this progress.
pub(crate) async fn is_same_database(progress: &TailProgress, tx: &mut Transaction<'_>) -> Result<bool> {
    let head = read_head(progress.position, tx).await?;
    Ok(head.is_consistent_with(progress) && !head.has_new_restore(progress))
}

async fn read_after(progress: &TailProgress, tx: &mut Transaction<'_>) -> Result<(TailRead, TailProgress)> {
    let head = read_head(progress.position, tx).await?;
    let is_consistent = head.is_consistent_with(progress);
    if !is_consistent || head.has_new_restore(progress) {
        return Ok((TailRead::Restored { is_recorded: is_consistent }, *progress));
    }
    let restores = Some(head.restores);
    if head.position == progress.position {
        let progress = TailProgress { row: progress.row.or(head.row_at_position), restores, ..*progress };
        return Ok((TailRead::Rows { rows: Vec::new(), behind: 0 }, progress));
    }
    let arguments = [
        ("after", progress.position.into()),
        ("most", MAX_BATCH_ROWS.into()),
        ("bytes", MAX_BATCH_BYTES.into()),
    ];
    let rows = tx.rows(&store::TAIL, &arguments).await?;
    let rows = rows.iter().map(OutboxRow::read).collect::<Result<Vec<_>, _>>()?;
    let identity = |row: &OutboxRow| RowIdentity { id: row.id, created_at: row.created_at };
    let last =
        rows.last().map(|row| TailProgress { position: row.position, row: Some(identity(row)), restores });
    // If no row was found, retention has already removed all rows up to the head.
    let last = last.unwrap_or(TailProgress { position: head.position, row: None, restores });
    Ok((TailRead::Rows { rows, behind: head.position.saturating_sub(last.position) }, last))
}

impl Outbox {
    pub(crate) async fn start_tail(&self, supervisor: &Supervisor) -> Result<()> {
        let notified = self.clone();
        let is_notified = self
            .records()
            .listen_notify(store::CHANNEL, supervisor, move || notified.0.rows_sequenced.notify_one());
        // On the embedded file the sequencer runs in this process and notifies the tail directly.
        let is_notified = is_notified || self.records().dialect() == Dialect::Sqlite;
        let poll_interval = if is_notified { NOTIFIED_POLL_INTERVAL } else { POLL_INTERVAL };
        let tail = Tail::from_now(self.records().reserved_pool()).await?;
        self.set_tail_progress(tail.progress);
        self.set_delivered_position(tail.progress.position);
        let state = (self.clone(), Arc::new(tokio::sync::Mutex::new(tail)));
        supervisor.run("outbox-tail", &state, move |(outbox, tail)| async move {
            outbox.run_tail(&mut *tail.lock().await, poll_interval).await;
        });
        Ok(())
    }

    /// How far the tail has read. The rows are pushed to the hub right afterwards, so a stream that subscribes first
    /// and then reads up to this position misses no row in between.
    pub(crate) fn tail_progress(&self) -> TailProgress {
        *lock(&self.0.tail_progress)
    }

    fn set_tail_progress(&self, progress: TailProgress) {
        *lock(&self.0.tail_progress) = progress;
    }

    /// The position up to which the tail has pushed every row to the hub.
    pub fn delivered_position(&self) -> u64 {
        self.0.delivered_position.load(Ordering::Acquire)
    }

    fn set_delivered_position(&self, position: u64) {
        self.0.delivered_position.store(position, Ordering::Release);
    }

    async fn read_next(&self, tail: &mut Tail) -> Result<TailRead> {
        let read = tail.read_next().await?;
        if let TailRead::Restored { is_recorded } = read {
            // Restarts before the streams close, because their clients reconnect at once with ids of the earlier
            // database.
            tail.restart(self.0.clock.now(), is_recorded).await?;
        }
        Ok(read)
    }

    /// Pushes rows to the hub for as long as the process runs.
    async fn run_tail(&self, tail: &mut Tail, poll_interval: Duration) {
        let (mut retries, mut pruned_at) = (Retries::new(&self.0.tail_health), Instant::now());
        loop {
            let wait = match self.read_next(tail).await {
                Ok(TailRead::Rows { rows, behind }) => {
                    metrics::gauge!("outbox_tail_lag_rows").set(behind as f64);
                    self.set_tail_progress(tail.progress);
                    self.push_rows(&rows);
                    if !rows.is_empty() {
                        self.0.rows_arrived.notify_one();
                    }
                    self.set_delivered_position(tail.progress.position);
                    retries.record_success();
                    if behind > 0 { Duration::ZERO } else { poll_interval }
                }
                Ok(TailRead::Restored { .. }) => {
                    tracing::warn!(
                        "the database was restored from a copy; closing the streams of the outbox"
                    );
                    self.set_tail_progress(tail.progress);
                    self.invalidate_positions();
                    self.set_delivered_position(tail.progress.position);
                    Duration::ZERO
                }
                Err(error) => {
                    retries.record_failure(&error).await;
                    continue;
                }
            };
            if pruned_at.elapsed() > PRUNE_INTERVAL {
                pruned_at = Instant::now();
                self.prune_target_heads();
            }
            if !wait.is_zero() {
                tokio::select! {
                    () = self.0.rows_sequenced.notified() => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
        }
    }
}
