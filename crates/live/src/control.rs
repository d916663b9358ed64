//! Control records: log entries with instructions for the hub, which are sent to no client.
//!
//! The removal of a member is a record between the events of the log, so that it is certain which events the member may
//! still receive: those before the record.

use bongsu_kernel::json::Object;
use bongsu_kernel::{EventType, Id};
use serde::{Deserialize, Serialize};

use crate::log::LogEntry;

const REMOVED: &str = "system.removed";

/// The data of a removal record: whose access ends. None: everyone's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Removal {
    user_id: Option<Id>,
}

impl Removal {
    pub(crate) fn applies_to(&self, person: &Id) -> bool {
        self.user_id.as_ref().is_none_or(|user_id| user_id == person)
    }

    /// Whether the subject itself was deleted: later readers must not see the entries before the record.
    pub(crate) fn applies_to_everyone(&self) -> bool {
        self.user_id.is_none()
    }
}

/// The event type and the data of a record that removes a person, or everyone. None when the record cannot be encoded.
pub fn removal(person: Option<&Id>) -> Option<(EventType, Object)> {
    let data = serde_json::to_string(&Removal { user_id: person.cloned() }).ok()?;
    Some((EventType::new(REMOVED).ok()?, Object::from_stored(&data)?))
}

/// The removal that an entry records, if it is a removal record.
pub(crate) fn removal_of(entry: &LogEntry) -> Option<Removal> {
    if entry.event_type.as_str() != REMOVED {
        return None;
    }
    serde_json::from_str(entry.data.as_str()).ok()
}

/// Whether an entry is a control record.
pub fn is_control(entry: &LogEntry) -> bool {
    // Publishers cannot use reserved types, so an entry with such a type is a control record.
    entry.event_type.is_reserved()
}

#[cfg(test)]
mod tests {
    use bongsu_kernel::StreamId;

    use super::*;
    use crate::LogPosition;

    #[test]
    fn a_removal_record_is_read_back_and_other_entries_are_no_removals() {
        let (person, other) = (Id::new("7").unwrap(), Id::new("8").unwrap());
        let (event_type, data) = removal(Some(&person)).unwrap();
        let position = LogPosition { id: StreamId::new(1, 0), number: Some(1) };
        let mut entry = LogEntry { position, event_type, data, publisher: None, at: 1, trace: None };
        let record = removal_of(&entry).unwrap();
        assert!(record.applies_to(&person) && !record.applies_to(&other));
        assert!(is_control(&entry));
        entry.data = removal(None).unwrap().1;
        assert!(removal_of(&entry).unwrap().applies_to(&other), "a record without userId removes everyone");
        entry.event_type = EventType::new("comment.created").unwrap();
        assert_eq!((removal_of(&entry), is_control(&entry)), (None, false));
    }
}
