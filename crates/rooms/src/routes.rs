//! Rooms over HTTP: requests in, answers out. Nothing is decided here.
//!
//! Requests are declared in `requests`, answers in `documents`; errors get their codes and words in `refusals`.

mod documents;
mod presence;
mod refusals;
mod registration;
mod requests;
mod socket;

use axum::extract::{FromRef, State};
use axum::response::Response;
use bongsu_http::answer::{Answer, invalid};
use bongsu_http::frame::language;
use bongsu_http::openapi::{ResumeParams, StreamParams, tagged};
use bongsu_http::{
    ApiError, Bulk, Identity, Observes, Part, Person, RouteState, Service, Small, StreamLanguage,
    StreamPerson, listed,
};
use bongsu_live::{Entry, SubjectName, SubscriptionGuard, Target};
use futures_util::future::join_all;
use futures_util::stream;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::documents::{BatchResult, Batched, EventItem, Events, PublishAnswer};
use self::refusals::{not_allowed, not_opened, not_published, not_read};
use self::requests::{BatchBody, EventsQuery, PublishBody, Resume, ResumeMany, RoomPath, SubjectsQuery};
use crate::catch_up::Piece;
use crate::publish::Publish;
use crate::{Rooms, subject};

type RoomsState = RouteState<Rooms>;

impl FromRef<RoomsState> for Rooms {
    fn from_ref(state: &RoomsState) -> Self {
        state.part.clone()
    }
}

/// The routes of this part, with their documents.
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
/// Events of the room from now on; with a position, everything after it first. Every event carries its id, which a
/// browser's EventSource sends back by itself as `Last-Event-ID` when it reconnects. The first event is a
/// `presence.update` with who is there now. With the `X-Internal-Key` of a service beside the person's credentials, the
/// stream is not counted among those who are there.
#[utoipa::path(
    get,
    path = "/api/v1/rooms/{roomId}/stream",
    params(
        RoomPath,
        ResumeParams,
        ("lastEventId" = Option<String>, Query, description = "The same, for clients that cannot send headers. 0-0: from the beginning.", example = "0-0"),
        StreamParams,
    ),
    responses((status = 200, description = "The stream.", content_type = "text/event-stream", body = String, example = json!(documents::STREAM))),
    security(("person" = [])),
)]
async fn stream(
    _: StreamLanguage,
    Resume(position): Resume,
    caller: StreamPerson,
    observes: Observes,
    RoomPath { room }: RoomPath,
    State(rooms): State<Rooms>,
    State(identity): State<Identity>,
) -> Result<Response, ApiError> {
    let person = caller.person().clone();
    let user = person.id.clone();
    rooms.may_read(&room, &user).await.map_err(not_allowed)?;
    let stream = rooms.0.hub.open(caller, subject(&room), position).await.map_err(not_opened)?;
    if stream.is_ending() {
        return Ok(bongsu_http::stream::answer(stream));
    }
    identity.check_revoked(&person).await?;
    // Again, now that it is subscribed: a right that ends from here on ends the stream.
    rooms.may_read(&room, &user).await.map_err(not_allowed)?;
    let stream = stream.begin_with(rooms.join(&room, &user, observes).await);
    Ok(bongsu_http::stream::answer(stream))
}

/// Follow several rooms and the inbox
///
/// One connection for up to 32 rooms and, with `inbox=1`, the personal stream. `roomId` is added to the data of every
/// event of a room; the id holds the positions of all of them together, and is given back as it came, to a stream of the
/// same rooms. With `inbox=1` and no rooms it is the personal stream.
#[utoipa::path(
    get,
    path = "/api/v1/stream",
    params(
        SubjectsQuery,
        ResumeParams,
        ("lastEventId" = Option<String>, Query, description = "The same, for clients that cannot send headers. 0-0: from the beginning of all rooms.", example = "0-0"),
        StreamParams,
    ),
    responses((status = 200, description = "The stream.", content_type = "text/event-stream", body = String, example = json!(documents::STREAM))),
    security(("person" = [])),
)]
async fn stream_many(
    _: StreamLanguage,
    resume: ResumeMany,
    caller: StreamPerson,
    observes: Observes,
    query: SubjectsQuery,
    State(rooms): State<Rooms>,
    State(identity): State<Identity>,
) -> Result<Response, ApiError> {
    let person = caller.person().clone();
    let (user, hub) = (person.id.clone(), &rooms.0.hub);
    let (wanted, inbox) = query.subjects()?;
    let personal = if inbox { Some(hub.personal().ok_or_else(ApiError::no_records)?) } else { None };
    let position = match (resume, &personal) {
        (ResumeMany::Inbox(position), Some(personal)) => {
            return Ok(bongsu_http::stream::answer(personal.open(caller, position).await?));
        }
        (ResumeMany::Inbox(_), None) => None,
        (ResumeMany::Together(position), _) => position,
    };
    for room in &wanted {
        rooms.may_read(room, &user).await.map_err(not_allowed)?;
    }
    let mut targets: Vec<Target> = wanted.iter().cloned().map(Target::Room).collect();
    let mut subjects: Vec<SubjectName> = wanted.iter().map(subject).collect();
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
    let manner = personal.as_ref().map(|personal| personal.manner());
    let stream = hub.open_many(caller, subjects, manner).await.map_err(not_opened)?;
    if stream.is_ending() {
        return Ok(bongsu_http::stream::answer(stream));
    }
    identity.check_revoked(&person).await?;
    // Again, now that they are subscribed: a right that ends from here on ends its part of the stream.
    for room in &wanted {
        rooms.may_read(room, &user).await.map_err(not_allowed)?;
    }
    let joined = join_all(wanted.iter().map(|room| rooms.join(room, &user, observes))).await;
    let mut guards: Vec<Box<dyn SubscriptionGuard>> =
        joined.into_iter().map(|guard| Box::new(guard) as Box<dyn SubscriptionGuard>).collect();
    if let Some(personal) = &personal {
        guards.push(personal.join(&user, stream.ender()).await?);
    }
    Ok(bongsu_http::stream::answer(stream.begin_with(guards)))
}

/// Publish an event
///
/// The answer means that the event is durable. With an idempotency key, repeating the request within 24 hours gives
/// the first answer again.
#[utoipa::path(
    post,
    path = "/api/v1/notifications/publish",
    params(documents::TraceParam),
    request_body = PublishBody,
    responses(
        (status = 200, description = "Stored and on its way.", body = PublishAnswer),
        (status = 409, description = "The idempotency key was used for other content."),
    ),
    security(("service" = [])),
)]
async fn publish(
    _: Service,
    State(rooms): State<Rooms>,
    Small(body): Small,
) -> Result<Answer<PublishAnswer>, ApiError> {
    let event: PublishBody = body.read()?;
    let published = rooms.publish(event.into()).await.map_err(not_published)?;
    Ok(Answer(published.into()))
}

/// Publish up to 500 events
///
/// In the given order, each with an outcome of its own: one that is refused does not hold up the others.
#[utoipa::path(
    post,
    path = "/api/v1/notifications/publish/batch",
    params(documents::TraceParam),
    request_body = BatchBody,
    responses((status = 200, description = "An outcome for each event, in order.", body = Batched)),
    security(("service" = [])),
)]
async fn publish_batch(
    _: Service,
    State(rooms): State<Rooms>,
    Bulk(body): Bulk,
) -> Result<Answer<Batched>, ApiError> {
    let batch: BatchBody = body.read()?;
    let mut good: Vec<Publish> = Vec::new();
    let read: Vec<Result<(), ApiError>> =
        batch.events.into_iter().map(|event| event.map(|event| good.push(event.into()))).collect();
    let mut outcomes = rooms.publish_all(good).await.map_err(not_published)?.into_iter();
    let results = read.into_iter().enumerate().map(|(index, read)| {
        let outcome = read.and_then(|()| match outcomes.next() {
            Some(outcome) => outcome.map_err(not_published),
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
    Ok(Answer(Batched { results: results.collect() }))
}

/// Ask for missed events
///
/// Events after a position, oldest first. Ask on with `lastId` while `hasMore`.
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
    rooms.may_read(&room, &person.id).await.map_err(not_allowed)?;
    let missed = rooms.events_after(&room, since, count).await.map_err(|error| not_read(&error))?;
    let parts = stream::unfold(Some(missed), async |missed| {
        let mut missed = missed?;
        match missed.next().await {
            Piece::Events(events) => Some((Part::Items(items(events)), Some(missed))),
            Piece::Last(events, end) => Some((Part::Last(items(events), Events::of_page(end)), None)),
        }
    });
    listed("events", parts).await
}

fn items(events: Vec<Entry>) -> Vec<EventItem> {
    events.into_iter().map(EventItem::from).collect()
}
