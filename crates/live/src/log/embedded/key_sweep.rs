//! Removes expired idempotency keys, and the oldest keys above the limit.

use std::time::Duration;

use bongsu_kernel::Clock;
use bongsu_kernel::task::Supervisor;
use bongsu_sql::rusqlite::Connection;
use bongsu_sql::{Error, Store};

use super::to_sql;

const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of expired keys that one sweep removes: few enough that the sweep takes a small part of the
/// writer's time.
const MAX_EXPIRED_BATCH: i64 = 2_000;
/// Maximum number of keys above the limit that one sweep removes.
const MAX_EXCESS_BATCH: i64 = 50 * MAX_EXPIRED_BATCH;

pub(super) fn start(store: Store, max_keys: u64, clock: Clock, supervisor: &Supervisor) {
    let state = (store, clock);
    supervisor.every("idempotency-sweep", SWEEP_INTERVAL, &state, move |(store, clock)| async move {
        let now = to_sql(clock.now());
        // The writer logs a failure; the next sweep tries again.
        let removed = store.write(move |connection| sweep(connection, max_keys, now)).await.unwrap_or(0);
        if removed > 0 {
            metrics::counter!("idempotency_keys_dropped_early_total").increment(removed as u64);
            tracing::warn!(
                removed,
                max_keys,
                "the number of idempotency keys exceeded the limit; removed the oldest before they expired"
            );
        }
    });
}

/// Removes keys. Returns how many were removed because of the limit.
fn sweep(connection: &Connection, max_keys: u64, now: i64) -> Result<usize, Error> {
    connection
        .prepare_cached(
            "DELETE FROM idempotency WHERE expires_at <= ?1
             AND id IN (SELECT id FROM idempotency ORDER BY id LIMIT ?2)",
        )?
        .execute([now, MAX_EXPIRED_BATCH])?;
    // The ids of rows ascend, so at most `max_keys` rows have an id above `max(id) - max_keys`.
    let removed = connection
        .prepare_cached(
            "DELETE FROM idempotency WHERE id IN (SELECT id FROM idempotency ORDER BY id LIMIT ?2)
             AND id <= (SELECT max(id) FROM idempotency) - ?1",
        )?
        .execute([to_sql(max_keys), MAX_EXCESS_BATCH])?;
    Ok(removed)
}
