//! Connections of one process, counted in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bongsu_kernel::{Id, shrink};

use super::{Connections, Limit, OnReplaced, Place, Policy, Refused};
use crate::Boxed;

/// See the module.
pub struct EmbeddedConnections {
    limit: Limit,
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    /// The oldest first, each with its number.
    people: HashMap<Id, VecDeque<(u64, OnReplaced)>, foldhash::fast::RandomState>,
    last_number: u64,
}

impl EmbeddedConnections {
    pub fn new(limit: Limit) -> Self {
        Self { limit, open: Arc::default() }
    }

    fn enter_now(&self, person: &Id, on_replaced: OnReplaced) -> Result<Place, Refused> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let held = open.people.get(person).map_or(0, VecDeque::len);
        if self.limit.policy == Policy::Refuse && held >= self.limit.max {
            return Err(Refused::Full);
        }
        open.last_number += 1;
        let number = open.last_number;
        let own = open.people.entry(person.clone()).or_default();
        own.push_back((number, on_replaced));
        let replaced = own.len().saturating_sub(self.limit.max);
        let replaced: Vec<_> = own.drain(..replaced).collect();
        drop(open);
        for (_, end) in replaced {
            end();
        }
        let (open, person) = (self.open.clone(), person.clone());
        Ok(Place(Box::new(move || leave(&open, &person, number))))
    }
}

impl Connections for EmbeddedConnections {
    fn enter(&self, person: &Id, on_replaced: OnReplaced) -> Boxed<'_, Result<Place, Refused>> {
        Box::pin(std::future::ready(self.enter_now(person, on_replaced)))
    }
}

/// Counts a connection out.
fn leave(open: &Mutex<Open>, person: &Id, number: u64) {
    let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(own) = open.people.get_mut(person) {
        own.retain(|(of, _)| *of != number);
        if own.is_empty() {
            open.people.remove(person);
            shrink(&mut open.people);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_without_connections_leaves_nothing_behind() {
        for policy in [Policy::Refuse, Policy::Replace] {
            let limit = Limit { name: "test", max: 3, policy, lifetime: None };
            let (connections, anna) = (EmbeddedConnections::new(limit), Id::new("anna").unwrap());
            let enter = || connections.enter_now(&anna, Box::new(|| {}));
            let places = [(); 3].map(|()| enter().unwrap());
            assert_eq!(enter().is_err(), policy == Policy::Refuse);
            drop(places);
            assert!(connections.open.lock().unwrap().people.is_empty());
        }
    }
}
