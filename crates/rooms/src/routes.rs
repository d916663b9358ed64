//! The HTTP routes of rooms: they parse requests, call [`Rooms`] and format responses.
//!
//! `requests` declares the requests, `documents` the responses, and `errors` maps errors to codes and texts.

mod documents;
mod errors;
mod presence;
mod registration;
mod requests;
mod socket;

use axum::extract::{FromRef, State};
use axum::response::Response;
use bongsu_http::answer::{Answer, invalid};
use bongsu_http::openapi::{ResumeParams, StreamParams, tagged};
use bongsu_http::request_scope::language;
use bongsu_http::{
    ApiError, BulkBody, Identity, ListChunk, ObserverFlag, Person, RouteState, Service, SmallBody,
    StreamLanguage, StreamPerson, list_response,
};
use bongsu_live::{BoxedGuard, LogEntry, SubjectName, Target};
use futures_util::future::join_all;
use futures_util::stream;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::documents::{BatchAnswer, BatchResult, EventItem, Events, PublishAnswer};
use self::errors::{access_error, open_error, publish_error, read_error};
use self::requests::{BatchBody, EventsQuery, PublishBody, Resume, ResumeMany, RoomPath, SubjectsQuery};
use crate::catch_up::PageChunk;
use crate::publish::PublishRequest;
use crate::{Rooms, subject};

type RoomsState = RouteState<Rooms>;

impl FromRef<RoomsState> for Rooms {
    fn from_ref(state: &RoomsState) -> Self {
        state.part.clone()
    }
}

/// The routes of this part, with their OpenAPI descriptions.
pub fn router(rooms: Rooms, identity: Identity) -> OpenApiRouter {
    let routes = OpenApiRouter::new()
        .routes(routes!(stream))
        .routes(routes!(stream_many))
        .routes(routes!(publish))
        .routes(routes!(publish_batch))
        .routes(routes!(events))
        .merge(registration::router())
        .merge(socket::router())
        .merge(presence::router())
        .with_state(RoomsState { part: rooms, identity });
    tagged("rooms", routes)
}

/// Follow a room
///
/// Receive the events of the room from now on; with a position, first the events after it. A browser's
/// EventSource sends the id of the last event as `Last-Event-ID` when it reconnects. The first event is a
/// `presence.update` with the people who are in the room. Send `X-Internal-Key` beside the person's
/// credentials to follow the room without becoming present.
#[utoipa::path(
    get,
    path = "/api/v1/rooms/{roomId}/stream",
    params(
        RoomPath,
        ResumeParams,
        ("lastEventId" = Option<String>, Query, description = "The id of the last event that the client received, for clients that cannot set headers. `0-0` begins with the oldest event.", example = "0-0"),
        StreamParams,
    ),
    responses((status = 200, description = "The stream of events, which stays open.", content_type = "text/event-stream", body = String, example = json!(documents::STREAM))),
    security(("person" = [])),
)]
async fn stream(
    _: StreamLanguage,
    Resume(position): Resume,
    caller: StreamPerson,
    observer: ObserverFlag,
    RoomPath { room }: RoomPath,
    State(rooms): State<Rooms>,
    State(identity): State<Identity>,
) -> Result<Response, ApiError> {
    let person = caller.person().clone();
    let user = person.id.clone();
    rooms.may_read(&room, &user).await.map_err(access_error)?;
    let stream = rooms.0.hub.open(caller, subject(&room), position).await.map_err(open_error)?;
    if stream.is_closing() {
        return Ok(bongsu_http::stream::response(stream));
    }
    identity.check_revoked(&person).await?;
    // Checked again after the subscription: a membership that is removed from here on closes the stream.
    rooms.may_read(&room, &user).await.map_err(access_error)?;
    let stream = stream.with_guard(rooms.join(&room, &user, observer).await);
    Ok(bongsu_http::stream::response(stream))
}

/// Follow several rooms and the personal stream
///
/// Receive the events of up to 32 rooms and, with `inbox=1`, of the personal stream. The hub adds `roomId` to
/// the data of every room event. The id of an event contains the positions of all subjects; send it back
/// unchanged to resume a stream of the same rooms. With `inbox=1` and no rooms, receive only the personal
/// stream.
#[utoipa::path(
    get,
    path = "/api/v1/stream",
    params(
        SubjectsQuery,
        ResumeParams,
        ("lastEventId" = Option<String>, Query, description = "The id of the last event that the client received, for clients that cannot set headers. `0-0` begins with the oldest event of each room.", example = "0-0"),
        StreamParams,
    ),
    responses((status = 200, description = "The stream of events, which stays open.", content_type = "text/event-stream", body = String, example = json!(documents::STREAM))),
    security(("person" = [])),
)]
async fn stream_many(
    _: StreamLanguage,
    resume: ResumeMany,
    caller: StreamPerson,
    observer: ObserverFlag,
    query: SubjectsQuery,
    State(rooms): State<Rooms>,
    State(identity): State<Identity>,
) -> Result<Response, ApiError> {
    let person = caller.person().clone();
    let (user, hub) = (person.id.clone(), &rooms.0.hub);
    let (room_ids, inbox) = query.subjects()?;
    let personal = if inbox { Some(hub.personal_streams().ok_or_else(ApiError::no_records)?) } else { None };
    let position = match (resume, &personal) {
        (ResumeMany::Inbox(position), Some(personal)) => {
            return Ok(bongsu_http::stream::response(personal.open(caller, position).await?));
        }
        (ResumeMany::Inbox(_), None) => None,
        (ResumeMany::Composite(position), _) => position,
    };
    for room in &room_ids {
        rooms.may_read(room, &user).await.map_err(access_error)?;
    }
    let mut targets: Vec<Target> = room_ids.iter().cloned().map(Target::Room).collect();
    let mut subjects: Vec<SubjectName> = room_ids.iter().map(subject).collect();
    if let Some(personal) = &personal {
        targets.push(Target::Inbox);
        subjects.push(personal.subject(&user));
    }
    let positions = match position {
        Some((position, field)) => position.positions(&targets).map_err(|reason| invalid(field, reason))?,
        None => vec![None; targets.len()],
    };
    let subjects = targets.into_iter().zip(subjects).zip(positions);
    let subjects = subjects.map(|((target, subject), position)| (target, subject, position)).collect();
    let config = personal.as_ref().map(|personal| personal.stream_config());
    let stream = hub.open_many(caller, subjects, config).await.map_err(open_error)?;
    if stream.is_closing() {
        return Ok(bongsu_http::stream::response(stream));
    }
    identity.check_revoked(&person).await?;
    // Checked again after the subscription: a membership that is removed from here on ends the subscription of its
    // room.
    for room in &room_ids {
        rooms.may_read(room, &user).await.map_err(access_error)?;
    }
    let joined = join_all(room_ids.iter().map(|room| rooms.join(room, &user, observer))).await;
    let mut guards: Vec<BoxedGuard> = joined.into_iter().map(|guard| Box::new(guard) as BoxedGuard).collect();
    if let Some(personal) = &personal {
        guards.push(personal.join(&user, stream.close_handle()).await?);
    }
    Ok(bongsu_http::stream::response(stream.with_guards(guards)))
}

/// Publish an event to a room
///
/// The event is durable when the response arrives. With an idempotency key, a request that is repeated within
/// 24 hours stores no second event, and its response has the `streamId` of the first.
#[utoipa::path(
    post,
    path = "/api/v1/notifications/publish",
    params(documents::TraceParam),
    request_body = PublishBody,
    responses(
        (status = 200, description = "The event is stored, now or by an earlier request with the same idempotency key.", body = PublishAnswer),
        (status = 409, description = "The idempotency key was used for other content (NOTIF4091)."),
    ),
    security(("service" = [])),
)]
async fn publish(
    _: Service,
    State(rooms): State<Rooms>,
    SmallBody(body): SmallBody,
) -> Result<Answer<PublishAnswer>, ApiError> {
    let event: PublishBody = body.read()?;
    let published = rooms.publish(event.into()).await.map_err(publish_error)?;
    Ok(Answer(published.into()))
}

/// Publish up to 500 events
///
/// Publish events in the given order. Each event has its own result; a refused event does not affect the
/// others.
#[utoipa::path(
    post,
    path = "/api/v1/notifications/publish/batch",
    params(documents::TraceParam),
    request_body = BatchBody,
    responses((status = 200, description = "The result of each event, in the order of the request.", body = BatchAnswer)),
    security(("service" = [])),
)]
async fn publish_batch(
    _: Service,
    State(rooms): State<Rooms>,
    BulkBody(body): BulkBody,
) -> Result<Answer<BatchAnswer>, ApiError> {
    let batch: BatchBody = body.read()?;
    let mut requests: Vec<PublishRequest> = Vec::new();
    let parsed: Vec<Result<(), ApiError>> =
        batch.events.into_iter().map(|event| event.map(|event| requests.push(event.into()))).collect();
    let mut outcomes = rooms.publish_all(requests).await.map_err(publish_error)?.into_iter();
    let results = parsed.into_iter().enumerate().map(|(index, parsed)| {
        let outcome = parsed.and_then(|()| match outcomes.next() {
            Some(outcome) => outcome.map_err(publish_error),
            None => Err(ApiError::unexpected()),
        });
        match outcome {
            Ok(published) => BatchResult::Stored {
                index,
                stream_id: published.id.to_string(),
                duplicate: published.duplicate,
            },
            Err(error) => BatchResult::Refused {
                index,
                code: error.code.as_str(),
                message: error.message(language()).to_owned(),
            },
        }
    });
    Ok(Answer(BatchAnswer { results: results.collect() }))
}

/// Read missed events
///
/// Get a page of the events after a position, oldest first. While `hasMore` is true, repeat the request with
/// `since` set to `lastId`.
#[utoipa::path(
    get,
    path = "/api/v1/rooms/{roomId}/events",
    params(RoomPath, EventsQuery),
    responses((status = 200, description = "A page of events.", body = Events)),
    security(("person" = [])),
)]
async fn events(
    person: Person,
    RoomPath { room }: RoomPath,
    EventsQuery { since, count }: EventsQuery,
    State(rooms): State<Rooms>,
) -> Result<Response, ApiError> {
    rooms.may_read(&room, &person.id).await.map_err(access_error)?;
    let reader = rooms.events_after(&room, since, count).await.map_err(|error| read_error(&error))?;
    let chunks = stream::unfold(Some(reader), async |reader| {
        let mut reader = reader?;
        match reader.next().await {
            PageChunk::Events(events) => Some((ListChunk::Items(items(events)), Some(reader))),
            PageChunk::Last(events, end) => {
                Some((ListChunk::Last(items(events), Events::of_page(end)), None))
            }
        }
    });
    list_response("events", chunks).await
}

fn items(events: Vec<LogEntry>) -> Vec<EventItem> {
    events.into_iter().map(EventItem::from).collect()
}
