//! Sweeps idempotency keys that ran out, and the oldest ones when there are too many.

use std::time::Duration;

use bongsu_kernel::Clock;
use bongsu_kernel::task::Supervisor;
use bongsu_sql::rusqlite::Connection;
use bongsu_sql::{Error, Store};

use super::signed;

const EVERY: Duration = Duration::from_secs(1);
/// So many are removed in one step: a small part of a group's time.
const STEP: i64 = 2_000;

pub(super) fn start(store: Store, most_keys: u64, clock: Clock, supervisor: &Supervisor) {
    supervisor.every("idempotency-sweep", EVERY, &(store, clock), move |(store, clock)| async move {
        let now = signed(clock.now());
        // The writer has told of a failure, and the next turn tries again.
        let early = store.write(move |connection| sweep(connection, most_keys, now)).await.unwrap_or(0);
        if early > 0 {
            metrics::counter!("idempotency_keys_dropped_early_total").increment(early as u64);
            tracing::warn!(early, most = most_keys, "idempotency keys were dropped before their 24 hours");
        }
    });
}

/// Gives how many keys were removed before their life was over.
fn sweep(connection: &Connection, most_keys: u64, now: i64) -> Result<usize, Error> {
    connection
        .prepare_cached(
            "DELETE FROM idempotency WHERE expires_at <= ?1
             AND id IN (SELECT id FROM idempotency ORDER BY id LIMIT ?2)",
        )?
        .execute([now, STEP])?;
    // Rows are removed from the front only, so the ids tell how many there are.
    let early = connection
        .prepare_cached(
            "DELETE FROM idempotency WHERE id IN (SELECT id FROM idempotency ORDER BY id LIMIT ?2)
             AND id <= (SELECT max(id) FROM idempotency) - ?1",
        )?
        .execute([signed(most_keys), STEP * 50])?;
    Ok(early)
}
