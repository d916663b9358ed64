//! The schemas of responses. The module `requests` declares the schemas of requests.
//!
//! `bongsu_http::openapi` adds the envelope of all responses to the OpenAPI document.

#![allow(unused_qualifications, reason = "the derive writes its types with their paths")]

use bongsu_http::openapi::IdSchema;
use bongsu_kernel::Id;
use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_live::LogEntry;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::catch_up::PageEnd;
use crate::publish::PublishOutcome;

pub(super) const STREAM: &str = "retry: 2140\n\nevent: retrospect.submitted\nid: 1708070400000-0\n\
    data: {\"userId\":1,\"retrospectId\":100,\"timestamp\":\"2026-02-16T10:30:00.000Z\"}\n\n:keepalive\n\n";

/// A page of the people in a room.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PresencePage {
    pub(super) online_users: Vec<OnlineUser>,
    /// The number of people in the whole room, not only on this page.
    #[schema(example = 1)]
    pub(super) count: usize,
    /// The `cursor` of the next page. Absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct OnlineUser {
    #[schema(value_type = IdSchema)]
    pub(super) user_id: Id,
    #[schema(example = "2026-02-16T10:30:00.000Z")]
    pub(super) last_seen: String,
}

/// The response to a heartbeat.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HeartbeatAnswer {
    pub(super) acknowledged: bool,
    #[schema(example = 30)]
    pub(super) next_in_secs: u64,
}

/// The room that was registered or deleted.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RoomAnswer {
    #[schema(value_type = IdSchema)]
    pub(super) room_id: Id,
}

/// The member who was added or removed.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct MemberAnswer {
    #[schema(value_type = IdSchema)]
    pub(super) room_id: Id,
    #[schema(value_type = IdSchema)]
    pub(super) user_id: Id,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes the header")]
pub(super) struct TraceParam {
    /// The trace of the request (W3C Trace Context). The hub stores the trace with the event and passes it on
    /// with inbox entries. A malformed value is ignored.
    #[param(example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
    traceparent: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PublishAnswer {
    #[schema(example = "1708070400000-0")]
    stream_id: String,
    /// The estimated number of the room's subscribers, over all instances, when the event was published.
    delivered_to: u32,
    duplicate: bool,
}

impl From<PublishOutcome> for PublishAnswer {
    fn from(published: PublishOutcome) -> Self {
        let PublishOutcome { id, delivered_to, duplicate } = published;
        Self { stream_id: id.to_string(), delivered_to, duplicate }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct BatchAnswer {
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

/// A page of events, oldest first.
// `bongsu_http::list_response` writes the list; the field `events` of this value stays empty.
#[derive(Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Events {
    events: Vec<EventItem>,
    /// The value of `since` for the next page.
    last_id: String,
    has_more: bool,
    /// True if events after the given position were trimmed; otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    trimmed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_id: Option<String>,
    /// True if the room's log does not know the given position, so that events may be missing; otherwise
    /// absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<bool>,
}

impl Events {
    pub(super) fn of_page(end: PageEnd) -> Self {
        Self {
            events: Vec::new(),
            last_id: end.last.to_string(),
            has_more: end.has_more,
            trimmed: end.trimmed.map(|_| true),
            oldest_id: end.trimmed.map(|oldest| oldest.to_string()),
            unknown: end.is_unknown.then_some(true),
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

impl From<LogEntry> for EventItem {
    fn from(entry: LogEntry) -> Self {
        Self {
            id: entry.position.id.to_string(),
            event_type: entry.event_type.as_str().to_owned(),
            data: entry.data,
            publisher_id: entry.publisher,
            timestamp: rfc3339(entry.at),
        }
    }
}
