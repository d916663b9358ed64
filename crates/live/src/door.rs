//! What a hub asks before it lets somebody in or tells somebody something: two ports that the wiring fills.
//!
//! Where no limit per person is set there are no places to ask for; a hub alone carries out every order at once.

use std::any::Any;

use bongsu_kernel::{Close, Id, Millis};

use crate::hub::{Hub, OpenError};
use crate::log::{Boxed, LogError};

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
        let now = self.0.tick();
        for seat in self.0.people.of(person) {
            seat.end(Close::Lifetime, now);
        }
    }

    /// Ends what a person opened with a token that was issued before this time.
    pub fn revoke(&self, person: &Id, issued_before: Millis) {
        let now = self.0.tick();
        for seat in self.0.people.of(person) {
            if seat.terms().issued_at < issued_before {
                seat.end(Close::TokenExpired, now);
            }
        }
    }

    /// Asks everybody to come back, and so to be looked at again.
    pub fn check_everybody(&self) {
        let now = self.0.tick();
        for seat in self.0.people.everyone() {
            seat.end(Close::Lifetime, now);
        }
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
