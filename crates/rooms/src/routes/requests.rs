//! The requests of rooms: paths, queries, bodies, and the positions of streams.
//!
//! An error names its field. Positions are parsed before the credentials are checked.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use bongsu_http::answer::invalid;
use bongsu_http::request::{FieldError, FieldKind, event_data, id, item_results, limit, list, text, text_id};
use bongsu_http::stream::resume_position;
use bongsu_http::{ApiError, UrlQuery, request};
use bongsu_kernel::json::Object;
use bongsu_kernel::{Code, EventType, Id, Reason, StreamId, event, trace};
use bongsu_live::composite::CompositePosition;
use http::request::Parts;
use serde_json::json;

use crate::publish::{MAX_BATCH_SIZE, MAX_KEY_LEN, MAX_RECIPIENTS, PublishRequest};
use crate::{MAX_ROOMS_PER_STREAM, catch_up};

request! {
    pub(super) path RoomPath {
        /// The id of the room.
        room as "roomId": Id = text_id("42"),
    }

    pub(super) path MemberPath {
        /// The id of the room.
        room as "roomId": Id = text_id("42"),
        /// The id of the person.
        user as "userId": Id = text_id("7"),
    }

    pub(super) query EventsQuery {
        /// The id of the last event that the caller received; `0-0` begins with the oldest event.
        since: StreamId = stream_id().example("0-0"),
        /// The maximum number of events in the page.
        count: u64 = limit(catch_up::MAX_PAGE_SIZE, catch_up::DEFAULT_PAGE_SIZE),
    }

    pub(super) query PresenceQuery {
        /// The maximum number of people in the page.
        limit: usize = limit(MAX_PAGE_SIZE, DEFAULT_PAGE_SIZE),
        /// The `nextCursor` of the previous page.
        cursor: Option<Id> = text_id("7").with("pattern", "^[A-Za-z0-9._@:-]{0,128}$").optional(),
    }

    pub(super) query SubjectsQuery {
        /// `1` includes the personal stream.
        inbox: Option<bool> = inbox().example("1").optional(),
        /// The ids of up to 32 rooms, separated by commas. Required unless `inbox` is `1`.
        rooms: Option<Vec<Id>> = rooms().example("1,2,3").optional(),
    }

    /// An event for a room.
    pub(super) body PublishBody {
        room_id as "roomId": Id = id(),
        event_type as "eventType": EventType = event_type().example("retrospect.submitted"),
        /// An object of at most 64 levels, delivered unchanged except for `timestamp`, which the hub sets.
        data: Object = event_data("timestamp").example(json!({"userId": 1, "userName": "김철수"})),
        publisher_id as "publisherId": Option<Id> = id().optional(),
        /// Of the requests with the same room and key within 24 hours, only the first stores an event.
        idempotency_key as "idempotencyKey": Option<String> = text(MAX_KEY_LEN).example("submit-100").optional(),
        /// The people who get an inbox entry. The publisher gets none, even if listed.
        recipients: Option<Vec<Id>> = list(id(), 0..=MAX_RECIPIENTS).optional(),
    }

    pub(super) body BatchBody {
        events: Vec<Result<PublishBody, ApiError>> = item_results("events", MAX_BATCH_SIZE),
    }
}

/// People in one page, unless the caller gives another limit. Equals the maximum that a `presence.update`
/// lists.
const DEFAULT_PAGE_SIZE: usize = 200;
/// Maximum number of people in one page.
const MAX_PAGE_SIZE: u64 = 500;

fn stream_id() -> FieldKind<StreamId> {
    let pattern = "^(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})$";
    FieldKind::new(json!({"type": "string", "pattern": pattern}), |given| Ok(given.text()?.parse()?))
}

/// A malformed event type has an error code of its own.
fn event_type() -> FieldKind<EventType> {
    let schema = json!({"type": "string", "pattern": event::PATTERN, "maxLength": EventType::MAX_LEN});
    FieldKind::new(schema, |given| {
        EventType::new(&given.text()?).map_err(|reason| FieldError::new(Code::Notif4001, reason))
    })
}

/// Whether a stream includes the person's inbox.
fn inbox() -> FieldKind<bool> {
    FieldKind::new(json!({"type": "string"}), |given| match given.as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(Reason::OneOf(&["0", "1"]).into()),
    })
}

/// The rooms of a stream in the given order, without duplicates.
fn rooms() -> FieldKind<Vec<Id>> {
    FieldKind::new(json!({"type": "string"}), |given| {
        let mut rooms: Vec<Id> = Vec::new();
        for room in given.text()?.split(',') {
            let room = Id::new(room)?;
            if !rooms.contains(&room) {
                rooms.push(room);
            }
            if rooms.len() > MAX_ROOMS_PER_STREAM {
                return Err(Reason::TooMany(MAX_ROOMS_PER_STREAM).into());
            }
        }
        Ok(rooms)
    })
}

impl SubjectsQuery {
    /// Returns the rooms, and whether the stream includes the inbox. A stream without the inbox needs rooms.
    pub(super) fn subjects(self) -> Result<(Vec<Id>, bool), ApiError> {
        match (self.rooms, self.inbox.unwrap_or_default()) {
            (None, false) => Err(invalid("rooms", Reason::Required)),
            (rooms, inbox) => Ok((rooms.unwrap_or_default(), inbox)),
        }
    }
}

impl From<PublishBody> for PublishRequest {
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

/// The position after which a stream begins; None: from now on.
///
/// Handlers extract the position before the credentials: a client that reconnects although its stream closed
/// for good gets 204, even when its token is not valid any more.
pub(super) struct Resume(pub(super) Option<StreamId>);

impl<S: Sync> FromRequestParts<S> for Resume {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        Ok(Self(resume_position(parts, "lastEventId", str::parse)?.map(|(position, _)| position)))
    }
}

/// The position of a stream that follows several subjects.
pub(super) enum ResumeMany {
    /// With rooms: the composite position, and the name of the field that contains it.
    Composite(Option<(CompositePosition, &'static str)>),
    /// Without rooms: an inbox sequence of the person.
    Inbox(Option<StreamId>),
}

impl<S: Sync> FromRequestParts<S> for ResumeMany {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let query =
            UrlQuery::parse(parts.uri.query()).map_err(|error| ApiError::from(error).into_response())?;
        if query.get("rooms").is_some_and(|rooms| !rooms.is_empty()) {
            return resume_position(parts, "lastEventId", str::parse).map(Self::Composite);
        }
        let parse = |text: &str| StreamId::from_number(text).ok_or(Reason::Position);
        Ok(Self::Inbox(resume_position(parts, "lastEventId", parse)?.map(|(position, _)| position)))
    }
}
