//! The path, query and body parameters of requests. Each declaration parses the request and documents it in OpenAPI.

use bongsu_http::request;
use bongsu_http::request::{FieldKind, event_data, flag, id, list};
use bongsu_kernel::Id;
use bongsu_kernel::json::Object;
use serde_json::json;

use crate::notify::MAX_TARGETS;
use crate::{EventId, NotificationType};

request! {
    pub(super) path EntryPath {
        /// The notification's `id`, or its `eventId`.
        id: EventId = entry_id().example("17"),
    }

    pub(super) query ListQuery {
        /// Return only unread notifications.
        unread: bool = flag().or(false),
    }

    /// A notification and its targets.
    pub(super) body NotifyBody {
        /// The id of the notification: repeated requests with the same id notify each person once.
        event_id as "eventId": EventId = id().then(|id| Ok(EventId::new(id.as_str())?)),
        kind as "type": NotificationType = notification_type().example("POST_LIKE"),
        ref_id as "refId": Option<Id> = id().optional(),
        actor_id as "actorId": Option<Id> = id().optional(),
        /// Values for the template that words the notification, such as `actorName`.
        payload: Option<Object> = event_data("").optional(),
        target_ids as "targetIds": Vec<Id> = list(id(), 1..=MAX_TARGETS),
    }
}

fn entry_id() -> FieldKind<EventId> {
    let pattern = format!("^[A-Za-z0-9._@:-]{{1,{}}}$", EventId::MAX_LEN);
    FieldKind::new(json!({"type": "string", "pattern": pattern}), |given| Ok(EventId::new(&given.text()?)?))
}

fn notification_type() -> FieldKind<NotificationType> {
    let kind = request::text(Id::MAX_LEN).then(|text| Ok(NotificationType::of_service(&text)?));
    kind.with("pattern", "^[A-Z][A-Z0-9_]{0,127}$")
}
