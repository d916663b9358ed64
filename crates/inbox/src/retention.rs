//! Retention: removes entries that are old enough, read or not, and then notifications without entries.
//!
//! Rows are removed in batches, each in a transaction of its own. The batch size adapts to the time for which a
//! transaction holds its locks, so that no request of a person waits long.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Result, Transaction, delete_once_keys_before};

use crate::store::{self, json, list};
use crate::{Inbox, dead_letters};

/// Time between two runs.
const RUN_INTERVAL: Duration = Duration::from_secs(60);
/// Bounds of the number of rows that one transaction removes.
const MAX_BATCH_SIZE: usize = 200;
const MIN_BATCH_SIZE: usize = 20;
/// A batch that held its locks for longer is followed by a smaller one; after less than a quarter of this time, a
/// larger one follows.
const TARGET_LOCK_TIME: Duration = Duration::from_millis(25);
/// Time between two transactions, in which other writers can take the locks.
const BATCH_INTERVAL: Duration = Duration::from_millis(20);

impl Inbox {
    /// Removes expired rows for as long as the process runs.
    pub(crate) fn start_retention(&self, supervisor: &Supervisor) {
        supervisor.every("inbox-retention", RUN_INTERVAL, self, |inbox| async move {
            let before = inbox.0.clock.now().saturating_sub(inbox.0.retention);
            let once_keys =
                delete_once_keys_before(&inbox.0.records, dead_letters::SCOPE, before, MAX_BATCH_SIZE);
            if let Err(error) = inbox.remove_before(before).await.and(once_keys.await) {
                tracing::warn!(%error, "failed to remove expired notifications; retrying at the next run");
            }
        });
    }

    /// Removes all entries that were created before a time, and the notifications that are left without entries.
    pub async fn remove_before(&self, before: Millis) -> Result<RetentionReport> {
        let mut report = RetentionReport::default();
        let (mut size, mut from) = (MAX_BATCH_SIZE, 0);
        loop {
            let batch = self.0.records.write(BatchRequest { from, before, size }, remove_entries).await?;
            from = batch.next_from;
            report.entries += batch.removed as u64;
            report.batches += 1;
            report.max_lock_time = report.max_lock_time.max(batch.lock_time);
            if !batch.has_more {
                break;
            }
            size = next_size(size, batch.lock_time);
            tokio::time::sleep(BATCH_INTERVAL).await;
        }
        loop {
            let batch = self.0.records.write(BatchRequest { from: 0, before, size }, remove_notices).await?;
            report.max_lock_time = report.max_lock_time.max(batch.lock_time);
            if !batch.has_more {
                return Ok(report);
            }
            size = next_size(size, batch.lock_time);
            tokio::time::sleep(BATCH_INTERVAL).await;
        }
    }
}

fn next_size(size: usize, lock_time: Duration) -> usize {
    let next = if lock_time > TARGET_LOCK_TIME {
        size / 2
    } else if lock_time < TARGET_LOCK_TIME / 4 {
        size * 2
    } else {
        size
    };
    next.clamp(MIN_BATCH_SIZE, MAX_BATCH_SIZE)
}

/// The outcome of [`Inbox::remove_before`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RetentionReport {
    /// Entries that were removed.
    pub entries: u64,
    /// Transactions that looked for expired entries, including the last one, which may have found none.
    pub batches: u64,
    /// The longest time for which a transaction held its locks.
    pub max_lock_time: Duration,
}

/// Which rows one transaction may remove.
struct BatchRequest {
    /// The creation time at which the query for entries begins.
    from: Millis,
    before: Millis,
    size: usize,
}

/// The outcome of one transaction.
struct Batch {
    removed: usize,
    has_more: bool,
    /// The creation time at which the next batch begins.
    next_from: Millis,
    lock_time: Duration,
}

impl Batch {
    const EMPTY: Self = Self { removed: 0, has_more: false, next_from: 0, lock_time: Duration::ZERO };
}

/// An entry that is old enough to be removed.
struct ExpiredEntry {
    person: Id,
    seq: u64,
    /// The entry is part of the person's unread count.
    is_unread: bool,
    created_at: Millis,
}

async fn read_expired(request: &BatchRequest, tx: &mut Transaction<'_>) -> Result<Vec<ExpiredEntry>> {
    let BatchRequest { from, before, size } = *request;
    let arguments = [("from", from.into()), ("before", before.into()), ("limit", size.into())];
    let rows = tx.rows(&store::EXPIRED_ENTRIES, &arguments).await?;
    let read = |row: &bongsu_sql::Row| {
        let is_unread = row.maybe_int(2)?.is_none() && row.maybe_int(3)?.is_none();
        Ok(ExpiredEntry { person: row.id(0)?, seq: row.count(1)?, is_unread, created_at: row.count(4)? })
    };
    rows.iter().map(read).collect()
}

async fn remove_entries(request: &BatchRequest, tx: &mut Transaction<'_>) -> Result<Batch> {
    let found = read_expired(request, tx).await?;
    let mut people: Vec<Id> = found.iter().map(|entry| entry.person.clone()).collect();
    people.sort_unstable();
    people.dedup();
    if people.is_empty() {
        return Ok(Batch::EMPTY);
    }
    // Persons whose row another transaction has locked are left for a later batch.
    let locked = tx.rows(&store::PEOPLE_LOCK_FREE, &[("people", list(&people).into())]).await?;
    let locked_at = Instant::now();
    let mut people = locked.iter().map(|row| row.id(0)).collect::<Result<Vec<_>, _>>()?;
    people.sort_unstable();
    // Read again under the locks, because entries may have been read or removed before the locks were taken.
    let mut expired = read_expired(request, tx).await?;
    expired.retain(|entry| people.binary_search(&entry.person).is_ok());
    let entries: Vec<(&str, u64)> = expired.iter().map(|entry| (entry.person.as_str(), entry.seq)).collect();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for entry in expired.iter().filter(|entry| entry.is_unread) {
        *counts.entry(entry.person.as_str()).or_default() += 1;
    }
    let counts: Vec<(&str, u64)> = counts.into_iter().collect();
    tx.run(&store::EXPIRED_ENTRIES_REMOVE, &[("entries", json(&entries)?.into())]).await?;
    if !counts.is_empty() {
        tx.run(&store::PEOPLE_SUBTRACT_REMOVED, &[("counts", json(&counts)?.into())]).await?;
    }
    let skipped = found.iter().find(|entry| people.binary_search(&entry.person).is_err());
    let has_more = found.len() == request.size || skipped.is_some();
    let next_from = skipped.or(found.last()).map_or(request.from, |entry| entry.created_at);
    Ok(Batch { removed: expired.len(), has_more, next_from, lock_time: locked_at.elapsed() })
}

/// Removes notifications that are old enough and have no entries.
async fn remove_notices(request: &BatchRequest, tx: &mut Transaction<'_>) -> Result<Batch> {
    let found = read_expired_notices(request, tx).await?;
    if found.is_empty() {
        return Ok(Batch::EMPTY);
    }
    let locked = tx.rows(&store::EXPIRED_NOTICES_LOCK, &[("ids", json(&found)?.into())]).await?;
    let locked_at = Instant::now();
    let locked = locked.iter().map(|row| row.int(0)).collect::<Result<Vec<_>, _>>()?;
    // Read again under the locks, because an entry may have been added before the locks were taken.
    let mut expired = read_expired_notices(request, tx).await?;
    expired.retain(|id| locked.contains(id));
    tx.run(&store::EXPIRED_NOTICES_REMOVE, &[("ids", json(&expired)?.into())]).await?;
    let has_more = found.len() == request.size;
    Ok(Batch { removed: expired.len(), has_more, next_from: 0, lock_time: locked_at.elapsed() })
}

async fn read_expired_notices(request: &BatchRequest, tx: &mut Transaction<'_>) -> Result<Vec<i64>> {
    let arguments = [("before", request.before.into()), ("limit", request.size.into())];
    tx.rows(&store::EXPIRED_NOTICES, &arguments).await?.iter().map(|row| row.int(0)).collect()
}
