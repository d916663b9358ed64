//! Whose streams are open: for limits per person, and for reaching all streams at once.

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

/// Why somebody is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    Person,
    Hub,
}

impl People {
    /// Counts a stream in, unless that would be one too many. A limit of 0 is none.
    pub(crate) fn enter(
        &self,
        person: &Id,
        seat: Arc<Seat>,
        per_person: usize,
        most: usize,
    ) -> Result<(), Full> {
        let mut open = lock(&self.0);
        if most > 0 && open.count >= most {
            return Err(Full::Hub);
        }
        let seats = open.seats.entry(person.clone()).or_default();
        if per_person > 0 && seats.len() >= per_person {
            return Err(Full::Person);
        }
        seats.push(seat);
        open.count += 1;
        Ok(())
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
    fn limits_hold_and_places_come_back() {
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
        people.enter(&anna, first.clone(), 2, 3).unwrap();
        people.enter(&anna, seat(), 2, 3).unwrap();
        assert_eq!(people.enter(&anna, seat(), 2, 3), Err(Full::Person));
        people.enter(&ben, seat(), 2, 3).unwrap();
        assert_eq!(people.enter(&ben, seat(), 2, 3), Err(Full::Hub));
        people.leave(&anna, &first);
        people.leave(&anna, &first);
        assert_eq!(people.count(), 2);
        people.enter(&anna, seat(), 2, 3).unwrap();
        people.enter(&anna, seat(), 0, 0).unwrap();
        assert_eq!(people.everyone().len(), 4);
    }
}
