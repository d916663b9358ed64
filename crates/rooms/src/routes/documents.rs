//! The shapes of answers, and of requests for the OpenAPI document.
//!
//! Requests are read field by field (see `requests`), so that errors name their field; the request shapes here
//! only describe them.

#![allow(unused_qualifications, reason = "the derive writes its types with their paths")]

use bongsu_http::envelope_document;
use bongsu_http::openapi::IdSchema;
use bongsu_kernel::Id;
use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_live::Entry;
use serde::Serialize;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};
use utoipa::{IntoParams, PartialSchema, ToSchema};

use crate::catch_up::PageEnd;
use crate::publish::Published;

pub(super) const STREAM: &str = "retry: 2140\n\nevent: retrospect.submitted\nid: 1708070400000-0\n\
    data: {\"userId\":1,\"retrospectId\":100,\"timestamp\":\"2026-02-16T10:30:00.000Z\"}\n\n:keepalive\n\n";

envelope_document!(pub(super) struct PublishEnvelope(PublishAnswer));
envelope_document!(pub(super) struct BatchEnvelope(Batched));
envelope_document!(pub(super) struct EventsEnvelope(Events));
envelope_document!(pub(super) struct RegisteredEnvelope(Registered));
envelope_document!(pub(super) struct MemberEnvelope(Member));

envelope_document!(pub(super) struct PresentEnvelope(Present));
envelope_document!(pub(super) struct AcknowledgedEnvelope(Acknowledged));

/// Who is in a room.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Present {
    pub(super) online_users: Vec<OnlineUser>,
    /// Of the whole room.
    #[schema(example = 1)]
    pub(super) count: usize,
    /// Only when others follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query")]
pub(super) struct PresenceQuery {
    /// `nextCursor` of the page before.
    #[param(pattern = "^[A-Za-z0-9._@:-]{0,128}$", example = "7")]
    cursor: Option<String>,
    /// How many at most; 200 when not given.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct OnlineUser {
    #[schema(value_type = IdSchema)]
    pub(super) user_id: Id,
    #[schema(example = "2026-02-16T10:30:00.000Z")]
    pub(super) last_seen: String,
}

/// A heartbeat was noted.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Acknowledged {
    pub(super) acknowledged: bool,
    #[schema(example = 30)]
    pub(super) next_in_secs: u64,
}

/// A room that was registered or deleted.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Registered {
    #[schema(value_type = IdSchema)]
    pub(super) room_id: Id,
}

/// A member who was added or removed.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Member {
    #[schema(value_type = IdSchema)]
    pub(super) room_id: Id,
    #[schema(value_type = IdSchema)]
    pub(super) user_id: Id,
}

/// The refusal that every operation may give, which the document describes once.
pub(super) struct Conflict;

impl ToSchema for Conflict {
    fn name() -> std::borrow::Cow<'static, str> {
        "Refusal".into()
    }
}

impl PartialSchema for Conflict {
    fn schema() -> RefOr<Schema> {
        // Written by `bongsu_http::openapi`.
        Ref::from_schema_name("Refusal").into()
    }
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes the header")]
pub(super) struct TraceParam {
    /// The trace that the event belongs to (W3C Trace Context). It is kept with the event and travels with what comes of
    /// it; what is not well-formed is left out.
    #[param(example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
    traceparent: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
pub(super) struct RoomIdParam {
    /// The room.
    #[param(rename = "roomId", pattern = "^[A-Za-z0-9._@:-]{1,128}$", example = "42")]
    room_id: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the path")]
pub(super) struct UserIdParam {
    /// The person.
    #[param(rename = "userId", pattern = "^[A-Za-z0-9._@:-]{1,128}$", example = "7")]
    user_id: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the query")]
pub(super) struct EventsQuery {
    /// The last id that the caller had; 0-0: from the beginning.
    #[param(pattern = "^(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})$", example = "0-0")]
    since: String,
    /// How many at most; 100 when not given.
    #[param(minimum = 1, maximum = 500)]
    count: Option<u32>,
}

/// One event.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the request")]
pub(super) struct PublishBody {
    #[schema(value_type = IdSchema, example = 42)]
    room_id: Id,
    #[schema(
        pattern = r"^[a-z][a-z0-9]*(\.[a-z][a-z0-9_]*)+(\.v[0-9]+)?$",
        max_length = 64,
        example = "retrospect.submitted"
    )]
    event_type: String,
    /// An object, passed on as it is; `timestamp` is set by the hub. At most 64 levels deep.
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>, example = json!({"userId": 1, "userName": "김철수"}))]
    data: Object,
    #[schema(value_type = Option<IdSchema>, example = 1)]
    publisher_id: Option<Id>,
    /// The same room and key within 24 hours is one event.
    #[schema(
        example = "submit-100",
        min_length = 1,
        max_length = 256,
        pattern = r"^[^\x00-\x1f\x7f-\x9f]+$"
    )]
    idempotency_key: Option<String>,
    /// Who gets an entry in their inbox, less the publisher.
    #[schema(value_type = Option<Vec<IdSchema>>, max_items = 1000)]
    recipients: Option<Vec<Id>>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the request")]
pub(super) struct BatchBody {
    #[schema(max_items = 500)]
    events: Vec<PublishBody>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PublishAnswer {
    #[schema(example = "1708070400000-0")]
    stream_id: String,
    /// Streams that listened at that moment: an estimate, not a receipt.
    delivered_to: u32,
    duplicate: bool,
}

impl From<Published> for PublishAnswer {
    fn from(published: Published) -> Self {
        Self {
            stream_id: published.id.to_string(),
            delivered_to: published.delivered_to,
            duplicate: published.duplicate,
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct Batched {
    pub(super) results: Vec<BatchResult>,
}

#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum BatchResult {
    Stored {
        index: usize,
        #[serde(rename = "streamId")]
        #[schema(example = "1708070400000-0")]
        stream_id: String,
        duplicate: bool,
    },
    Refused {
        index: usize,
        code: &'static str,
        message: String,
    },
}

/// The list is written apart: `bongsu_http::listed`.
#[derive(Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Events {
    events: Vec<EventItem>,
    /// Ask on with this.
    last_id: String,
    has_more: bool,
    /// Only when the position was older than the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    trimmed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_id: Option<String>,
    /// Only when the position names nothing that the log knows: some events may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<bool>,
}

impl Events {
    pub(super) fn of_page(end: PageEnd) -> Self {
        Self {
            events: Vec::new(),
            last_id: end.last.to_string(),
            has_more: end.more,
            trimmed: end.trimmed.map(|_| true),
            oldest_id: end.trimmed.map(|oldest| oldest.to_string()),
            unknown: end.unknown.then_some(true),
        }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct EventItem {
    id: String,
    event_type: String,
    #[schema(value_type = serde_json::Map<String, serde_json::Value>)]
    data: Object,
    #[schema(value_type = Option<IdSchema>)]
    publisher_id: Option<Id>,
    timestamp: String,
}

impl From<Entry> for EventItem {
    fn from(entry: Entry) -> Self {
        Self {
            id: entry.place.id.to_string(),
            event_type: entry.event_type.as_str().to_owned(),
            data: entry.data,
            publisher_id: entry.publisher,
            timestamp: rfc3339(entry.at),
        }
    }
}
