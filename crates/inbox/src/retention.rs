//! Forgetting: what is older than its time goes, read or not, a little at a time.
//!
//! A step is as large as fits a moment, so that nobody waits long for their inbox. Entries go first, then what nobody has any more.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Error, Transaction, forget_before};

use crate::store::{self, json, list};
use crate::{Inbox, dead_letters};

/// What is due is looked for so often.
const TURN: Duration = Duration::from_secs(60);
/// So many entries go in one transaction, fewer where that takes long: nobody may wait for it longer than a moment.
const MOST: usize = 200;
const FEWEST: usize = 20;
/// A transaction that took longer than this was too large, one that took less than a quarter of it may be larger.
const MOMENT: Duration = Duration::from_millis(25);
/// Between two of them others have their turn.
const PAUSE: Duration = Duration::from_millis(20);

impl Inbox {
    /// Forgets what is too old, for as long as the process runs.
    pub(crate) fn start_retention(&self, supervisor: &Supervisor) {
        supervisor.every("inbox-retention", TURN, self, |inbox| async move {
            let before = inbox.0.clock.now().saturating_sub(inbox.0.keeps);
            let letters = forget_before(&inbox.0.records, dead_letters::SCOPE, before, MOST);
            if let Err(error) = inbox.forget_before(before).await.and(letters.await) {
                tracing::warn!(%error, "old notifications could not be removed yet");
            }
        });
    }

    /// Removes everything that was created before a time.
    pub async fn forget_before(&self, before: Millis) -> Result<Forgotten, Error> {
        let mut forgotten = Forgotten::default();
        let (mut size, mut from) = (MOST, 0);
        loop {
            let step = self.0.records.write(Due { from, before, size }, forget_some).await?;
            from = step.from;
            forgotten.entries += step.gone as u64;
            forgotten.steps += 1;
            forgotten.longest = forgotten.longest.max(step.held);
            if !step.more {
                break;
            }
            size = next_size(size, step.held);
            tokio::time::sleep(PAUSE).await;
        }
        loop {
            let step = self.0.records.write(Due { from: 0, before, size }, forget_notices).await?;
            forgotten.longest = forgotten.longest.max(step.held);
            if !step.more {
                return Ok(forgotten);
            }
            size = next_size(size, step.held);
            tokio::time::sleep(PAUSE).await;
        }
    }
}

fn next_size(size: usize, held: Duration) -> usize {
    let next = if held > MOMENT {
        size / 2
    } else if held < MOMENT / 4 {
        size * 2
    } else {
        size
    };
    next.clamp(FEWEST, MOST)
}

/// What was removed, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forgotten {
    pub entries: u64,
    pub steps: u64,
    /// The longest that a step kept others out of the rows that it had taken.
    pub longest: Duration,
}

/// What one transaction may remove.
struct Due {
    from: Millis,
    before: Millis,
    size: usize,
}

struct Step {
    gone: usize,
    more: bool,
    /// Where the next one goes on.
    from: Millis,
    held: Duration,
}

impl Step {
    const NONE: Self = Self { gone: 0, more: false, from: 0, held: Duration::ZERO };
}

/// An old entry: whose, which, and whether it still counts as unread.
struct Old {
    person: Id,
    seq: u64,
    counts: bool,
    created_at: Millis,
}

async fn old(due: &Due, tx: &mut Transaction<'_>) -> Result<Vec<Old>, Error> {
    let arguments = [("from", due.from.into()), ("before", due.before.into()), ("limit", due.size.into())];
    let rows = tx.rows(&store::OLD, &arguments).await?;
    let read = |row: &bongsu_sql::Row| {
        let counts = row.maybe_int(2)?.is_none() && row.maybe_int(3)?.is_none();
        Ok(Old { person: row.id(0)?, seq: row.count(1)?, counts, created_at: row.count(4)? })
    };
    rows.iter().map(read).collect()
}

async fn forget_some(due: &Due, tx: &mut Transaction<'_>) -> Result<Step, Error> {
    let found = old(due, tx).await?;
    let mut people: Vec<Id> = found.iter().map(|old| old.person.clone()).collect();
    people.sort_unstable();
    people.dedup();
    if people.is_empty() {
        return Ok(Step::NONE);
    }
    let held = tx.rows(&store::PEOPLE_HOLD_FREE, &[("people", list(&people).into())]).await?;
    let begun = Instant::now();
    // Who is busy has their turn later.
    let mut people = held.iter().map(|row| row.id(0)).collect::<Result<Vec<_>, _>>()?;
    people.sort_unstable();
    // Again, now that nobody else changes them: some may have been read meanwhile. Others may have become old.
    let mut gone = old(due, tx).await?;
    gone.retain(|old| people.binary_search(&old.person).is_ok());
    let entries: Vec<(&str, u64)> = gone.iter().map(|old| (old.person.as_str(), old.seq)).collect();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for old in gone.iter().filter(|old| old.counts) {
        *counts.entry(old.person.as_str()).or_default() += 1;
    }
    let counts: Vec<(&str, u64)> = counts.into_iter().collect();
    tx.run(&store::OLD_REMOVE, &[("entries", json(&entries)?.into())]).await?;
    if !counts.is_empty() {
        tx.run(&store::PEOPLE_FORGET, &[("counts", json(&counts)?.into())]).await?;
    }
    let left = found.iter().find(|old| people.binary_search(&old.person).is_err());
    let more = found.len() == due.size || left.is_some();
    let from = left.or(found.last()).map_or(due.from, |old| old.created_at);
    Ok(Step { gone: gone.len(), more, from, held: begun.elapsed() })
}

/// What nobody has an entry of any more.
async fn forget_notices(due: &Due, tx: &mut Transaction<'_>) -> Result<Step, Error> {
    let found = old_notices(due, tx).await?;
    if found.is_empty() {
        return Ok(Step::NONE);
    }
    let held = tx.rows(&store::OLD_NOTICES_HOLD, &[("ids", json(&found)?.into())]).await?;
    let begun = Instant::now();
    let held = held.iter().map(|row| row.int(0)).collect::<Result<Vec<_>, _>>()?;
    // Again, now that nobody tells of them: somebody may have done so just before.
    let mut gone = old_notices(due, tx).await?;
    gone.retain(|id| held.contains(id));
    tx.run(&store::OLD_NOTICES_REMOVE, &[("ids", json(&gone)?.into())]).await?;
    Ok(Step { gone: gone.len(), more: found.len() == due.size, from: 0, held: begun.elapsed() })
}

async fn old_notices(due: &Due, tx: &mut Transaction<'_>) -> Result<Vec<i64>, Error> {
    let arguments = [("before", due.before.into()), ("limit", due.size.into())];
    tx.rows(&store::OLD_NOTICES, &arguments).await?.iter().map(|row| row.int(0)).collect()
}
