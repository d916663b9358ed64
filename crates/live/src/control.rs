//! Records in a subject's own order that are no events: they tell the hub something, and nobody else.
//!
//! A person who may no longer read is written down between the events, so that there is no question which of them
//! still were for that person.

use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id};
use serde::{Deserialize, Serialize};

use crate::log::Entry;

const REMOVED: &str = "system.removed";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Removed {
    user_id: Id,
}

/// The record that ends a person's right: type and data of an append. Nothing when it cannot be written.
pub fn removal(person: &Id) -> Option<(EventType, Object)> {
    let data = serde_json::to_string(&Removed { user_id: person.clone() }).ok()?;
    Some((EventType::new(REMOVED).ok()?, Object::stored(&data)?))
}

/// Whose right an entry ends, if that is what it is.
pub(crate) fn removed(entry: &Entry) -> Option<Id> {
    if entry.event_type.as_str() != REMOVED {
        return None;
    }
    serde_json::from_str::<Removed>(entry.data.as_str()).ok().map(|removed| removed.user_id)
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
        let person = Id::new("7").unwrap();
        let (event_type, data) = removal(&person).unwrap();
        let place = Place { id: StreamId::new(1, 0), number: Some(1) };
        let mut entry = Entry { place, event_type, data, publisher: None, at: 1 };
        assert_eq!(removed(&entry), Some(person));
        assert!(is_control(&entry));
        entry.event_type = EventType::new("comment.created").unwrap();
        assert_eq!((removed(&entry), is_control(&entry)), (None, false));
    }
}
