//! Which connections a person has: a port, its adapter for one process, and the one for a fleet ([`redis`]).

pub mod redis;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bongsu_kernel::{Close, Id};
use bongsu_live::Ender;

use crate::Options;

/// A future that a trait object can give.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, Away>> + Send + 'a>>;

/// The engine that counts them is away.
#[derive(Clone, Debug)]
pub struct Away(pub String);

/// The connections of every person, over all hubs.
///
/// - **The newest stay.** One more than the limit is let in, and the oldest is ended (3500), wherever it is.
/// - **Nobody else.** A connection ends that way only when as many newer ones are there as may stay. What the engine has
///   forgotten, or another hub has given up, is counted in again as old as it was.
/// - **Only the living count.** Those of a hub that is gone push nobody out, nor does one that gave up while it came in.
/// - **Errors.** While the engine is away nobody new is let in, and who is connected stays.
pub trait Connections: Send + Sync {
    /// Counts one in. It is counted out when what comes back is dropped.
    fn enter(&self, person: &Id, ender: Ender) -> Boxed<'_, Place>;
}

/// A place among a person's connections.
pub struct Place(#[expect(dead_code, reason = "what it does is to be dropped")] Box<dyn Send>);

impl Place {
    pub fn held_by(guard: impl Send + 'static) -> Self {
        Self(Box::new(guard))
    }
}

type Open = Mutex<HashMap<Id, VecDeque<(u64, Ender)>>>;

/// The connections of one process.
pub struct EmbeddedConnections {
    most: usize,
    open: Arc<Open>,
    next: Mutex<u64>,
}

impl EmbeddedConnections {
    pub fn new(options: &Options) -> Self {
        Self { most: options.most, open: Arc::default(), next: Mutex::default() }
    }
}

struct Entered {
    open: Arc<Open>,
    person: Id,
    number: u64,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = open.get_mut(&self.person) {
            own.retain(|(number, _)| *number != self.number);
            if own.is_empty() {
                open.remove(&self.person);
            }
        }
    }
}

impl Connections for EmbeddedConnections {
    fn enter(&self, person: &Id, ender: Ender) -> Boxed<'_, Place> {
        let number = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            *next += 1;
            *next
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let own = open.entry(person.clone()).or_default();
        own.push_back((number, ender));
        while own.len() > self.most {
            if let Some((_, oldest)) = own.pop_front() {
                oldest.end(Close::Replaced);
            }
        }
        drop(open);
        let entered = Entered { open: self.open.clone(), person: person.clone(), number };
        Box::pin(std::future::ready(Ok(Place::held_by(entered))))
    }
}
