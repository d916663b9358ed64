//! Requests: the room of a path, where streams begin, and what is published.
//!
//! An error names the field that it is about. Positions are read before credentials are looked at.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use bongsu_http::answer::invalid;
use bongsu_http::request::{Kind, Refusal, each, event_data, id, limit, list, text, text_id};
use bongsu_http::stream::resumed;
use bongsu_http::{ApiError, Query, request};
use bongsu_kernel::json::Object;
use bongsu_kernel::{Code, EventType, Id, Reason, StreamId, event, trace};
use bongsu_live::composite::Composite;
use http::request::Parts;
use serde_json::json;

use crate::publish::{KEY_LENGTH, MOST_IN_BATCH, MOST_RECIPIENTS, Publish};
use crate::{MOST_ROOMS, catch_up};

request! {
    pub(super) path RoomPath {
        /// The room.
        room as "roomId": Id = text_id("42"),
    }

    pub(super) path MemberPath {
        /// The room.
        room as "roomId": Id = text_id("42"),
        /// The person.
        user as "userId": Id = text_id("7"),
    }

    pub(super) query EventsQuery {
        /// The last id that the caller had; 0-0: from the beginning.
        since: StreamId = stream_id().example("0-0"),
        /// How many at most.
        count: u64 = limit(catch_up::MOST, catch_up::USUAL),
    }

    pub(super) query PresenceQuery {
        /// How many at most.
        limit: usize = limit(MAX_PAGE_SIZE, DEFAULT_PAGE_SIZE),
        /// `nextCursor` of the page before.
        cursor: Option<Id> = text_id("7").with("pattern", "^[A-Za-z0-9._@:-]{0,128}$").optional(),
    }

    pub(super) query SubjectsQuery {
        /// 1: carry the personal stream as well.
        inbox: Option<bool> = inbox().example("1").optional(),
        /// The rooms, separated by commas. Required unless inbox is 1.
        rooms: Option<Vec<Id>> = rooms().example("1,2,3").optional(),
    }

    /// One event.
    pub(super) body PublishBody {
        room_id as "roomId": Id = id(),
        event_type as "eventType": EventType = event_type().example("retrospect.submitted"),
        /// An object, passed on as it is; `timestamp` is set by the hub. At most 64 levels deep.
        data: Object = event_data("timestamp").example(json!({"userId": 1, "userName": "김철수"})),
        publisher_id as "publisherId": Option<Id> = id().optional(),
        /// The same room and key within 24 hours is one event.
        idempotency_key as "idempotencyKey": Option<String> = text(KEY_LENGTH).example("submit-100").optional(),
        /// Who gets an entry in their inbox, less the publisher.
        recipients: Option<Vec<Id>> = list(id(), 0..=MOST_RECIPIENTS).optional(),
    }

    pub(super) body BatchBody {
        events: Vec<Result<PublishBody, ApiError>> = each("events", MOST_IN_BATCH),
    }
}

/// People in one page, when the caller does not say and at most. The first is what an update lists at most.
const DEFAULT_PAGE_SIZE: usize = 200;
const MAX_PAGE_SIZE: u64 = 500;

fn stream_id() -> Kind<StreamId> {
    let pattern = "^(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})$";
    Kind::new(json!({"type": "string", "pattern": pattern}), |given| Ok(given.text()?.parse()?))
}

/// A text that is no event type has a code of its own.
fn event_type() -> Kind<EventType> {
    let schema = json!({"type": "string", "pattern": event::PATTERN, "maxLength": EventType::MAX_LEN});
    Kind::new(schema, |given| {
        EventType::new(&given.text()?).map_err(|reason| Refusal::new(Code::Notif4001, reason))
    })
}

/// Whether a stream carries the person's inbox.
fn inbox() -> Kind<bool> {
    Kind::new(json!({"type": "string"}), |given| match given.as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(Reason::OneOf(&["0", "1"]).into()),
    })
}

/// The rooms of a stream, each once, in the order given.
fn rooms() -> Kind<Vec<Id>> {
    Kind::new(json!({"type": "string"}), |given| {
        let mut rooms: Vec<Id> = Vec::new();
        for room in given.text()?.split(',') {
            let room = Id::new(room)?;
            if !rooms.contains(&room) {
                rooms.push(room);
            }
            if rooms.len() > MOST_ROOMS {
                return Err(Reason::TooMany(MOST_ROOMS).into());
            }
        }
        Ok(rooms)
    })
}

impl SubjectsQuery {
    /// The rooms, and whether the stream carries the inbox: then there may be no rooms.
    pub(super) fn subjects(self) -> Result<(Vec<Id>, bool), ApiError> {
        match (self.rooms, self.inbox.unwrap_or_default()) {
            (None, false) => Err(invalid("rooms", Reason::Required)),
            (rooms, inbox) => Ok((rooms.unwrap_or_default(), inbox)),
        }
    }
}

impl From<PublishBody> for Publish {
    fn from(body: PublishBody) -> Self {
        Self {
            room: body.room_id,
            event_type: body.event_type,
            data: body.data,
            publisher: body.publisher_id,
            key: body.idempotency_key,
            recipients: body.recipients,
            trace: trace::current(),
        }
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
        Ok(Self(resumed(parts, "lastEventId", str::parse)?.map(|(position, _)| position)))
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
        if query.get("rooms").is_some_and(|rooms| !rooms.is_empty()) {
            return resumed(parts, "lastEventId", str::parse).map(Self::Together);
        }
        let number = |text: &str| StreamId::of_number(text).ok_or(Reason::Position);
        Ok(Self::Inbox(resumed(parts, "lastEventId", number)?.map(|(number, _)| number)))
    }
}
