//! Claims rows for a worker, in the order of their targets, and writes the outcome of each claim.
//!
//! A worker scans all rows once, by position, and remembers the unfinished rows of its types. It claims due
//! rows by their ids, except those that another worker has claimed meanwhile. If the worker cannot claim a
//! row of a target, it claims no later row of that target. Redriven rows, which the table
//! `bongsu_outbox_redriven` lists, are claimed without regard to this order.

use std::collections::{BTreeMap, HashMap, HashSet};

use bongsu_kernel::Millis;
use bongsu_kernel::trace::TraceParent;
use bongsu_sql::{Records, Result, Transaction};

use crate::store::{self, list};
use crate::worker::{CLAIM_LEASE, Handler, millis};
use crate::{Outbox, OutboxRow};

/// The most rows of one claim.
const MAX_CLAIMED_ROWS: usize = 200;
/// Rows that one query scans.
const SCAN_PAGE_SIZE: usize = 1_000;
/// The most pages that are scanned for one claim.
const MAX_SCANNED_PAGES: usize = 50;
/// The most unfinished rows that a worker remembers; it scans no further page while it has more.
const MAX_UNFINISHED_ROWS: usize = 50_000;
/// How often candidates are selected for one claim, while other workers have claimed or locked all of them.
const MAX_CLAIM_ROUNDS: usize = 8;

/// A row that this worker has claimed.
#[derive(Debug)]
pub(crate) struct ClaimedRow {
    pub(crate) row: OutboxRow,
    /// How often handling the row has failed.
    pub(crate) attempts: u64,
    /// The end of the claim.
    pub(crate) until: Millis,
}

/// The outcome of a claim, to be written to the row.
pub(crate) struct ClaimOutcome {
    id: i64,
    /// The end of the claim. The outcome is written only if the row still has this end: another claim has another end.
    until: Millis,
    attempts: u64,
    available_at: Millis,
    next: NextStatus,
}

/// The status that a row gets after a claim.
enum NextStatus {
    Done,
    Pending,
    /// The row is given up, for this reason.
    Failed(String),
}

impl ClaimOutcome {
    pub(crate) fn is_failed(&self) -> bool {
        matches!(self.next, NextStatus::Failed(_))
    }
}

impl ClaimedRow {
    fn outcome(&self, next: NextStatus, attempts: u64, available_at: Millis) -> ClaimOutcome {
        ClaimOutcome { id: self.row.id, until: self.until, attempts, available_at, next }
    }

    pub(crate) fn done(&self, now: Millis) -> ClaimOutcome {
        self.outcome(NextStatus::Done, self.attempts, now)
    }

    /// Makes the row available at once, as if it had not been claimed.
    pub(crate) fn released(&self, now: Millis) -> ClaimOutcome {
        self.outcome(NextStatus::Pending, self.attempts, now)
    }

    /// Parks the row until its next attempt.
    pub(crate) fn parked(&self, attempts: u64, until: Millis) -> ClaimOutcome {
        self.outcome(NextStatus::Pending, attempts, until)
    }

    /// Gives the row up.
    pub(crate) fn failed(&self, attempts: u64, reason: String, now: Millis) -> ClaimOutcome {
        self.outcome(NextStatus::Failed(reason), attempts, now)
    }
}

/// A row that could be claimed: its id and target. The target is None for a redriven row, which is outside the order.
type Candidate = (i64, Option<String>);

/// How far a worker has scanned the rows.
#[derive(Default)]
pub(crate) struct ScanProgress {
    /// The generation of the database that was scanned: a restored database is scanned from the start.
    db_generation: u64,
    /// The last position that was scanned.
    position: u64,
    /// The rows of this worker's types that are not finished yet, by position.
    unfinished: BTreeMap<u64, UnfinishedRow>,
}

struct UnfinishedRow {
    id: i64,
    target: String,
}

/// The rows that may be claimed now: none that follows an unavailable row of the same target.
struct CandidateSet {
    now: Millis,
    /// Targets with a row that is not available yet, or that another worker has claimed or locked.
    waiting_targets: HashSet<String>,
    rows: Vec<Candidate>,
}

impl CandidateSet {
    fn add(&mut self, row: &UnfinishedRow, available_at: Millis) {
        if available_at > self.now {
            self.waiting_targets.insert(row.target.clone());
        } else if !self.is_full() && !self.waiting_targets.contains(&row.target) {
            self.rows.push((row.id, Some(row.target.clone())));
        }
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= MAX_CLAIMED_ROWS
    }
}

impl Outbox {
    /// Claims the rows that may be handled now.
    pub(crate) async fn claim(
        &self,
        progress: &mut ScanProgress,
        handler: &dyn Handler,
    ) -> Result<Vec<ClaimedRow>> {
        let db_generation = self.db_generation();
        if progress.db_generation != db_generation {
            *progress = ScanProgress { db_generation, ..ScanProgress::default() };
        }
        let now = self.0.clock.now();
        let mut candidates = self.redriven_candidates(now, handler).await?;
        let mut held_targets = HashSet::new();
        for _ in 0..MAX_CLAIM_ROUNDS {
            candidates.extend(self.find_candidates(progress, now, handler, held_targets.clone()).await?);
            if candidates.is_empty() {
                break;
            }
            let targets: Vec<String> = candidates.iter().filter_map(|(_, target)| target.clone()).collect();
            let request = ClaimRequest {
                candidates: std::mem::take(&mut candidates),
                now,
                until: now + millis(CLAIM_LEASE),
            };
            let claimed = self.records().write(request, claim).await?;
            if !claimed.is_empty() {
                return Ok(claimed);
            }
            held_targets.extend(targets);
        }
        Ok(Vec::new())
    }

    async fn redriven_candidates(&self, now: Millis, handler: &dyn Handler) -> Result<Vec<Candidate>> {
        let rows = self.records().read(now, read_redriven).await?;
        let (own, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, kind)| handler.handles(kind));
        if !others.is_empty() {
            // A worker of another program finds its redriven rows by their status, like its other rows.
            let others = others.into_iter().map(|(id, _)| id).collect();
            self.records().write(others, remove_redriven).await?;
        }
        Ok(own.into_iter().map(|(id, _)| (id, None)).collect())
    }

    /// Finds the rows that may be claimed now: first among the unfinished rows of earlier scans, then in the rows after
    /// them. Skips `held_targets`, which have a row that another worker has claimed or locked.
    async fn find_candidates(
        &self,
        progress: &mut ScanProgress,
        now: Millis,
        handler: &dyn Handler,
        held_targets: HashSet<String>,
    ) -> Result<Vec<Candidate>> {
        let mut candidates = CandidateSet { now, waiting_targets: held_targets, rows: Vec::new() };
        let known: Vec<(u64, i64)> =
            progress.unfinished.iter().map(|(position, row)| (*position, row.id)).collect();
        for chunk in known.chunks(SCAN_PAGE_SIZE) {
            let ids: Vec<i64> = chunk.iter().map(|(_, id)| *id).collect();
            let unfinished = self.records().read(ids, read_unfinished).await?;
            for (position, id) in chunk {
                match (unfinished.get(id), progress.unfinished.get(position)) {
                    (Some(available_at), Some(row)) => candidates.add(row, *available_at),
                    _ => drop(progress.unfinished.remove(position)),
                }
            }
            if candidates.is_full() {
                return Ok(candidates.rows);
            }
        }
        for _ in 0..MAX_SCANNED_PAGES {
            if progress.unfinished.len() >= MAX_UNFINISHED_ROWS {
                break;
            }
            let page = self.records().read(progress.position, scan_page).await?;
            let is_last = page.len() < SCAN_PAGE_SIZE;
            for scanned in page {
                progress.position = scanned.position;
                if scanned.is_unfinished && handler.handles(&scanned.kind) {
                    let row = UnfinishedRow { id: scanned.id, target: scanned.target };
                    candidates.add(&row, scanned.available_at);
                    progress.unfinished.insert(scanned.position, row);
                }
                if candidates.is_full() {
                    return Ok(candidates.rows);
                }
            }
            if is_last || !candidates.rows.is_empty() {
                break;
            }
        }
        Ok(candidates.rows)
    }

    /// Writes the outcomes of one batch of claims.
    pub(crate) async fn finish_claims(&self, outcomes: Vec<ClaimOutcome>) -> Result<()> {
        let (done, rest): (Vec<_>, Vec<_>) =
            outcomes.into_iter().partition(|outcome| matches!(outcome.next, NextStatus::Done));
        if let Some(ClaimOutcome { until, available_at, .. }) = done.first() {
            let ids = done.iter().map(|outcome| outcome.id).collect();
            let done = DoneRows { ids, until: *until, now: *available_at };
            self.records().write(done, mark_done).await?;
        }
        for outcome in rest {
            finish_claim(self.records(), outcome).await?;
        }
        Ok(())
    }
}

/// The ids and types of redriven rows that are available.
async fn read_redriven(now: &Millis, tx: &mut Transaction<'_>) -> Result<Vec<(i64, String)>> {
    let arguments = [("now", (*now).into()), ("most", MAX_CLAIMED_ROWS.into())];
    let rows = tx.rows(&store::REDRIVEN, &arguments).await?;
    rows.iter().map(|row| Ok((row.int(0)?, row.maybe_text(1)?.unwrap_or_default().to_owned()))).collect()
}

#[expect(clippy::ptr_arg, reason = "a query function takes its argument by reference")]
async fn remove_redriven(ids: &Vec<i64>, tx: &mut Transaction<'_>) -> Result<u64> {
    tx.run(&store::REDRIVEN_REMOVE, &[("ids", list(ids)?.into())]).await
}

/// Returns those of the rows that are unfinished, and when each becomes available.
#[expect(clippy::ptr_arg, reason = "a query function takes its argument by reference")]
async fn read_unfinished(ids: &Vec<i64>, tx: &mut Transaction<'_>) -> Result<HashMap<i64, Millis>> {
    let rows = tx.rows(&store::UNFINISHED, &[("ids", list(ids)?.into())]).await?;
    rows.iter().map(|row| Ok((row.int(0)?, u64::try_from(row.int(1)?).unwrap_or_default()))).collect()
}

/// The columns of a row that decide whether it may be claimed.
struct ScannedRow {
    position: u64,
    id: i64,
    target: String,
    kind: String,
    is_unfinished: bool,
    available_at: Millis,
}

async fn scan_page(after: &u64, tx: &mut Transaction<'_>) -> Result<Vec<ScannedRow>> {
    let arguments = [("after", (*after).into()), ("most", SCAN_PAGE_SIZE.into())];
    let rows = tx.rows(&store::SCAN_PAGE, &arguments).await?;
    let scanned = |row: &bongsu_sql::Row| {
        Ok(ScannedRow {
            position: row.count(0)?,
            id: row.int(1)?,
            target: row.text(2)?.to_owned(),
            kind: row.maybe_text(3)?.unwrap_or_default().to_owned(),
            is_unfinished: matches!(row.text(4)?, "PENDING" | "PROCESSING"),
            available_at: u64::try_from(row.int(5)?).unwrap_or_default(),
        })
    };
    rows.iter().map(scanned).collect()
}

/// Rows to be claimed until a time.
struct ClaimRequest {
    candidates: Vec<Candidate>,
    now: Millis,
    until: Millis,
}

async fn claim(request: &ClaimRequest, tx: &mut Transaction<'_>) -> Result<Vec<ClaimedRow>> {
    let ids: Vec<i64> = request.candidates.iter().map(|(id, _)| *id).collect();
    let arguments = [("ids", list(&ids)?.into()), ("now", request.now.into())];
    let locked = tx.rows(&store::CLAIM_LOCK, &arguments).await?;
    let mut locked = locked
        .iter()
        .map(|row| {
            let trace = row.maybe_text(7)?.and_then(TraceParent::parse);
            let attempts = u64::try_from(row.int(6)?).unwrap_or_default();
            let row = OutboxRow { trace, ..OutboxRow::read(row)? };
            Ok((row.id, ClaimedRow { row, attempts, until: request.until }))
        })
        .collect::<Result<HashMap<_, _>>>()?;
    // A row that is missing here was locked, claimed or finished by another transaction: later rows of its
    // target are not claimed.
    let (mut skipped_targets, mut claimed) = (HashSet::new(), Vec::with_capacity(locked.len()));
    for (id, target) in &request.candidates {
        match locked.remove(id) {
            Some(row) if !target.as_ref().is_some_and(|target| skipped_targets.contains(target)) => {
                claimed.push(row);
            }
            _ => skipped_targets.extend(target.as_ref()),
        }
    }
    let ids: Vec<i64> = claimed.iter().map(|claimed| claimed.row.id).collect();
    tx.run(&store::CLAIM, &[("ids", list(&ids)?.into()), ("until", request.until.into())]).await?;
    Ok(claimed)
}

/// Rows of one batch of claims that are done.
struct DoneRows {
    ids: Vec<i64>,
    until: Millis,
    now: Millis,
}

async fn mark_done(done: &DoneRows, tx: &mut Transaction<'_>) -> Result<()> {
    let ids = list(&done.ids)?;
    let arguments = [("ids", ids.clone().into()), ("until", done.until.into()), ("now", done.now.into())];
    tx.run(&store::CLAIM_DONE, &arguments).await?;
    tx.run(&store::REDRIVEN_REMOVE, &[("ids", ids.into())]).await.map(drop)
}

async fn finish_claim(records: &Records, outcome: ClaimOutcome) -> Result<()> {
    async fn change(outcome: &ClaimOutcome, tx: &mut Transaction<'_>) -> Result<()> {
        let status = match &outcome.next {
            NextStatus::Done => "DONE",
            NextStatus::Pending => "PENDING",
            NextStatus::Failed(_) => "FAILED",
        };
        let arguments = [
            ("id", outcome.id.into()),
            ("until", outcome.until.into()),
            ("status", status.into()),
            ("attempts", outcome.attempts.into()),
            ("available_at", outcome.available_at.into()),
        ];
        let changed = tx.run(&store::CLAIM_END, &arguments).await?;
        if let (NextStatus::Failed(reason), true) = (&outcome.next, changed > 0) {
            let reason: String = reason.chars().take(store::MAX_REASON_LEN).collect();
            tx.run(&store::FAILURE_PUT, &[("failures", list(&[(outcome.id, reason)])?.into())]).await?;
            tx.run(&store::REDRIVEN_REMOVE, &[("ids", list(&[outcome.id])?.into())]).await?;
        }
        Ok(())
    }
    records.write(outcome, change).await
}
