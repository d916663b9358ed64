//! One timer wheel per shard: looks after every stream's keepalive, stall and end with one clock.

use bongsu_kernel::Millis;

use crate::seat::{Seat, Tick};
use crate::sync::Arc;

/// How fine the wheel is.
pub(crate) const STEP: Tick = 100;
const SLOTS: usize = 256;

pub(crate) struct Wheel {
    slots: Vec<Vec<Arc<Seat>>>,
    /// Steps since the hub started, up to which everything was looked at.
    done: u64,
    seats: usize,
}

impl Wheel {
    pub(crate) fn new(now: Tick) -> Self {
        Self { slots: (0..SLOTS).map(|_| Vec::new()).collect(), done: now / STEP, seats: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.seats == 0
    }

    /// Looks at a seat when `due` comes. Later than the wheel reaches is looked at on the way, harmlessly.
    pub(crate) fn add(&mut self, seat: Arc<Seat>, due: Tick) {
        let step = due.div_ceil(STEP).clamp(self.done + 1, self.done + SLOTS as u64 - 1);
        self.slots[Self::slot(step)].push(seat);
        self.seats += 1;
    }

    /// Looks at all that are due.
    pub(crate) fn turn(&mut self, now: Tick, wall: Millis) {
        if self.is_empty() {
            self.done = self.done.max(now / STEP);
            return;
        }
        while self.done < now / STEP {
            self.done += 1;
            let due = std::mem::take(&mut self.slots[Self::slot(self.done)]);
            self.seats -= due.len();
            for seat in due {
                if let Some(next) = seat.check(now, wall) {
                    self.add(seat, next);
                }
            }
        }
    }

    fn slot(step: u64) -> usize {
        usize::try_from(step % SLOTS as u64).unwrap_or_default()
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::seat::Terms;

    #[test]
    fn every_seat_is_looked_at_in_time_however_far_away_its_end_is() {
        let mut wheel = Wheel::new(0);
        let ends = [150, 20_000, 100_000, 1_000_000];
        let seats = ends.map(|at| {
            let far = Tick::MAX / 2;
            let terms =
                Terms { keepalive: far, stall: far, lifetime: Some(at), issued_at: 0, expires_at: far };
            Arc::new(Seat::new(terms, None, 0))
        });
        for (seat, at) in seats.iter().zip(ends) {
            wheel.add(seat.clone(), at);
        }
        let mut now = 0;
        while now < 1_100_000 {
            now += 70;
            wheel.turn(now, 0);
            for (seat, at) in seats.iter().zip(ends) {
                let ended = seat.closing().is_some();
                assert!(!(ended && now < at), "too early: {at} at {now}");
                assert!(ended || now < at + 2 * STEP, "too late: {at} at {now}");
            }
        }
        for seat in &seats {
            seat.leave();
        }
        wheel.turn(now + 10_000_000, 0);
        assert!(wheel.is_empty(), "those that left are let go");
    }
}
