//! Records in a subject's own order that are no events: they tell the hub something, and nobody else.
//!
//! A person who may no longer read is written down between the events, so that there is no question which of them
//! still were for that person.

use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id};
use serde::{Deserialize, Serialize};

use crate::log::Entry;

const REMOVED: &str = "system.removed";

/// Whose right ends; nothing: everybody's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Removed {
    user_id: Option<Id>,
}

impl Removed {
    pub(crate) fn concerns(&self, person: &Id) -> bool {
        self.user_id.as_ref().is_none_or(|removed| removed == person)
    }

    /// The subject itself has ended: whoever reads it later has nothing to do with those who did before.
    pub(crate) fn concerns_everybody(&self) -> bool {
        self.user_id.is_none()
    }
}

/// The record that ends a person's right, or everybody's: type and data of an append. Nothing when it cannot be
/// written.
pub fn removal(person: Option<&Id>) -> Option<(EventType, Object)> {
    let data = serde_json::to_string(&Removed { user_id: person.cloned() }).ok()?;
    Some((EventType::new(REMOVED).ok()?, Object::stored(&data)?))
}

/// Whose right an entry ends, if that is what it is.
pub(crate) fn removed(entry: &Entry) -> Option<Removed> {
    if entry.event_type.as_str() != REMOVED {
        return None;
    }
    serde_json::from_str(entry.data.as_str()).ok()
}

/// Whether an entry is for the hub alone.
pub fn is_control(entry: &Entry) -> bool {
    // Nobody can publish a reserved type: what has one in a log is a record.
    entry.event_type.is_reserved()
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::StreamId;

    use super::*;
    use crate::Place;

    #[test]
    fn a_removal_is_read_back_and_nothing_else_is_one() {
        let (person, other) = (Id::new("7").unwrap(), Id::new("8").unwrap());
        let (event_type, data) = removal(Some(&person)).unwrap();
        let place = Place { id: StreamId::new(1, 0), number: Some(1) };
        let mut entry = Entry { place, event_type, data, publisher: None, at: 1, trace: None };
        let record = removed(&entry).unwrap();
        assert!(record.concerns(&person) && !record.concerns(&other));
        assert!(is_control(&entry));
        entry.data = removal(None).unwrap().1;
        assert!(removed(&entry).unwrap().concerns(&other), "everybody's");
        entry.event_type = EventType::new("comment.created").unwrap();
        assert_eq!((removed(&entry), is_control(&entry)), (None, false));
    }
}
