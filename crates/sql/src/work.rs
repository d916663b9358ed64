//! A durable work queue in the table `bongsu_work`: work is added in the transaction that causes it, claimed by one
//! worker at a time, and retried until it is finished.
//!
//! A worker claims items, handles them, and finishes or parks each. When a worker is killed, its claims end with their
//! lease and another worker gets the items, so handling an item twice must be harmless. Times come from the callers'
//! clocks, so a lease must be longer than the difference between those clocks.

use bongsu_kernel::Millis;

use crate::{Query, Records, Result, Row, Transaction, query};

static ADD_WORK: Query = query!("add_work");
static CLAIMABLE_WORK: Query = query!("claimable_work");
static CLAIM_WORK: Query = query!("claim_work");
static FINISH_WORK: Query = query!("finish_work");
static PARK_WORK: Query = query!("park_work");
static DELETE_DONE_WORK: Query = query!("forget_work", mysql);

pub(crate) static QUERIES: &[&Query] =
    &[&ADD_WORK, &CLAIMABLE_WORK, &CLAIM_WORK, &FINISH_WORK, &PARK_WORK, &DELETE_DONE_WORK];

/// Maximum number of characters of a reason that are stored.
const MAX_REASON_LEN: usize = 1_000;

/// A work item to add.
#[derive(Clone, Copy, Debug)]
pub struct NewWork<'a> {
    /// Selects the workers that claim the item. At most 64 ASCII characters.
    pub kind: &'a str,
    /// What the item is about, for workers and operators. At most 192 ASCII characters, not necessarily unique.
    pub key: &'a str,
    pub body: &'a str,
    /// The item cannot be claimed before this time.
    pub not_before: Millis,
}

/// A work item that this worker has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub id: i64,
    pub key: String,
    pub body: String,
    /// How often the item was claimed, including this claim. Worker and attempt together identify the claim.
    pub attempt: u64,
    pub worker: String,
}

/// Which items a worker wants to claim.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    pub kind: String,
    /// The worker's name, unique in the fleet. At most 64 ASCII characters.
    pub worker: String,
    /// Milliseconds after which the claim ends by itself.
    pub lease: Millis,
    pub limit: usize,
}

/// Adds a work item as part of the transaction.
pub async fn add(tx: &mut Transaction<'_>, new: NewWork<'_>, now: Millis) -> Result<()> {
    let arguments = [
        ("kind", new.kind.into()),
        ("key", new.key.into()),
        ("body", new.body.into()),
        ("not_before", new.not_before.into()),
        ("now", now.into()),
    ];
    tx.run(&ADD_WORK, &arguments).await.map(drop)
}

/// Claims items that are due, in the order in which they were added. Skips items that another worker is claiming at the
/// same moment.
pub async fn claim(records: &Records, request: ClaimRequest, now: Millis) -> Result<Vec<Claim>> {
    async fn claim((request, now): &(ClaimRequest, Millis), tx: &mut Transaction<'_>) -> Result<Vec<Claim>> {
        let arguments =
            [("kind", request.kind.as_str().into()), ("now", (*now).into()), ("limit", request.limit.into())];
        let rows = tx.rows(&CLAIMABLE_WORK, &arguments).await?;
        let claims =
            rows.iter().map(|row| read_claim(row, &request.worker)).collect::<Result<Vec<_>, _>>()?;
        if !claims.is_empty() {
            let ids: Vec<String> = claims.iter().map(|claim| claim.id.to_string()).collect();
            let arguments = [
                ("ids", format!("[{}]", ids.join(",")).into()),
                ("worker", request.worker.as_str().into()),
                ("until", now.saturating_add(request.lease).into()),
            ];
            tx.run(&CLAIM_WORK, &arguments).await?;
        }
        Ok(claims)
    }
    records.write((request, now), claim).await
}

fn read_claim(row: &Row, worker: &str) -> Result<Claim> {
    Ok(Claim {
        id: row.int(0)?,
        key: row.text(1)?.to_owned(),
        body: row.text(2)?.to_owned(),
        attempt: row.count(3)? + 1,
        worker: worker.to_owned(),
    })
}

/// Marks the item as done, in the transaction that handled it. Returns false when the claim has ended: another worker
/// may have handled the item, so the caller should roll the transaction back.
pub async fn finish(tx: &mut Transaction<'_>, claim: &Claim, now: Millis) -> Result<bool> {
    let arguments = [
        ("id", claim.id.into()),
        ("worker", claim.worker.as_str().into()),
        ("attempt", claim.attempt.into()),
        ("now", now.into()),
    ];
    Ok(tx.run(&FINISH_WORK, &arguments).await? == 1)
}

/// Releases the claim, so that the item can be claimed again from `until` on, and stores the reason. Returns false when
/// the claim has ended.
pub async fn park(
    tx: &mut Transaction<'_>,
    claim: &Claim,
    until: Millis,
    reason: &str,
    now: Millis,
) -> Result<bool> {
    let reason: String = reason.chars().take(MAX_REASON_LEN).collect();
    let arguments = [
        ("id", claim.id.into()),
        ("worker", claim.worker.as_str().into()),
        ("attempt", claim.attempt.into()),
        ("until", until.into()),
        ("reason", reason.into()),
        ("now", now.into()),
    ];
    Ok(tx.run(&PARK_WORK, &arguments).await? == 1)
}

/// Deletes up to `limit` items of a kind that were done before a time, the oldest first, and returns how many it
/// deleted. To delete all of them, callers repeat the call until it deletes fewer than `limit`.
pub async fn delete_done_before(records: &Records, kind: &str, before: Millis, limit: usize) -> Result<u64> {
    async fn delete(
        (kind, before, limit): &(String, Millis, usize),
        tx: &mut Transaction<'_>,
    ) -> Result<u64> {
        let arguments =
            [("kind", kind.as_str().into()), ("before", (*before).into()), ("limit", (*limit).into())];
        tx.run(&DELETE_DONE_WORK, &arguments).await
    }
    records.write((kind.to_owned(), before, limit), delete).await
}
