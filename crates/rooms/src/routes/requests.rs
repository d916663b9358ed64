//! Reads requests, field by field: the room of a path, where streams begin, and what is published.
//!
//! An error names the field that it is about. Positions are read before credentials are looked at.

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
        let position = position.ok_or_else(|| StatusCode::NO_CONTENT.into_response())?;
        Ok(Self(position.map(|(position, _)| position)))
    }
}

/// The same of a stream that follows several subjects.
pub(super) enum ResumeMany {
    /// With rooms: a position of all subjects together, and the name of the field that has it.
    Together(Option<(Composite, &'static str)>),
    /// Without rooms: a number of the person's inbox.
    Inbox(Option<StreamId>),
}

impl<S: Sync> FromRequestParts<S> for ResumeMany {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let query = Query::of(parts.uri.query()).map_err(|error| ApiError::from(error).into_response())?;
        let has_rooms = query.get("rooms").is_some_and(|rooms| !rooms.is_empty());
        let read = |text: &str| text.parse::<Composite>();
        let number = |text: &str| StreamId::of_number(text).ok_or(Reason::Position);
        let resume = if has_rooms {
            position(parts, read).map(|position| position.map(Self::Together))
        } else {
            let position = position(parts, number);
            position.map(|outer| outer.map(|inner| Self::Inbox(inner.map(|(number, _)| number))))
        };
        let resume = resume.map_err(IntoResponse::into_response)?;
        resume.ok_or_else(|| StatusCode::NO_CONTENT.into_response())
    }
}

/// The position and the name of the field that has it. The outer None: an earlier stream ended for good.
fn position<T>(
    parts: &Parts,
    read: impl Fn(&str) -> Result<T, Reason>,
) -> Result<Option<Option<(T, &'static str)>>, ApiError> {
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
    read(position).map(|position| Some(Some((position, name)))).map_err(|reason| invalid(name, reason))
}

/// Whether a stream carries the person's inbox.
pub(super) fn read_inbox(query: &Query) -> Result<bool, ApiError> {
    match query.get("inbox").unwrap_or_default() {
        "1" | "true" => Ok(true),
        "" | "0" | "false" => Ok(false),
        _ => Err(invalid("inbox", Reason::OneOf(&["0", "1"]))),
    }
}

/// The rooms of a stream, each once, in the order given. There may be none where it carries the inbox.
pub(super) fn read_rooms(query: &Query, inbox: bool) -> Result<Vec<Id>, ApiError> {
    let given = match query.get("rooms").filter(|rooms| !rooms.is_empty()) {
        Some(given) => given,
        None if inbox => return Ok(Vec::new()),
        None => return Err(invalid("rooms", Reason::Required)),
    };
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
