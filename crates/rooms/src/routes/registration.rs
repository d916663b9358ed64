//! The routes that register and remove rooms and members. All are idempotent and take no body.

use axum::extract::State;
use bongsu_http::answer::Answer;
use bongsu_http::{ApiError, Service};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::RoomsState;
use super::documents::{MemberAnswer, RoomAnswer};
use super::errors::registration_error;
use super::requests::{MemberPath, RoomPath};
use crate::Rooms;

pub(super) fn router() -> OpenApiRouter<RoomsState> {
    OpenApiRouter::new().routes(routes!(register, unregister)).routes(routes!(add, remove))
}

/// Register a room
///
/// Add a room to the registered rooms. With `ROOMS_MODE=registered`, people can read and services can publish
/// to registered rooms only.
#[utoipa::path(
    put,
    path = "/api/v1/rooms/{roomId}",
    params(RoomPath),
    responses((status = 200, description = "The room is registered.", body = RoomAnswer)),
    security(("service" = [])),
)]
async fn register(
    _: Service,
    RoomPath { room: room_id }: RoomPath,
    State(rooms): State<Rooms>,
) -> Result<Answer<RoomAnswer>, ApiError> {
    rooms.register(&room_id).await.map_err(registration_error)?;
    Ok(Answer(RoomAnswer { room_id }))
}

/// Delete a room
///
/// Close the room's streams (3501), and delete its log and its members.
#[utoipa::path(
    delete,
    path = "/api/v1/rooms/{roomId}",
    params(RoomPath),
    responses((status = 200, description = "The room is not registered.", body = RoomAnswer)),
    security(("service" = [])),
)]
async fn unregister(
    _: Service,
    RoomPath { room: room_id }: RoomPath,
    State(rooms): State<Rooms>,
) -> Result<Answer<RoomAnswer>, ApiError> {
    rooms.unregister(&room_id).await.map_err(registration_error)?;
    Ok(Answer(RoomAnswer { room_id }))
}

/// Add a member
#[utoipa::path(
    put,
    path = "/api/v1/rooms/{roomId}/members/{userId}",
    params(MemberPath),
    responses((status = 200, description = "The person is a member.", body = MemberAnswer)),
    security(("service" = [])),
)]
async fn add(
    _: Service,
    MemberPath { room: room_id, user: user_id }: MemberPath,
    State(rooms): State<Rooms>,
) -> Result<Answer<MemberAnswer>, ApiError> {
    rooms.add_member(&room_id, &user_id).await.map_err(registration_error)?;
    Ok(Answer(MemberAnswer { room_id, user_id }))
}

/// Remove a member
///
/// End the membership. With `ROOMS_MODE=registered`, the person receives no event that is published later,
/// and the person's streams of the room close (3501).
#[utoipa::path(
    delete,
    path = "/api/v1/rooms/{roomId}/members/{userId}",
    params(MemberPath),
    responses((status = 200, description = "The person is not a member.", body = MemberAnswer)),
    security(("service" = [])),
)]
async fn remove(
    _: Service,
    MemberPath { room: room_id, user: user_id }: MemberPath,
    State(rooms): State<Rooms>,
) -> Result<Answer<MemberAnswer>, ApiError> {
    rooms.remove_member(&room_id, &user_id).await.map_err(registration_error)?;
    Ok(Answer(MemberAnswer { room_id, user_id }))
}
