//! One timer wheel per shard, which checks the deadlines of the shard's connections with one clock.

use bongsu_kernel::Millis;

use crate::connection_state::{ConnectionState, Tick};
use crate::sync::Arc;

/// Resolution of the wheel, in milliseconds.
pub(crate) const STEP_MS: Tick = 100;
const SLOT_COUNT: usize = 256;

pub(crate) struct Wheel {
    slots: Vec<Vec<Arc<ConnectionState>>>,
    /// The last step whose slot was processed, counted from the start of the hub.
    steps_done: u64,
    connection_count: usize,
}

impl Wheel {
    pub(crate) fn new(now: Tick) -> Self {
        let slots = (0..SLOT_COUNT).map(|_| Vec::new()).collect();
        Self { slots, steps_done: now / STEP_MS, connection_count: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.connection_count == 0
    }

    /// Schedules a check of a connection at `due`. A connection that is due after the last slot is checked at
    /// the last slot, and rescheduled then.
    pub(crate) fn add(&mut self, connection: Arc<ConnectionState>, due: Tick) {
        let step = due.div_ceil(STEP_MS).clamp(self.steps_done + 1, self.steps_done + SLOT_COUNT as u64 - 1);
        self.slots[Self::slot(step)].push(connection);
        self.connection_count += 1;
    }

    /// Checks all connections that are due.
    pub(crate) fn advance(&mut self, now: Tick, wall: Millis) {
        if self.is_empty() {
            self.steps_done = self.steps_done.max(now / STEP_MS);
            return;
        }
        while self.steps_done < now / STEP_MS {
            self.steps_done += 1;
            let due = std::mem::take(&mut self.slots[Self::slot(self.steps_done)]);
            self.connection_count -= due.len();
            for connection in due {
                if let Some(next) = connection.check_deadlines(now, wall) {
                    self.add(connection, next);
                }
            }
        }
    }

    fn slot(step: u64) -> usize {
        usize::try_from(step % SLOT_COUNT as u64).unwrap_or_default()
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::connection_state::Deadlines;

    #[test]
    fn every_connection_is_checked_in_time_however_distant_its_deadline() {
        let mut wheel = Wheel::new(0);
        let ends = [150, 20_000, 100_000, 1_000_000];
        let connections = ends.map(|at| {
            let far = Tick::MAX / 2;
            let deadlines = Deadlines {
                keepalive_interval: far,
                stall_timeout: far,
                lifetime_ends_at: Some(at),
                issued_at: 0,
                expires_at: far,
            };
            Arc::new(ConnectionState::new(deadlines, None, 0))
        });
        for (connection, at) in connections.iter().zip(ends) {
            wheel.add(connection.clone(), at);
        }
        let mut now = 0;
        while now < 1_100_000 {
            now += 70;
            wheel.advance(now, 0);
            for (connection, at) in connections.iter().zip(ends) {
                let ended = connection.pending_close().is_some();
                assert!(!(ended && now < at), "closed too early: due at {at}, closed by {now}");
                assert!(ended || now < at + 2 * STEP_MS, "closed too late: due at {at}, still open at {now}");
            }
        }
        for connection in &connections {
            connection.mark_disconnected();
        }
        wheel.advance(now + 10_000_000, 0);
        assert!(wheel.is_empty(), "disconnected connections leave the wheel");
    }
}
