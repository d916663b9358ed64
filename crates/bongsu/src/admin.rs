//! Access commands over HTTP: operators disconnect a person or revoke the person's tokens.

use std::sync::Arc;

use axum::extract::State;
use bongsu_coordination::{AccessCommand, AccessCommands, Error};
use bongsu_http::answer::Answer;
use bongsu_http::openapi::IdSchema;
use bongsu_http::request::text_id;
use bongsu_http::{ApiError, Identity, Operator, RouteState, request};
use bongsu_kernel::{Clock, Code, Id};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) access_commands: Arc<dyn AccessCommands>,
    pub(crate) clock: Clock,
}

type AdminState = RouteState<Admin>;

pub(crate) fn router(admin: Admin, identity: Identity) -> OpenApiRouter {
    let state = AdminState { part: admin, identity };
    OpenApiRouter::new().routes(routes!(disconnect)).routes(routes!(revoke)).with_state(state)
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AccessCommandAnswer {
    #[schema(value_type = IdSchema)]
    user_id: Id,
}

request! {
    path UserPath {
        /// The id of the person.
        user_id as "userId": Id = text_id("1001"),
    }
}

/// Disconnect a person
///
/// Close all streams and WebSockets of the person in the whole fleet, with the close code 3001. The person's
/// clients may reconnect.
#[utoipa::path(
    post,
    path = "/api/admin/users/{userId}/disconnect",
    tag = "operating",
    params(UserPath),
    responses((status = 200, description = "The command is accepted; every instance of the fleet carries it out.", body = AccessCommandAnswer)),
    security(("operator" = [])),
)]
async fn disconnect(
    _: Operator,
    UserPath { user_id }: UserPath,
    State(state): State<AdminState>,
) -> Result<Answer<AccessCommandAnswer>, ApiError> {
    issue(&state.part, AccessCommand::Disconnect { user: user_id.clone() }).await?;
    Ok(Answer(AccessCommandAnswer { user_id }))
}

/// Revoke a person's tokens
///
/// Refuse tokens of the person that were issued before now, and close streams and WebSockets that were opened
/// with such tokens, with the close code 3502. Takes effect in the whole fleet.
#[utoipa::path(
    post,
    path = "/api/admin/users/{userId}/revoke",
    tag = "operating",
    params(UserPath),
    responses((status = 200, description = "The command is accepted; every instance of the fleet carries it out.", body = AccessCommandAnswer)),
    security(("operator" = [])),
)]
async fn revoke(
    _: Operator,
    UserPath { user_id }: UserPath,
    State(state): State<AdminState>,
) -> Result<Answer<AccessCommandAnswer>, ApiError> {
    let command = AccessCommand::Revoke { user: user_id.clone(), issued_before: state.part.clock.now() };
    issue(&state.part, command).await?;
    Ok(Answer(AccessCommandAnswer { user_id }))
}

async fn issue(admin: &Admin, command: AccessCommand) -> Result<(), ApiError> {
    admin.access_commands.issue(command).await.map_err(|error| {
        tracing::error!(%error, "failed to issue an access command; answering with an error");
        match error {
            Error::Refused(_) => ApiError::redis_refused(),
            Error::Records(_) => ApiError::of(
                Code::Common503,
                "적용되었지만 데이터베이스에 기록하지 못했습니다. 다시 시도해 주세요.",
                "The command is in force, but the database could not record it; repeat the request.",
            ),
            _ => ApiError::of(
                Code::Redis5001,
                "지금은 처리할 수 없습니다. 다시 시도해 주세요.",
                "The outcome is unknown, because Redis did not confirm the command; repeat the request.",
            ),
        }
    })
}
