//! Sweeps idempotency keys that ran out, and the oldest ones when there are too many.

use std::time::Duration;

use bongsu_kernel::Clock;
use bongsu_kernel::task::Supervisor;
use bongsu_sql::rusqlite::Connection;
use bongsu_sql::{Error, Job, Writer};

use super::{Options, signed};

const EVERY: Duration = Duration::from_secs(1);
/// So many are removed in one step: a small part of a group's time.
const STEP: i64 = 2_000;

pub(super) fn start(writer: Writer, options: Options, clock: Clock, supervisor: &Supervisor) {
    supervisor.every("idempotency-sweep", EVERY, &(writer, clock), move |(writer, clock)| async move {
        // A writer that takes no more jobs is about to end with everything else.
        let _ = writer.submit(Box::new(Sweep { options, clock })).await;
    });
}

struct Sweep {
    options: Options,
    clock: Clock,
}

impl Job for Sweep {
    fn apply(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let now = signed(self.clock.now());
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
            .execute([signed(self.options.most_keys), STEP * 50])?;
        if early > 0 {
            metrics::counter!("idempotency_keys_dropped_early_total").increment(early as u64);
            tracing::warn!(
                early,
                most = self.options.most_keys,
                "idempotency keys were dropped before their 24 hours"
            );
        }
        Ok(())
    }

    fn committed(self: Box<Self>) {}

    fn failed(self: Box<Self>, _: &Error) {
        // The writer has told of it, and the next turn tries again.
    }
}
