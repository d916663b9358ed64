//! Registering rooms and members: no body, idempotent.

use axum::extract::State;
use bongsu_http::answer::Answer;
use bongsu_http::{ApiError, Service};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::RoomsState;
use super::documents::{Member, Registered};
use super::refusals::not_registered;
use super::requests::{MemberPath, RoomPath};
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
    params(RoomPath),
    responses((status = 200, description = "It is registered.", body = Registered)),
    security(("service" = [])),
)]
async fn register(
    _: Service,
    RoomPath { room: room_id }: RoomPath,
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
    params(RoomPath),
    responses((status = 200, description = "It is gone.", body = Registered)),
    security(("service" = [])),
)]
async fn unregister(
    _: Service,
    RoomPath { room: room_id }: RoomPath,
    State(rooms): State<Rooms>,
) -> Result<Answer<Registered>, ApiError> {
    rooms.unregister(&room_id).await.map_err(not_registered)?;
    Ok(Answer(Registered { room_id }))
}

/// Add a member
#[utoipa::path(
    put,
    path = "/api/v1/rooms/{roomId}/members/{userId}",
    params(MemberPath),
    responses((status = 200, description = "They are a member.", body = Member)),
    security(("service" = [])),
)]
async fn add(
    _: Service,
    MemberPath { room: room_id, user: user_id }: MemberPath,
    State(rooms): State<Rooms>,
) -> Result<Answer<Member>, ApiError> {
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
    params(MemberPath),
    responses((status = 200, description = "They are no member.", body = Member)),
    security(("service" = [])),
)]
async fn remove(
    _: Service,
    MemberPath { room: room_id, user: user_id }: MemberPath,
    State(rooms): State<Rooms>,
) -> Result<Answer<Member>, ApiError> {
    rooms.remove_member(&room_id, &user_id).await.map_err(not_registered)?;
    Ok(Answer(Member { room_id, user_id }))
}
