//! Connections of one process, counted in memory.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use bongsu_kernel::{Id, lock, shrink};

use super::{AcquireResult, ConnectionLimitError, ConnectionPermit, Connections, Limit, OnReplaced, Policy};
use crate::BoxFuture;

/// Connections in the memory of one process.
pub struct EmbeddedConnections {
    limit: Limit,
    open: Arc<Mutex<OpenConnections>>,
}

#[derive(Default)]
struct OpenConnections {
    /// The connections of each person with their numbers, the oldest first.
    by_person: HashMap<Id, VecDeque<(u64, OnReplaced)>, foldhash::fast::RandomState>,
    last_number: u64,
}

impl EmbeddedConnections {
    pub fn new(limit: Limit) -> Self {
        Self { limit, open: Arc::default() }
    }

    fn acquire_now(&self, person: &Id, on_replaced: OnReplaced) -> AcquireResult {
        let mut open = lock(&self.open);
        let count = open.by_person.get(person).map_or(0, VecDeque::len);
        if self.limit.policy == Policy::Refuse && count >= self.limit.max {
            return Err(ConnectionLimitError::Full);
        }
        open.last_number += 1;
        let number = open.last_number;
        let own = open.by_person.entry(person.clone()).or_default();
        own.push_back((number, on_replaced));
        let excess = own.len().saturating_sub(self.limit.max);
        let replaced: Vec<_> = own.drain(..excess).collect();
        drop(open);
        for (_, on_replaced) in replaced {
            on_replaced();
        }
        let (open, person) = (self.open.clone(), person.clone());
        Ok(ConnectionPermit(Box::new(move || release(&open, &person, number))))
    }
}

impl Connections for EmbeddedConnections {
    fn acquire(&self, person: &Id, on_replaced: OnReplaced) -> BoxFuture<'_, AcquireResult> {
        Box::pin(std::future::ready(self.acquire_now(person, on_replaced)))
    }
}

/// Removes a connection, unless it was replaced before.
fn release(open: &Mutex<OpenConnections>, person: &Id, number: u64) {
    let mut open = lock(open);
    if let Some(own) = open.by_person.get_mut(person) {
        own.retain(|(of, _)| *of != number);
        if own.is_empty() {
            open.by_person.remove(person);
            shrink(&mut open.by_person);
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
            let acquire = || connections.acquire_now(&anna, Box::new(|| {}));
            let permits = [(); 3].map(|()| acquire().unwrap());
            assert_eq!(acquire().is_err(), policy == Policy::Refuse);
            drop(permits);
            assert!(connections.open.lock().unwrap().by_person.is_empty());
        }
    }
}
