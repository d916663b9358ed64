//! The tables of the inbox, every query on them, and the JSON form of list arguments.

use bongsu_kernel::Id;
use bongsu_sql::{Error, Migration, migration, queries, query};
use serde::Serialize;

pub const MIGRATIONS: &[Migration] = &[
    migration!("inbox", 1, "0001_inbox"),
    migration!("inbox", 2, "0002_event_names"),
    migration!("inbox", 3, "0003_dead_letters"),
];

queries! {
    NOTICE_ADD = query!("notice_add", mysql);
    NOTICE_FIND = query!("notice_find");
    PEOPLE = query!("people", mysql);
    PEOPLE_ADD = query!("people_add", all);
    PEOPLE_LOCK = query!("people_lock", mysql);
    PEOPLE_LOCK_FREE = query!("people_lock_free", mysql);
    PEOPLE_COUNT_ENTRY = query!("people_count_entry", mysql);
    PEOPLE_SUBTRACT_REMOVED = query!("people_subtract_removed", mysql);
    ALREADY_NOTIFIED = query!("already_notified", mysql);
    ENTRIES_ADD = query!("entries_add", mysql);
    ENTRIES_READ = query!("entries_read", mysql);
    PERSON = query!("person");
    PERSON_LOCK = query!("person_lock");
    PERSON_CHANGE = query!("person_change");
    LIST = query!("list");
    LIST_UNREAD = query!("list_unread");
    ENTRIES_AFTER = query!("entries_after");
    FIRST_SEQ_AFTER = query!("first_seq_after");
    NEWEST_UNREAD = query!("newest_unread");
    ENTRY = query!("entry");
    ENTRY_OF_EVENT = query!("entry_of_event");
    ENTRY_READ = query!("entry_read");
    ENTRY_DELETE = query!("entry_delete");
    UNREAD_AMONG = query!("unread_among");
    ENTRIES_MARK = query!("entries_mark", mysql);
    UNREAD_UP_TO = query!("unread_up_to");
    SETTINGS = query!("settings");
    SETTINGS_OF = query!("settings_of", mysql);
    SETTINGS_PUT = query!("settings_put", mysql);
    NOTICE = query!("notice");
    NOTICE_COUNTS = query!("notice_counts");
    NOTICE_ENTRY = query!("notice_entry");
    EXPIRED_ENTRIES = query!("expired_entries");
    EXPIRED_ENTRIES_REMOVE = query!("expired_entries_remove", mysql);
    EXPIRED_NOTICES = query!("expired_notices");
    EXPIRED_NOTICES_LOCK = query!("expired_notices_lock", mysql);
    EXPIRED_NOTICES_REMOVE = query!("expired_notices_remove", mysql);
    DEAD_LETTER = query!("dead_letter");
    DEAD_LETTERS = query!("dead_letters");
    DEAD_LETTER_ADD = query!("dead_letter_add");
    DEAD_LETTER_COUNT = query!("dead_letter_count");
    DEAD_LETTER_FAILED = query!("dead_letter_failed");
    DEAD_LETTER_REMOVE = query!("dead_letter_remove");
}

/// A value as JSON text, for a query argument.
pub(crate) fn json(value: &(impl Serialize + ?Sized)) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Failed(error.to_string()))
}

/// Person ids as a JSON array of strings. An id that consists of digits is a string, too.
pub(crate) fn list<'a>(people: impl IntoIterator<Item = &'a Id>) -> String {
    // Ids contain no character that JSON has to escape.
    let people: Vec<String> = people.into_iter().map(|person| format!("\"{person}\"")).collect();
    format!("[{}]", people.join(","))
}
