//! An entry as personal streams send it, and as the bus carries it (version 1).
//!
//! The wording of a notice is the same for all recipients and is made once per language. The entry's number, the unread count
//! and its version belong to one recipient.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_kernel::text::Language;
use bongsu_kernel::{Id, Millis, StreamId};
use bongsu_live::{Data, Item, Localized, Message, MessageId, Place};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{EventId, Kind, Notice, Templates};

/// The name of the event on a personal stream, as the contract has it.
const EVENT: &str = "notification";

/// A notice on its way to people, with its wording.
pub(crate) struct WordedNotice {
    notice: Notice,
    at: Millis,
    templates: Templates,
    /// The members of the JSON object that are the same for everybody, in Korean and in English.
    members: [OnceLock<String>; 2],
}

/// An entry of one person.
pub(crate) struct Notification {
    pub(crate) seq: u64,
    /// The person's count, and the version that says which of two counts is newer. Hubs that do not send them yet are
    /// there while a fleet is being upgraded.
    pub(crate) unread: Option<u64>,
    pub(crate) version: Option<u64>,
    pub(crate) worded: Arc<WordedNotice>,
}

/// As the bus carries it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    v: u32,
    id: u64,
    event_id: String,
    r#type: String,
    ref_id: Option<Id>,
    actor_id: Option<Id>,
    payload: Box<RawValue>,
    at: Millis,
    unread: Option<u64>,
    version: Option<u64>,
}

/// The place of an entry among a person's.
pub(crate) fn place(seq: u64) -> Place {
    Place { id: StreamId::new(seq, 0), number: None }
}

impl WordedNotice {
    pub(crate) fn new(notice: &Notice, at: Millis, templates: &Templates) -> Arc<Self> {
        let members = [OnceLock::new(), OnceLock::new()];
        Arc::new(Self { notice: notice.clone(), at, templates: templates.clone(), members })
    }

    /// `"eventId":...,"createdAt":...`
    fn members(&self, language: Language) -> &str {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Members<'a> {
            event_id: &'a EventId,
            r#type: &'a str,
            message: String,
            ref_id: Option<&'a Id>,
            actor_id: Option<&'a Id>,
            payload: Option<&'a RawValue>,
            created_at: String,
        }
        let word = || {
            let notice = &self.notice;
            let members = Members {
                event_id: &notice.event,
                r#type: notice.kind.as_str(),
                message: self.templates.message(notice, language),
                ref_id: notice.reference.as_ref(),
                actor_id: notice.actor.as_ref(),
                payload: serde_json::from_str(notice.payload.as_str()).ok(),
                created_at: rfc3339(self.at),
            };
            // The structure has no fallible field.
            let object = serde_json::to_string(&members).unwrap_or_default();
            object.get(1..object.len() - 1).unwrap_or_default().to_owned()
        };
        let [korean, english] = &self.members;
        match language {
            Language::Korean => korean.get_or_init(word),
            Language::English => english.get_or_init(word),
        }
    }
}

impl Notification {
    pub(crate) fn into_item(self) -> Item {
        let (place, id) = (place(self.seq), MessageId::Number(self.seq.cast_signed()));
        Item::new(place, Message::own(EVENT, Some(id), Data::Localized(Arc::new(self))))
    }

    /// As the bus carries it; None for a payload that is no JSON.
    pub(crate) fn to_wire(&self) -> Option<String> {
        let WordedNotice { notice, at, .. } = &*self.worded;
        let wire = Wire {
            v: 1,
            id: self.seq,
            event_id: notice.event.to_string(),
            r#type: notice.kind.as_str().to_owned(),
            ref_id: notice.reference.clone(),
            actor_id: notice.actor.clone(),
            payload: RawValue::from_string(notice.payload.as_str().to_owned()).ok()?,
            at: *at,
            unread: self.unread,
            version: self.version,
        };
        serde_json::to_string(&wire).ok()
    }

    /// Reads the text that [`Notification::to_wire`] wrote; None when it is not readable.
    pub(crate) fn from_wire(text: &str, templates: &Templates) -> Option<Self> {
        let wire: Wire = serde_json::from_str(text).ok().filter(|wire: &Wire| wire.v == 1)?;
        let notice = Notice {
            event: EventId::new(&wire.event_id).ok()?,
            kind: Kind::new(&wire.r#type).ok()?,
            reference: wire.ref_id,
            actor: wire.actor_id,
            payload: Object::stored(wire.payload.get())?,
        };
        let worded = WordedNotice::new(&notice, wire.at, templates);
        Some(Self { seq: wire.id, unread: wire.unread, version: wire.version, worded })
    }
}

impl Localized for Notification {
    fn json(&self, language: Language) -> String {
        let id = serde_json::to_string(&Id::from(self.seq)).unwrap_or_default();
        let members = self.worded.members(language);
        let count = |name: &str, count: Option<u64>| {
            count.map(|count| format!(",\"{name}\":{count}")).unwrap_or_default()
        };
        let (unread, version) = (count("unread", self.unread), count("version", self.version));
        format!("{{\"id\":{id},{members}{unread}{version}}}")
    }

    fn size(&self) -> usize {
        // The notice is shared by all whom it was sent to, and counted for each of them.
        self.worded.notice.payload.as_str().len() + size_of::<WordedNotice>()
    }
}

impl fmt::Debug for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notification").field("seq", &self.seq).field("notice", &self.worded.notice).finish()
    }
}
