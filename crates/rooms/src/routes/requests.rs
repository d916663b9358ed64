//! Reads requests, field by field.

use axum::extract::{FromRequestParts, Path};
use axum::response::{IntoResponse, Response};
use bongsu_http::answer::invalid;
use bongsu_http::{ApiError, Fields, Query, fields};
use bongsu_kernel::close::END_PREFIX;
use bongsu_kernel::json::Object;
use bongsu_kernel::text::Text;
use bongsu_kernel::{Code, EventType, Id, Invalid, Reason, StreamId, trace};
use bongsu_live::composite::Composite;
use http::StatusCode;
use http::request::Parts;
use serde_json::value::RawValue;

use crate::MOST_ROOMS;
use crate::publish::{KEY_LENGTH, MOST_RECIPIENTS, Publish};

/// The room in the path.
pub(super) struct RoomPath(pub(super) Id);

impl<S: Send + Sync> FromRequestParts<S> for RoomPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let room = Path::<String>::from_request_parts(parts, state).await;
        let Path(room) = room.map_err(|_| invalid("roomId", Reason::Utf8))?;
        Id::new(&room).map(Self).map_err(|reason| invalid("roomId", reason))
    }
}

/// Where a stream begins: after this id, or from now on.
///
/// It comes before the other arguments of a handler: a client that comes back although its stream ended for good is
/// answered 204, whatever became of its token.
pub(super) struct Resume(pub(super) Option<StreamId>);

impl<S: Sync> FromRequestParts<S> for Resume {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let position = position(parts, str::parse).map_err(IntoResponse::into_response)?;
        position.map(Self).ok_or_else(|| StatusCode::NO_CONTENT.into_response())
    }
}

/// The same of a stream that follows several rooms.
pub(super) struct ResumeMany(pub(super) Option<Composite>);

impl<S: Sync> FromRequestParts<S> for ResumeMany {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let position = position(parts, str::parse).map_err(IntoResponse::into_response)?;
        position.map(Self).ok_or_else(|| StatusCode::NO_CONTENT.into_response())
    }
}

/// Outer nothing: an earlier stream ended for good.
fn position<T>(
    parts: &Parts,
    read: impl Fn(&str) -> Result<T, Reason>,
) -> Result<Option<Option<T>>, ApiError> {
    let query = Query::of(parts.uri.query())?;
    let (name, position) = match parts.headers.get("last-event-id") {
        Some(header) => {
            let text = header.to_str().map_err(|_| invalid("Last-Event-ID", Reason::Position))?;
            ("Last-Event-ID", text)
        }
        None => ("lastEventId", query.get("lastEventId").unwrap_or_default()),
    };
    if position.starts_with(END_PREFIX) {
        return Ok(None);
    }
    if position.is_empty() {
        return Ok(Some(None));
    }
    read(position).map(|position| Some(Some(position))).map_err(|reason| invalid(name, reason))
}

/// The rooms of a stream, each once, in the order given.
pub(super) fn read_rooms(query: &Query) -> Result<Vec<Id>, ApiError> {
    let given = query.get("rooms").filter(|rooms| !rooms.is_empty());
    let given = given.ok_or_else(|| invalid("rooms", Reason::Required))?;
    let mut rooms: Vec<Id> = Vec::new();
    for room in given.split(',') {
        let room = Id::new(room).map_err(|reason| invalid("rooms", reason))?;
        if !rooms.contains(&room) {
            rooms.push(room);
        }
        if rooms.len() > MOST_ROOMS {
            return Err(invalid("rooms", Reason::TooMany(MOST_ROOMS)));
        }
    }
    Ok(rooms)
}

pub(super) fn read_publish(fields: &Fields<'_>) -> Result<Publish, ApiError> {
    Ok(Publish {
        room: fields.required("roomId", fields::id)?,
        event_type: read_event_type(fields)?,
        data: read_data(fields)?,
        publisher: fields.optional("publisherId", fields::id)?,
        key: fields.optional("idempotencyKey", |raw| fields::text(raw, KEY_LENGTH))?,
        recipients: read_recipients(fields)?,
        trace: trace::current(),
    })
}

fn read_data(fields: &Fields<'_>) -> Result<Object, ApiError> {
    fields.of_one_event("data", fields.required("data", |raw| Object::parse(raw, "timestamp"))?)
}

/// A text that is no event type has a code of its own.
fn read_event_type(fields: &Fields<'_>) -> Result<EventType, ApiError> {
    let text = fields.required("eventType", |raw| {
        serde_json::from_str::<String>(raw.get()).map_err(|_| Reason::NotText)
    })?;
    EventType::new(&text).map_err(|reason| {
        let Text { ko, en } = fields.invalid("eventType", reason).text();
        ApiError::new(Code::Notif4001, Text { ko, en })
    })
}

fn read_recipients(fields: &Fields<'_>) -> Result<Option<Vec<Id>>, Invalid> {
    let items = fields.optional("recipients", |raw| fields::list(raw, MOST_RECIPIENTS))?;
    let read = |(index, raw): (usize, &&RawValue)| {
        fields::id(raw).map_err(|reason| fields.invalid(&format!("recipients[{index}]"), reason))
    };
    items.map(|items| items.iter().enumerate().map(read).collect()).transpose()
}
