//! Whose streams are open: for the limit of a process, and for reaching all streams of a person, or all.

use std::collections::HashMap;

use bongsu_kernel::{Id, shrink};

use crate::seat::Seat;
use crate::sync::{Arc, Mutex, lock};

/// Open streams by person.
#[derive(Default)]
pub(crate) struct People(Mutex<Open>);

#[derive(Default)]
struct Open {
    seats: HashMap<Id, Vec<Arc<Seat>>, foldhash::fast::RandomState>,
    count: usize,
}

impl People {
    /// Counts a stream in, unless as many as `most` are open. A limit of 0 is none. False when it is one too many.
    pub(crate) fn enter(&self, person: &Id, seat: Arc<Seat>, most: usize) -> bool {
        let mut open = lock(&self.0);
        let has_room = most == 0 || open.count < most;
        if has_room {
            open.seats.entry(person.clone()).or_default().push(seat);
            open.count += 1;
        }
        has_room
    }

    pub(crate) fn leave(&self, person: &Id, seat: &Arc<Seat>) {
        let mut open = lock(&self.0);
        let Some(seats) = open.seats.get_mut(person) else { return };
        let Some(at) = seats.iter().position(|other| Arc::ptr_eq(other, seat)) else { return };
        seats.swap_remove(at);
        if seats.is_empty() {
            open.seats.remove(person);
            shrink(&mut open.seats);
        }
        open.count -= 1;
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.0).count
    }

    pub(crate) fn of(&self, person: &Id) -> Vec<Arc<Seat>> {
        lock(&self.0).seats.get(person).cloned().unwrap_or_default()
    }

    pub(crate) fn everyone(&self) -> Vec<Arc<Seat>> {
        lock(&self.0).seats.values().flatten().cloned().collect()
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;
    use crate::seat::Terms;

    #[test]
    fn limit_holds_and_places_come_back() {
        let people = People::default();
        let seat = || {
            Arc::new(Seat::new(
                Terms { keepalive: 1, stall: 1, lifetime: None, issued_at: 0, expires_at: 1 },
                None,
                0,
            ))
        };
        let [anna, ben] = ["anna", "ben"].map(|name| Id::new(name).unwrap());
        let first = seat();
        assert!(people.enter(&anna, first.clone(), 3));
        assert!(people.enter(&anna, seat(), 3));
        assert!(people.enter(&ben, seat(), 3));
        assert!(!people.enter(&ben, seat(), 3));
        people.leave(&anna, &first);
        people.leave(&anna, &first);
        assert_eq!(people.count(), 2);
        assert!(people.enter(&anna, seat(), 3));
        assert!(people.enter(&anna, seat(), 0));
        assert_eq!((people.of(&anna).len(), people.everyone().len()), (3, 4));
    }
}
