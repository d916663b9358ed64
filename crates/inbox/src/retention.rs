//! Forgetting: what is older than its time goes, read or not, a little at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Boxed, Error, Transaction};

use crate::Inbox;
use crate::store::{self, list};

/// What is due is looked for so often.
const TURN: Duration = Duration::from_secs(60);
/// So many entries go in one transaction: nobody waits for it longer than a moment.
const AT_ONCE: usize = 500;
/// Between two of them others have their turn.
const PAUSE: Duration = Duration::from_millis(20);

impl Inbox {
    /// Forgets what is too old, for as long as the process runs.
    pub(crate) fn start_retention(&self, supervisor: &Supervisor) {
        let inbox = self.clone();
        supervisor.every("inbox-retention", TURN, move || {
            let inbox = inbox.clone();
            async move {
                let before = inbox.clock().now().saturating_sub(inbox.keeps());
                if let Err(error) = inbox.forget_before(before).await {
                    tracing::warn!(%error, "old notifications could not be removed yet");
                }
            }
        });
    }

    /// Removes everything that was created before a time. Gives how many entries those were.
    pub async fn forget_before(&self, before: Millis) -> Result<u64, Error> {
        let mut gone = 0;
        loop {
            let some = self.records().write(before, forget_some).await?;
            gone += some as u64;
            if some < AT_ONCE {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        while self.records().write(before, forget_notices).await? == AT_ONCE {
            tokio::time::sleep(PAUSE).await;
        }
        Ok(gone)
    }
}

/// An old entry: whose, which, and whether it still counts as unread.
struct Old {
    person: Id,
    seq: u64,
    counts: bool,
}

async fn old(before: Millis, tx: &mut Transaction<'_>) -> Result<Vec<Old>, Error> {
    let arguments = [("before", before.into()), ("limit", AT_ONCE.into())];
    let rows = tx.rows(&store::OLD, &arguments).await?;
    let read = |row: &bongsu_sql::Row| {
        let counts = row.maybe_int(2)?.is_none() && row.maybe_int(3)?.is_none();
        Ok(Old { person: row.id(0)?, seq: row.count(1)?, counts })
    };
    rows.iter().map(read).collect()
}

fn forget_some<'t>(before: &'t Millis, tx: &'t mut Transaction<'_>) -> Boxed<'t, Result<usize, Error>> {
    Box::pin(async move {
        let mut people: Vec<Id> = old(*before, tx).await?.into_iter().map(|old| old.person).collect();
        people.sort_unstable();
        people.dedup();
        if people.is_empty() {
            return Ok(0);
        }
        tx.rows(&store::PEOPLE_HOLD, &[("people", list(&people.iter().collect::<Vec<_>>()).into())]).await?;
        // Again, now that nobody else changes them: some may have been read meanwhile. Others may have become old.
        let mut due = old(*before, tx).await?;
        due.retain(|old| people.binary_search(&old.person).is_ok());
        let entries: Vec<(&str, u64)> = due.iter().map(|old| (old.person.as_str(), old.seq)).collect();
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for old in due.iter().filter(|old| old.counts) {
            *counts.entry(old.person.as_str()).or_default() += 1;
        }
        let counts: Vec<(&str, u64)> = counts.into_iter().collect();
        let written = |pairs: &[(&str, u64)]| {
            serde_json::to_string(pairs).map_err(|error| Error::Failed(error.to_string()))
        };
        tx.run(&store::OLD_REMOVE, &[("entries", written(&entries)?.into())]).await?;
        if !counts.is_empty() {
            tx.run(&store::PEOPLE_FORGET, &[("counts", written(&counts)?.into())]).await?;
        }
        Ok(due.len())
    })
}

/// What nobody has an entry of any more.
fn forget_notices<'t>(before: &'t Millis, tx: &'t mut Transaction<'_>) -> Boxed<'t, Result<usize, Error>> {
    Box::pin(async move {
        let found = old_notices(*before, tx).await?;
        if found.is_empty() {
            return Ok(0);
        }
        let written =
            |ids: &[i64]| serde_json::to_string(ids).map_err(|error| Error::Failed(error.to_string()));
        tx.rows(&store::OLD_NOTICES_HOLD, &[("ids", written(&found)?.into())]).await?;
        // Again, now that nobody tells of them: somebody may have done so just before.
        let mut due = old_notices(*before, tx).await?;
        due.retain(|id| found.contains(id));
        tx.run(&store::OLD_NOTICES_REMOVE, &[("ids", written(&due)?.into())]).await?;
        Ok(due.len())
    })
}

async fn old_notices(before: Millis, tx: &mut Transaction<'_>) -> Result<Vec<i64>, Error> {
    let arguments = [("before", before.into()), ("limit", AT_ONCE.into())];
    tx.rows(&store::OLD_NOTICES, &arguments).await?.iter().map(|row| row.int(0)).collect()
}
