//! Work that must not be forgotten: written down with what it follows from, claimed by one worker at a time, tried again
//! until it is done.
//!
//! A worker claims some, does it, and says that it is done or that it has to wait. A worker that was killed loses its
//! claims when their lease ends, and another one gets them: what is done must bear being done twice. Times are the
//! callers' clocks, so leases are longer than those differ.

use bongsu_kernel::Millis;

use crate::{Error, Query, Records, Row, Transaction, query};

static ADD_WORK: Query = query!("add_work");
static CLAIMABLE_WORK: Query = query!("claimable_work");
static CLAIM_WORK: Query = query!("claim_work");
static FINISH_WORK: Query = query!("finish_work");
static PARK_WORK: Query = query!("park_work");
static FORGET_WORK: Query = query!("forget_work", mysql);

pub(crate) static QUERIES: &[&Query] =
    &[&ADD_WORK, &CLAIMABLE_WORK, &CLAIM_WORK, &FINISH_WORK, &PARK_WORK, &FORGET_WORK];

/// Characters of a reason that are kept.
const MOST_REASON: usize = 1_000;

/// Something to do.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// Which workers do it: 64 ASCII characters at most.
    pub kind: &'a str,
    /// What it is about, for those who do it and those who look: 192 ASCII characters at most. It need not be unique.
    pub key: &'a str,
    pub body: &'a str,
    /// Nobody claims it earlier.
    pub not_before: Millis,
}

/// Something that this worker, and nobody else, may do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub id: i64,
    pub key: String,
    pub body: String,
    /// How often it was claimed, this time included. With the worker's name it tells this claim from earlier ones.
    pub attempt: u64,
    pub worker: String,
}

/// Who claims, and what.
#[derive(Clone, Debug)]
pub struct Wish {
    pub kind: String,
    /// A name of its own in the fleet: 64 ASCII characters at most.
    pub worker: String,
    /// The claim ends by itself after so many milliseconds.
    pub lease: Millis,
    pub at_most: usize,
}

/// Writes work down. It counts with the transaction.
pub async fn add(tx: &mut Transaction<'_>, new: New<'_>, now: Millis) -> Result<(), Error> {
    let arguments = [
        ("kind", new.kind.into()),
        ("key", new.key.into()),
        ("body", new.body.into()),
        ("not_before", new.not_before.into()),
        ("now", now.into()),
    ];
    tx.run(&ADD_WORK, &arguments).await.map(drop)
}

/// Claims what may be done now, the oldest first. What another worker is just claiming is passed over, not waited for.
/// The claims are this worker's once this has returned.
pub async fn claim(records: &Records, wish: Wish, now: Millis) -> Result<Vec<Claim>, Error> {
    async fn claim((wish, now): &(Wish, Millis), tx: &mut Transaction<'_>) -> Result<Vec<Claim>, Error> {
        let wanted =
            [("kind", wish.kind.as_str().into()), ("now", (*now).into()), ("most", wish.at_most.into())];
        let rows = tx.rows(&CLAIMABLE_WORK, &wanted).await?;
        let claims = rows.iter().map(|row| read(row, &wish.worker)).collect::<Result<Vec<_>, _>>()?;
        if !claims.is_empty() {
            let ids: Vec<String> = claims.iter().map(|claim| claim.id.to_string()).collect();
            let arguments = [
                ("ids", format!("[{}]", ids.join(",")).into()),
                ("worker", wish.worker.as_str().into()),
                ("until", now.saturating_add(wish.lease).into()),
            ];
            tx.run(&CLAIM_WORK, &arguments).await?;
        }
        Ok(claims)
    }
    records.write((wish, now), claim).await
}

fn read(row: &Row, worker: &str) -> Result<Claim, Error> {
    Ok(Claim {
        id: row.int(0)?,
        key: row.text(1)?.to_owned(),
        body: row.text(2)?.to_owned(),
        attempt: row.count(3)? + 1,
        worker: worker.to_owned(),
    })
}

/// Says that it is done, in the transaction that did it. False when the claim has ended: then it may have been done by
/// another worker, and this transaction should undo itself.
pub async fn finish(tx: &mut Transaction<'_>, claim: &Claim, now: Millis) -> Result<bool, Error> {
    let arguments = [
        ("id", claim.id.into()),
        ("worker", claim.worker.as_str().into()),
        ("attempt", claim.attempt.into()),
        ("now", now.into()),
    ];
    Ok(tx.run(&FINISH_WORK, &arguments).await? == 1)
}

/// Gives it back, to be claimed again from a time on, and says why. False when the claim has ended.
pub async fn park(
    tx: &mut Transaction<'_>,
    claim: &Claim,
    until: Millis,
    reason: &str,
    now: Millis,
) -> Result<bool, Error> {
    let reason: String = reason.chars().take(MOST_REASON).collect();
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

/// Forgets work of a kind that was done before a time, `at_most` of it: a small step, to be taken again while it removes
/// as many. Says how many it removed.
pub async fn forget_done_before(
    records: &Records,
    kind: &str,
    before: Millis,
    at_most: usize,
) -> Result<u64, Error> {
    async fn forget(
        (kind, before, at_most): &(String, Millis, usize),
        tx: &mut Transaction<'_>,
    ) -> Result<u64, Error> {
        let arguments =
            [("kind", kind.as_str().into()), ("before", (*before).into()), ("most", (*at_most).into())];
        tx.run(&FORGET_WORK, &arguments).await
    }
    records.write((kind.to_owned(), before, at_most), forget).await
}
