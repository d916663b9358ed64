//! The response bodies, with their OpenAPI schemas. Request bodies are declared in `requests`.
//!
//! `bongsu_http::openapi` adds the envelope that every response has.

#![allow(unused_qualifications, reason = "the derive writes its types with their paths")]

use bongsu_http::openapi::IdSchema;
use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_kernel::{Id, Millis};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{EventId, InboxEntry, Notification};

/// A page of notifications.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Items {
    pub(super) items: Vec<Item>,
    /// The `cursor` of the next page; null on the last page.
    #[schema(example = "17")]
    pub(super) next_cursor: Option<String>,
    /// The unread count of the whole inbox, not only of this page.
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
    /// The text of the notification, in the language of `Accept-Language`.
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
    pub(super) fn new(entry: InboxEntry, message: impl FnOnce(&Notification) -> String) -> Self {
        let message = message(&entry.notification);
        let Notification { event, kind, reference, actor, payload } = entry.notification;
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

/// A notification that was marked as read.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReadAnswer {
    /// The `id` or `eventId` by which the request named the notification.
    #[schema(value_type = IdSchema, example = 17)]
    notification_id: EventId,
    read_at: String,
}

impl ReadAnswer {
    pub(super) fn new(notification_id: EventId, read_at: Millis) -> Self {
        Self { notification_id, read_at: rfc3339(read_at) }
    }
}

/// The unread count.
#[derive(Serialize, ToSchema)]
pub(super) struct Unread {
    pub(super) unread: u64,
}

/// A deleted notification.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeletedNotification {
    #[schema(value_type = IdSchema, example = 17)]
    pub(super) notification_id: EventId,
}

/// The number of unread notifications.
#[derive(Serialize, ToSchema)]
pub(super) struct Count {
    pub(super) count: u64,
}

/// A notification that is in the inbox of every target.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcceptedNotification {
    #[schema(value_type = IdSchema)]
    pub(super) event_id: EventId,
    /// The number of targets, each counted once.
    pub(super) targets: usize,
}
