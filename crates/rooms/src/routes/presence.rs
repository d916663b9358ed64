//! The routes that list the people in a room and take heartbeats.

use axum::extract::State;
use bongsu_http::answer::Answer;
use bongsu_http::{ApiError, ObserverFlag, Person};
use bongsu_kernel::Id;
use bongsu_kernel::clock::rfc3339;
use bongsu_limits::bucket::{Rate, RateLimitError};
use bongsu_presence::{Occupants, PresenceGuard};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::RoomsState;
use super::documents::{HeartbeatAnswer, OnlineUser, PresencePage};
use super::errors::{access_error, presence_error};
use super::requests::{PresenceQuery, RoomPath};
use crate::Rooms;

/// Maximum rate of the heartbeats of one person, to all rooms together. The rate is limited because each
/// heartbeat keeps a lease in memory for `PRESENCE_USER_TTL_SECS`.
const HEARTBEATS_PER_SECOND: f64 = 4.0;
const MAX_HEARTBEAT_BURST: u32 = 120;

pub(super) fn router() -> OpenApiRouter<RoomsState> {
    OpenApiRouter::new().routes(routes!(present)).routes(routes!(heartbeat))
}

impl Rooms {
    /// Adds a stream to a room. Unless the stream is an observer, its person becomes present.
    pub(super) async fn join(
        &self,
        room: &Id,
        user: &Id,
        ObserverFlag(is_observer): ObserverFlag,
    ) -> PresenceGuard {
        if is_observer { self.0.presence.observe(room).await } else { self.0.presence.join(room, user).await }
    }
}

/// List the people in a room
///
/// List the people with a stream or a WebSocket of the room, and those who sent a heartbeat in the last
/// `PRESENCE_USER_TTL_SECS` seconds (default: 60). Pass `nextCursor` as `cursor` to get the next page.
#[utoipa::path(
    get,
    path = "/api/v1/rooms/{roomId}/presence",
    params(RoomPath, PresenceQuery),
    responses((status = 200, description = "A page of the people in the room.", body = PresencePage)),
    security(("person" = [])),
)]
async fn present(
    person: Person,
    RoomPath { room }: RoomPath,
    PresenceQuery { limit, cursor }: PresenceQuery,
    State(rooms): State<Rooms>,
) -> Result<Answer<PresencePage>, ApiError> {
    rooms.may_read(&room, &person.id).await.map_err(access_error)?;
    let occupants = rooms.0.presence.occupants(&room, cursor.as_ref(), limit).await;
    let Occupants { count, online, has_more, .. } = occupants.map_err(|error| presence_error(&error))?;
    let next_cursor = online.last().filter(|_| has_more).map(|last| last.user.to_string());
    let online_users = online
        .into_iter()
        .map(|online| OnlineUser { user_id: online.user, last_seen: rfc3339(online.last_seen) });
    Ok(Answer(PresencePage { online_users: online_users.collect(), count, next_cursor }))
}

/// Send a heartbeat
///
/// Stay present in a room without a stream. Repeat the heartbeat after `nextInSecs` seconds. A person may
/// send 4 heartbeats per second to all rooms together.
#[utoipa::path(
    post,
    path = "/api/v1/rooms/{roomId}/presence/heartbeat",
    params(RoomPath),
    responses((status = 200, description = "The person is present.", body = HeartbeatAnswer)),
    security(("person" = [])),
)]
async fn heartbeat(
    person: Person,
    RoomPath { room }: RoomPath,
    State(rooms): State<Rooms>,
) -> Result<Answer<HeartbeatAnswer>, ApiError> {
    rooms.may_read(&room, &person.id).await.map_err(access_error)?;
    let rate = Rate::new(HEARTBEATS_PER_SECOND, MAX_HEARTBEAT_BURST).ok_or_else(ApiError::unexpected)?;
    match rooms.0.buckets.take(&format!("heartbeat:{}", person.id), rate, 1).await {
        // While the engine is unavailable the heartbeat itself fails below, with its own error.
        Ok(()) | Err(RateLimitError::Unavailable(_)) => {}
        Err(RateLimitError::RetryAfter(_) | RateLimitError::ExceedsBurst) => {
            return Err(ApiError::too_many(
                "너무 잦은 신호입니다.",
                "Too many heartbeats; send at most 4 per second.",
            ));
        }
    }
    let next = rooms.0.presence.heartbeat(&room, &person.id).await.map_err(|error| presence_error(&error))?;
    Ok(Answer(HeartbeatAnswer { acknowledged: true, next_in_secs: next.as_secs().max(1) }))
}
