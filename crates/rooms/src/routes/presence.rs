//! Who is in a room, and the sign of those without a stream.

use axum::extract::State;
use bongsu_http::answer::Answer;
use bongsu_http::{ApiError, Observes, Person};
use bongsu_kernel::Id;
use bongsu_kernel::clock::rfc3339;
use bongsu_limits::bucket::{Rate, Refused};
use bongsu_presence::{Joined, Who};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::RoomsState;
use super::documents::{Acknowledged, OnlineUser, Present};
use super::refusals::{no_presence, not_allowed};
use super::requests::{PresenceQuery, RoomPath};
use crate::Rooms;

/// Signs of life that one person may send, in all rooms together: each leaves something in memory for a minute.
const BEATS_PER_SECOND: f64 = 4.0;
const BEATS_AT_ONCE: u32 = 120;

pub(super) fn router() -> OpenApiRouter<RoomsState> {
    OpenApiRouter::new().routes(routes!(present)).routes(routes!(heartbeat))
}

impl Rooms {
    /// A stream of a person follows a room from now on.
    pub(super) async fn join(&self, room: &Id, user: &Id, Observes(observes): Observes) -> Joined {
        if observes { self.0.presence.observed(room).await } else { self.0.presence.joined(room, user).await }
    }
}

/// Who is there
///
/// People with a stream or a WebSocket on the room, and those who sent a heartbeat within the last minute. `count` is of the
/// whole room. `nextCursor`, there when others follow, is given back as `cursor` for the page after this one.
#[utoipa::path(
    get,
    path = "/api/v1/rooms/{roomId}/presence",
    params(RoomPath, PresenceQuery),
    responses((status = 200, description = "Who is there.", body = Present)),
    security(("person" = [])),
)]
async fn present(
    person: Person,
    RoomPath { room }: RoomPath,
    PresenceQuery { limit, cursor }: PresenceQuery,
    State(rooms): State<Rooms>,
) -> Result<Answer<Present>, ApiError> {
    rooms.may_read(&room, &person.id).await.map_err(not_allowed)?;
    let who = rooms.0.presence.who(&room, cursor.as_ref(), limit).await;
    let Who { count, online, has_more, .. } = who.map_err(|error| no_presence(&error))?;
    let next_cursor = online.last().filter(|_| has_more).map(|last| last.user.to_string());
    let online_users = online
        .into_iter()
        .map(|online| OnlineUser { user_id: online.user, last_seen: rfc3339(online.last_seen) });
    Ok(Answer(Present { online_users: online_users.collect(), count, next_cursor }))
}

/// I am still there
///
/// For those who look at a room without a stream, every 30 seconds. More than 4 a second of one person are refused.
#[utoipa::path(
    post,
    path = "/api/v1/rooms/{roomId}/presence/heartbeat",
    params(RoomPath),
    responses((status = 200, description = "Noted.", body = Acknowledged)),
    security(("person" = [])),
)]
async fn heartbeat(
    person: Person,
    RoomPath { room }: RoomPath,
    State(rooms): State<Rooms>,
) -> Result<Answer<Acknowledged>, ApiError> {
    rooms.may_read(&room, &person.id).await.map_err(not_allowed)?;
    let rate = Rate::new(BEATS_PER_SECOND, BEATS_AT_ONCE).ok_or_else(ApiError::unexpected)?;
    match rooms.0.buckets.take(&format!("heartbeat:{}", person.id), rate, 1).await {
        // Presence itself says what is wrong with an engine that is away.
        Ok(()) | Err(Refused::Away(_)) => {}
        Err(Refused::RetryAfter(_) | Refused::Never) => {
            return Err(ApiError::too_many("너무 잦은 신호입니다.", "Too many signs of life; send fewer."));
        }
    }
    let next = rooms.0.presence.heartbeat(&room, &person.id).await.map_err(|error| no_presence(&error))?;
    Ok(Answer(Acknowledged { acknowledged: true, next_in_secs: next.as_secs().max(1) }))
}
