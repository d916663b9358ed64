//! The shapes of answers, and of requests for the OpenAPI document.
//!
//! Requests are read field by field in `requests`, so that an error names its field; their shapes here only describe them.

#![allow(unused_qualifications, reason = "the derive writes its types with their paths")]

use bongsu_http::envelope_document;
use bongsu_http::openapi::IdSchema;
use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_kernel::{Id, Millis};
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use crate::settings::Settings;
use crate::{Entry, EventId, Notice};

envelope_document!(pub(super) struct ItemsEnvelope(Items));
envelope_document!(pub(super) struct ReadEnvelope(ReadAnswer));
envelope_document!(pub(super) struct UnreadEnvelope(Unread));
envelope_document!(pub(super) struct DeletedEnvelope(Deleted));
envelope_document!(pub(super) struct SettingsEnvelope(Settings));
envelope_document!(pub(super) struct CountEnvelope(Count));
envelope_document!(pub(super) struct NotifiedEnvelope(Notified));

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

/// Something that people are told of.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "describes the request")]
pub(super) struct NotifyBody {
    /// The same id is the same notice: nobody gets it twice.
    #[schema(value_type = IdSchema, example = "0b3f6c1e-3f0a-4a53-9f0e-3d2f5b1c9a77")]
    event_id: Id,
    #[schema(pattern = "^[A-Z][A-Z0-9_]{0,127}$", example = "POST_LIKE")]
    r#type: String,
    #[schema(value_type = Vec<IdSchema>, min_items = 1, max_items = 1000)]
    target_ids: Vec<Id>,
    #[schema(value_type = Option<IdSchema>)]
    actor_id: Option<Id>,
    #[schema(value_type = Option<IdSchema>)]
    ref_id: Option<Id>,
    /// What the wording may use, such as `actorName`.
    #[schema(value_type = Option<std::collections::HashMap<String, serde_json::Value>>)]
    payload: Option<Object>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "describes the request")]
pub(super) struct ListParams {
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// 20 where nothing is said.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<u32>,
    /// Only those that are unread.
    unread: Option<bool>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "describes the request")]
pub(super) struct EntryParam {
    /// The notification's `id`, or its `eventId`.
    #[param(example = "17", pattern = "^[A-Za-z0-9._@:-]{1,192}$")]
    id: String,
}
