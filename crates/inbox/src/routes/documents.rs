//! The shapes of answers. Those of requests are declared in `requests`.
//!
//! The document shows each in the envelope that every answer has: `bongsu_http::openapi` adds it.

#![allow(unused_qualifications, reason = "the derive writes its types with their paths")]

use bongsu_http::openapi::IdSchema;
use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_kernel::{Id, Millis};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{Entry, EventId, Notice};

/// A page of notifications.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Items {
    pub(super) items: Vec<Item>,
    /// Null when there are no older ones.
    #[schema(example = "17")]
    pub(super) next_cursor: Option<String>,
    pub(super) unread: u64,
}

/// One notification.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Item {
    #[schema(value_type = IdSchema, example = 17)]
    id: Id,
    #[schema(value_type = IdSchema, example = "0b3f6c1e-3f0a-4a53-9f0e-3d2f5b1c9a77")]
    event_id: EventId,
    #[schema(example = "POST_LIKE")]
    r#type: String,
    /// For people, by `Accept-Language`.
    message: String,
    #[schema(value_type = Option<IdSchema>)]
    ref_id: Option<Id>,
    #[schema(value_type = Option<IdSchema>)]
    actor_id: Option<Id>,
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    payload: Object,
    #[schema(example = "2026-02-16T10:30:00.000Z")]
    created_at: String,
    read_at: Option<String>,
}

impl Item {
    pub(super) fn new(entry: Entry, message: impl FnOnce(&Notice) -> String) -> Self {
        let message = message(&entry.notice);
        let Notice { event, kind, reference, actor, payload } = entry.notice;
        Self {
            id: entry.seq.into(),
            event_id: event,
            r#type: kind.as_str().to_owned(),
            message,
            ref_id: reference,
            actor_id: actor,
            payload,
            created_at: rfc3339(entry.created_at),
            read_at: entry.read_at.map(rfc3339),
        }
    }
}

/// A notification that is read.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadAnswer {
    /// As it was asked for.
    #[schema(value_type = IdSchema, example = 17)]
    notification_id: EventId,
    read_at: String,
}

impl ReadAnswer {
    pub(super) fn new(notification_id: EventId, read_at: Millis) -> Self {
        Self { notification_id, read_at: rfc3339(read_at) }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct Unread {
    pub(super) unread: u64,
}

/// A notification that is gone.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Deleted {
    #[schema(value_type = IdSchema, example = 17)]
    pub(super) notification_id: EventId,
}

#[derive(Serialize, ToSchema)]
pub(super) struct Count {
    pub(super) count: u64,
}

/// People were told.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Notified {
    #[schema(value_type = IdSchema)]
    pub(super) event_id: EventId,
    /// How many were named, each once.
    pub(super) targets: usize,
}
