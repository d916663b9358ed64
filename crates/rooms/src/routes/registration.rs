//! Registering rooms and members: no body, idempotent.

use axum::extract::{Path, State};
use bongsu_http::answer::{Answer, invalid};
use bongsu_http::{ApiError, Service};
use bongsu_kernel::Id;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::RoomsState;
use super::documents::{self, Member, Registered};
use super::refusals::not_registered;
use super::requests::RoomPath;
use crate::Rooms;

pub(super) fn router() -> OpenApiRouter<RoomsState> {
    OpenApiRouter::new().routes(routes!(register, unregister)).routes(routes!(add, remove))
}

/// Register a room
///
/// With `ROOMS_MODE=registered` only registered rooms can be followed and published to.
#[utoipa::path(
    put,
    path = "/api/v1/rooms/{roomId}",
    tag = "rooms",
    params(documents::RoomIdParam),
    responses((status = 200, description = "It is registered.", body = documents::RegisteredEnvelope)),
    security(("service" = [])),
)]
async fn register(
    _: Service,
    RoomPath(room_id): RoomPath,
    State(rooms): State<Rooms>,
) -> Result<Answer<Registered>, ApiError> {
    rooms.register(&room_id).await.map_err(not_registered)?;
    Ok(Answer(Registered { room_id }))
}

/// Delete a room
///
/// Ends its streams (3501) and deletes its log and its members.
#[utoipa::path(
    delete,
    path = "/api/v1/rooms/{roomId}",
    tag = "rooms",
    params(documents::RoomIdParam),
    responses((status = 200, description = "It is gone.", body = documents::RegisteredEnvelope)),
    security(("service" = [])),
)]
async fn unregister(
    _: Service,
    RoomPath(room_id): RoomPath,
    State(rooms): State<Rooms>,
) -> Result<Answer<Registered>, ApiError> {
    rooms.unregister(&room_id).await.map_err(not_registered)?;
    Ok(Answer(Registered { room_id }))
}

/// Add a member
#[utoipa::path(
    put,
    path = "/api/v1/rooms/{roomId}/members/{userId}",
    tag = "rooms",
    params(documents::RoomIdParam, documents::UserIdParam),
    responses((status = 200, description = "They are a member.", body = documents::MemberEnvelope)),
    security(("service" = [])),
)]
async fn add(
    _: Service,
    path: Path<(String, String)>,
    State(rooms): State<Rooms>,
) -> Result<Answer<Member>, ApiError> {
    let (room_id, user_id) = both(&path)?;
    rooms.add_member(&room_id, &user_id).await.map_err(not_registered)?;
    Ok(Answer(Member { room_id, user_id }))
}

/// Remove a member
///
/// With `ROOMS_MODE=registered` nothing that is published after this reaches them, and their streams of the room end
/// (3501).
#[utoipa::path(
    delete,
    path = "/api/v1/rooms/{roomId}/members/{userId}",
    tag = "rooms",
    params(documents::RoomIdParam, documents::UserIdParam),
    responses((status = 200, description = "They are no member.", body = documents::MemberEnvelope)),
    security(("service" = [])),
)]
async fn remove(
    _: Service,
    path: Path<(String, String)>,
    State(rooms): State<Rooms>,
) -> Result<Answer<Member>, ApiError> {
    let (room_id, user_id) = both(&path)?;
    rooms.remove_member(&room_id, &user_id).await.map_err(not_registered)?;
    Ok(Answer(Member { room_id, user_id }))
}

fn both(Path((room, user)): &Path<(String, String)>) -> Result<(Id, Id), ApiError> {
    let room = Id::new(room).map_err(|reason| invalid("roomId", reason))?;
    Ok((room, Id::new(user).map_err(|reason| invalid("userId", reason))?))
}
