//! Requests, each declared once.

use bongsu_http::request;
use bongsu_http::request::{Kind, event_data, flag, id, list};
use bongsu_kernel::Id;
use bongsu_kernel::json::Object;
use serde_json::json;

use crate::notify::MOST_TARGETS;
use crate::{EventId, Kind as NoticeKind};

request! {
    pub(super) path EntryPath {
        /// The notification's `id`, or its `eventId`.
        id: EventId = entry_id().example("17"),
    }

    pub(super) query ListQuery {
        /// Only those that are unread.
        unread: bool = flag().or(false),
    }

    /// Something that people are told of.
    pub(super) body NotifyBody {
        /// The same id is the same notice: nobody gets it twice.
        event_id as "eventId": EventId = id().then(|id| Ok(EventId::new(id.as_str())?)),
        kind as "type": NoticeKind = notice_kind().example("POST_LIKE"),
        ref_id as "refId": Option<Id> = id().optional(),
        actor_id as "actorId": Option<Id> = id().optional(),
        /// What the wording may use, such as `actorName`.
        payload: Option<Object> = event_data("").optional(),
        target_ids as "targetIds": Vec<Id> = list(id(), 1..=MOST_TARGETS),
    }
}

fn entry_id() -> Kind<EventId> {
    let pattern = format!("^[A-Za-z0-9._@:-]{{1,{}}}$", EventId::MAX_LEN);
    Kind::new(json!({"type": "string", "pattern": pattern}), |given| Ok(EventId::new(&given.text()?)?))
}

fn notice_kind() -> Kind<NoticeKind> {
    let kind = request::text(Id::MAX_LEN).then(|text| Ok(NoticeKind::capitals(&text)?));
    kind.with("pattern", "^[A-Z][A-Z0-9_]{0,127}$")
}
