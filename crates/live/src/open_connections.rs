//! The open connections of this instance, counted for its connection limit and found by person.

use std::collections::HashMap;

use bongsu_kernel::{Id, shrink};

use crate::connection_state::ConnectionState;
use crate::sync::{Arc, Mutex, lock};

/// Open connections by person.
#[derive(Default)]
pub(crate) struct OpenConnections(Mutex<ConnectionTable>);

#[derive(Default)]
struct ConnectionTable {
    by_person: HashMap<Id, Vec<Arc<ConnectionState>>, foldhash::fast::RandomState>,
    count: usize,
}

impl OpenConnections {
    /// Adds a connection and returns true, unless `limit` connections are open already. A limit of 0 means no limit.
    pub(crate) fn try_add(&self, person: &Id, connection: Arc<ConnectionState>, limit: usize) -> bool {
        let mut table = lock(&self.0);
        let has_room = limit == 0 || table.count < limit;
        if has_room {
            table.by_person.entry(person.clone()).or_default().push(connection);
            table.count += 1;
        }
        has_room
    }

    pub(crate) fn remove(&self, person: &Id, connection: &Arc<ConnectionState>) {
        let mut table = lock(&self.0);
        let Some(connections) = table.by_person.get_mut(person) else { return };
        let Some(at) = connections.iter().position(|other| Arc::ptr_eq(other, connection)) else { return };
        connections.swap_remove(at);
        if connections.is_empty() {
            table.by_person.remove(person);
            shrink(&mut table.by_person);
        }
        table.count -= 1;
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.0).count
    }

    pub(crate) fn of_person(&self, person: &Id) -> Vec<Arc<ConnectionState>> {
        lock(&self.0).by_person.get(person).cloned().unwrap_or_default()
    }

    pub(crate) fn all(&self) -> Vec<Arc<ConnectionState>> {
        lock(&self.0).by_person.values().flatten().cloned().collect()
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::connection_state::Deadlines;

    #[test]
    fn the_limit_is_enforced_and_a_removed_connection_no_longer_counts() {
        let connections = OpenConnections::default();
        let connection = || {
            Arc::new(ConnectionState::new(
                Deadlines {
                    keepalive_interval: 1,
                    stall_timeout: 1,
                    lifetime_ends_at: None,
                    issued_at: 0,
                    expires_at: 1,
                },
                None,
                0,
            ))
        };
        let [anna, ben] = ["anna", "ben"].map(|name| Id::new(name).unwrap());
        let first = connection();
        assert!(connections.try_add(&anna, first.clone(), 3));
        assert!(connections.try_add(&anna, connection(), 3));
        assert!(connections.try_add(&ben, connection(), 3));
        assert!(!connections.try_add(&ben, connection(), 3));
        connections.remove(&anna, &first);
        connections.remove(&anna, &first);
        assert_eq!(connections.count(), 2);
        assert!(connections.try_add(&anna, connection(), 3));
        assert!(connections.try_add(&anna, connection(), 0));
        assert_eq!((connections.of_person(&anna).len(), connections.all().len()), (3, 4));
    }
}
