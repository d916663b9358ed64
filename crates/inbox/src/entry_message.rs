//! An inbox entry as a stream message, and in the wire format of the bus (version 1).
//!
//! The wording of a notification is the same for all recipients and is rendered once per language. The sequence number,
//! the unread count and its version belong to one recipient.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_kernel::text::Language;
use bongsu_kernel::{Id, Millis, StreamId};
use bongsu_live::{Data, Item, LocalizedMessage, LogPosition, Message, MessageId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{EventId, Notification, NotificationType, Templates};

/// The event name of entries on a personal stream.
const EVENT_NAME: &str = "notification";

/// A notification with its wording, shared by the messages to all its recipients.
pub(crate) struct LocalizedNotification {
    notification: Notification,
    created_at: Millis,
    templates: Templates,
    /// The members of the JSON object that are the same for all recipients, in Korean and in English.
    members: [OnceLock<String>; 2],
}

/// The message about one person's entry.
pub(crate) struct EntryMessage {
    pub(crate) seq: u64,
    /// The person's unread count, and its version, by which clients know the newer of two counts. Both are None in
    /// messages of older instances, during a rolling upgrade of the fleet.
    pub(crate) unread: Option<u64>,
    pub(crate) version: Option<u64>,
    pub(crate) localized: Arc<LocalizedNotification>,
}

/// An entry in the wire format of the bus.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireEntry {
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

/// The position of an entry on the personal stream.
pub(crate) fn log_position(seq: u64) -> LogPosition {
    LogPosition { id: StreamId::new(seq, 0), number: None }
}

impl LocalizedNotification {
    pub(crate) fn new(notification: &Notification, created_at: Millis, templates: &Templates) -> Arc<Self> {
        let (notification, templates) = (notification.clone(), templates.clone());
        Arc::new(Self { notification, created_at, templates, members: [OnceLock::new(), OnceLock::new()] })
    }

    /// The shared members without braces: `"eventId":...,"createdAt":...`.
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
        let render = || {
            let notification = &self.notification;
            let members = Members {
                event_id: &notification.event,
                r#type: notification.kind.as_str(),
                message: self.templates.render(notification, language),
                ref_id: notification.reference.as_ref(),
                actor_id: notification.actor.as_ref(),
                payload: serde_json::from_str(notification.payload.as_str()).ok(),
                created_at: rfc3339(self.created_at),
            };
            // Serialization of these fields cannot fail.
            let object = serde_json::to_string(&members).unwrap_or_default();
            object.get(1..object.len() - 1).unwrap_or_default().to_owned()
        };
        let [korean, english] = &self.members;
        match language {
            Language::Korean => korean.get_or_init(render),
            Language::English => english.get_or_init(render),
        }
    }
}

impl EntryMessage {
    pub(crate) fn into_item(self) -> Item {
        let (place, id) = (log_position(self.seq), MessageId::Number(self.seq.cast_signed()));
        Item::new(place, Message::built_in(EVENT_NAME, Some(id), Data::LocalizedMessage(Arc::new(self))))
    }

    /// The entry in the wire format of the bus; None when the payload is not valid JSON.
    pub(crate) fn to_wire(&self) -> Option<String> {
        let LocalizedNotification { notification, created_at, .. } = &*self.localized;
        let wire = WireEntry {
            v: 1,
            id: self.seq,
            event_id: notification.event.to_string(),
            r#type: notification.kind.as_str().to_owned(),
            ref_id: notification.reference.clone(),
            actor_id: notification.actor.clone(),
            payload: RawValue::from_string(notification.payload.as_str().to_owned()).ok()?,
            at: *created_at,
            unread: self.unread,
            version: self.version,
        };
        serde_json::to_string(&wire).ok()
    }

    /// Reads the text that [`EntryMessage::to_wire`] wrote; None when the text is invalid or of another version.
    pub(crate) fn from_wire(text: &str, templates: &Templates) -> Option<Self> {
        let wire: WireEntry = serde_json::from_str(text).ok().filter(|wire: &WireEntry| wire.v == 1)?;
        let notification = Notification {
            event: EventId::new(&wire.event_id).ok()?,
            kind: NotificationType::new(&wire.r#type).ok()?,
            reference: wire.ref_id,
            actor: wire.actor_id,
            payload: Object::from_stored(wire.payload.get())?,
        };
        let localized = LocalizedNotification::new(&notification, wire.at, templates);
        Some(Self { seq: wire.id, unread: wire.unread, version: wire.version, localized })
    }
}

impl LocalizedMessage for EntryMessage {
    fn json(&self, language: Language) -> String {
        let id = serde_json::to_string(&Id::from(self.seq)).unwrap_or_default();
        let members = self.localized.members(language);
        let count = |name: &str, count: Option<u64>| {
            count.map(|count| format!(",\"{name}\":{count}")).unwrap_or_default()
        };
        let (unread, version) = (count("unread", self.unread), count("version", self.version));
        format!("{{\"id\":{id},{members}{unread}{version}}}")
    }

    fn size(&self) -> usize {
        // The notification is shared by the messages to all recipients, but counted in full for each of them.
        self.localized.notification.payload.as_str().len() + size_of::<LocalizedNotification>()
    }
}

impl fmt::Debug for EntryMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryMessage")
            .field("seq", &self.seq)
            .field("notification", &self.localized.notification)
            .finish()
    }
}
