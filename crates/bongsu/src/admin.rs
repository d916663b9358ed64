//! What operators may do to people: end what they have open, and make their tokens worthless.

use std::sync::Arc;

use axum::extract::{FromRef, State};
use bongsu_coordination::{Error, Order, Orders};
use bongsu_http::answer::Answer;
use bongsu_http::openapi::IdSchema;
use bongsu_http::request::text_id;
use bongsu_http::{ApiError, Identity, Operator, request};
use bongsu_kernel::{Clock, Code, Id};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) orders: Arc<dyn Orders>,
    pub(crate) identity: Identity,
    pub(crate) clock: Clock,
}

impl FromRef<Admin> for Identity {
    fn from_ref(state: &Admin) -> Self {
        state.identity.clone()
    }
}

pub(crate) fn router(admin: Admin) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(disconnect)).routes(routes!(revoke)).with_state(admin)
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Ordered {
    #[schema(value_type = IdSchema)]
    user_id: Id,
}

request! {
    path UserPath {
        /// The person.
        user_id as "userId": Id = text_id("1001"),
    }
}

/// Disconnect a person
///
/// Ends all streams and WebSockets of the person over the whole fleet (3001). They may come back.
#[utoipa::path(
    post,
    path = "/api/admin/users/{userId}/disconnect",
    tag = "operating",
    params(UserPath),
    responses((status = 200, description = "It is on its way to every hub.", body = Ordered)),
    security(("operator" = [])),
)]
async fn disconnect(
    _: Operator,
    UserPath { user_id }: UserPath,
    State(admin): State<Admin>,
) -> Result<Answer<Ordered>, ApiError> {
    give(&admin, Order::Disconnect { user: user_id.clone() }).await?;
    Ok(Answer(Ordered { user_id }))
}

/// Revoke a person's tokens
///
/// Tokens that were issued before now are worth nothing any more, and what was opened with them ends (3502), over the
/// whole fleet.
#[utoipa::path(
    post,
    path = "/api/admin/users/{userId}/revoke",
    tag = "operating",
    params(UserPath),
    responses((status = 200, description = "It is on its way to every hub.", body = Ordered)),
    security(("operator" = [])),
)]
async fn revoke(
    _: Operator,
    UserPath { user_id }: UserPath,
    State(admin): State<Admin>,
) -> Result<Answer<Ordered>, ApiError> {
    let order = Order::Revoke { user: user_id.clone(), issued_before: admin.clock.now() };
    give(&admin, order).await?;
    Ok(Answer(Ordered { user_id }))
}

async fn give(admin: &Admin, order: Order) -> Result<(), ApiError> {
    admin.orders.give(order).await.map_err(|error| {
        tracing::error!(%error, "an order could not be given");
        match error {
            Error::Refused(_) => {
                ApiError::of(Code::Redis5002, "Redis가 요청을 거부했습니다.", "Redis refused the command.")
            }
            Error::Records(_) => ApiError::of(
                Code::Common503,
                "적용되었지만 데이터베이스에 기록하지 못했습니다. 다시 시도해 주세요.",
                "It is in force, but the database could not record it; repeat it.",
            ),
            _ => ApiError::of(
                Code::Redis5001,
                "지금은 처리할 수 없습니다. 다시 시도해 주세요.",
                "It could not be done for certain right now; repeat it.",
            ),
        }
    })
}
