//! What a hub asks before it lets somebody in or tells somebody something: two ports that the wiring fills.
//!
//! Where no limit per person is set there are no places to ask for; a hub alone carries out every order at once.

use std::any::Any;

use bongsu_kernel::{Close, Id, Millis};

use crate::hub::{Hub, OpenError};
use crate::log::{Boxed, LogError};
use crate::seat::Seat;
use crate::sync::Arc;

/// The limit of a person's streams, over the whole fleet.
pub trait Places: Send + Sync {
    /// Takes one; it is given back when what comes back is dropped.
    fn take<'a>(&'a self, person: &'a Id) -> Boxed<'a, Result<Box<dyn Any + Send>, OpenError>>;
}

/// Orders to send people away. Nothing is delivered while some may be unknown here.
pub trait Gate: Send + Sync {
    /// Whether every order until now has been carried out here. Asked for every event, so it costs next to nothing.
    fn is_current(&self) -> bool;

    /// Returns when every order that was given before this was called has been carried out here.
    fn catch_up(&self) -> Boxed<'_, Result<(), LogError>>;
}

impl Hub {
    /// Ends all that a person has open; they may come back.
    pub fn disconnect(&self, person: &Id) {
        self.end_all(&self.0.people.of(person), Close::Lifetime);
    }

    /// Ends what a person opened with a token that was issued before this time.
    pub fn revoke(&self, person: &Id, issued_before: Millis) {
        let mut seats = self.0.people.of(person);
        seats.retain(|seat| seat.terms().issued_at < issued_before);
        self.end_all(&seats, Close::TokenExpired);
    }

    /// Asks everybody to come back, and so to be looked at again.
    pub fn check_everybody(&self) {
        self.end_all(&self.0.people.everyone(), Close::Lifetime);
    }

    pub(crate) fn end_all(&self, seats: &[Arc<Seat>], close: Close) {
        let now = self.0.tick();
        seats.iter().for_each(|seat| seat.end(close, now));
    }

    /// Whether what the bus brings may be passed on right now.
    pub(crate) fn may_pass(&self) -> bool {
        self.0.gate.get().is_none_or(|gate| gate.is_current())
    }

    /// Before what was read from the log is passed on: it may be younger than an order that nobody here has heard of.
    pub(crate) async fn pass_gate(&self) -> Result<(), LogError> {
        match self.0.gate.get() {
            Some(gate) => gate.catch_up().await,
            None => Ok(()),
        }
    }
}
