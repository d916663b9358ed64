//! The shapes of answers. Those of requests are declared in `requests`.
//!
//! The document shows each in the envelope that every answer has: `bongsu_http::openapi` adds it.

#![allow(unused_qualifications, reason = "the derive writes its types with their paths")]

use bongsu_http::openapi::IdSchema;
use bongsu_kernel::Id;
use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_live::Entry;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::catch_up::PageEnd;
use crate::publish::Published;

pub(super) const STREAM: &str = "retry: 2140\n\nevent: retrospect.submitted\nid: 1708070400000-0\n\
    data: {\"userId\":1,\"retrospectId\":100,\"timestamp\":\"2026-02-16T10:30:00.000Z\"}\n\n:keepalive\n\n";

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

#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes the header")]
pub(super) struct TraceParam {
    /// The trace that the event belongs to (W3C Trace Context). It is kept with the event and travels with what comes of
    /// it; what is not well-formed is left out.
    #[param(example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
    traceparent: Option<String>,
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
