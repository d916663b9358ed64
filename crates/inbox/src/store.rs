//! The tables of the inbox and every query on them.

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
    PEOPLE_HOLD = query!("people_hold", mysql);
    PEOPLE_HOLD_FREE = query!("people_hold_free", mysql);
    PEOPLE_COUNT = query!("people_count", mysql);
    PEOPLE_FORGET = query!("people_forget", mysql);
    TOLD_ALREADY = query!("told_already", mysql);
    ENTRIES_ADD = query!("entries_add", mysql);
    ENTRIES_READ = query!("entries_read", mysql);
    PERSON = query!("person");
    PERSON_HOLD = query!("person_hold");
    PERSON_CHANGE = query!("person_change");
    LIST = query!("list");
    LIST_UNREAD = query!("list_unread");
    AFTER = query!("after");
    FIRST_AFTER = query!("first_after");
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
    NOTICE_SPREAD = query!("notice_spread");
    NOTICE_ENTRY = query!("notice_entry");
    OLD = query!("old");
    OLD_REMOVE = query!("old_remove", mysql);
    OLD_NOTICES = query!("old_notices");
    OLD_NOTICES_HOLD = query!("old_notices_hold", mysql);
    OLD_NOTICES_REMOVE = query!("old_notices_remove", mysql);
    DEAD_LETTER = query!("dead_letter");
    DEAD_LETTERS = query!("dead_letters");
    DEAD_LETTER_ADD = query!("dead_letter_add");
    DEAD_LETTER_COUNT = query!("dead_letter_count");
    DEAD_LETTER_FAILED = query!("dead_letter_failed");
    DEAD_LETTER_REMOVE = query!("dead_letter_remove");
}

/// A list, or something else, as JSON.
pub(crate) fn json(value: &(impl Serialize + ?Sized)) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Failed(error.to_string()))
}

/// People as a JSON list, always as text: an id that looks like a number is none.
pub(crate) fn list<'a>(people: impl IntoIterator<Item = &'a Id>) -> String {
    // Ids have no character that JSON would have to escape.
    let people: Vec<String> = people.into_iter().map(|person| format!("\"{person}\"")).collect();
    format!("[{}]", people.join(","))
}
