//! The HTTP route of topics.

use std::collections::BTreeMap;

use axum::extract::State;
use bongsu_http::answer::{AcceptedAnswer, invalid};
use bongsu_http::openapi::{IdSchema, tagged};
use bongsu_http::request::{event_data, id, text, text_id};
use bongsu_http::{ApiError, Identity, RouteState, Service, SmallBody, request};
use bongsu_kernel::json::Object;
use bongsu_kernel::text::Text;
use bongsu_kernel::{Clock, Code, Id, Reason, random, trace};
use bongsu_queue::{DomainEvent, PublishFailure, QueueMessage, Queues};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Characters of the type of an event.
const MAX_TYPE_LEN: usize = 128;

#[derive(Clone)]
struct Topics {
    queues: Queues,
    clock: Clock,
}

/// None when RECORDS is off.
type TopicsState = RouteState<Option<Topics>>;

pub(crate) fn router(queues: Option<Queues>, identity: Identity, clock: Clock) -> OpenApiRouter {
    let part = queues.map(|queues| Topics { queues, clock });
    tagged("topics", OpenApiRouter::new().routes(routes!(publish)).with_state(TopicsState { part, identity }))
}

request! {
    path TopicPath {
        /// The topic, such as `notification.POST_LIKE`.
        topic: Id = text_id("notification.POST_LIKE"),
    }

    /// A domain event.
    body EventBody {
        /// Identifies the event: a repeated event with the same id has no second effect. Without it, the hub chooses one.
        event_id as "eventId": Option<Id> = id().optional(),
        /// What happened.
        kind as "type": String = text(MAX_TYPE_LEN).example("POST_LIKE"),
        /// Events with the same key are handled one after the other, in the order in which they were accepted. It is also
        /// the `targetId` of the event.
        key: Option<Id> = id().optional(),
        /// The person who caused the event.
        actor_id as "actorId": Option<Id> = id().optional(),
        /// What the event is about, such as a post.
        ref_id as "refId": Option<Id> = id().optional(),
        /// What the type of the event adds.
        data: Option<Object> = event_data("").example(json!({"actorName": "Ada"})).optional(),
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct AcceptedEvent {
    /// The id of the event, with which the request can be repeated.
    #[schema(value_type = IdSchema, example = "like-981")]
    event_id: Id,
    #[schema(example = "notification.POST_LIKE")]
    topic: String,
}

/// Publish a domain event
///
/// The event is durable when the response arrives, and is handled afterwards. A topic to which no queue is bound is
/// refused, because its events would be lost.
#[utoipa::path(
    post,
    path = "/api/v1/topics/{topic}/events",
    params(TopicPath),
    request_body = EventBody,
    responses((status = 202, description = "The event is stored, and will be handled.", body = AcceptedEvent)),
    security(("service" = [])),
)]
async fn publish(
    _: Service,
    TopicPath { topic }: TopicPath,
    State(state): State<TopicsState>,
    SmallBody(body): SmallBody,
) -> Result<AcceptedAnswer<AcceptedEvent>, ApiError> {
    let EventBody { event_id, kind, key, actor_id, ref_id, data } = body.read()?;
    let Topics { queues, clock } = state.get()?;
    let event_id = event_id.or_else(|| Id::new(&random::uuid()).ok()).ok_or_else(ApiError::unexpected)?;
    let event = DomainEvent {
        event_id: event_id.clone(),
        event_type: kind,
        occurred_at: Some(clock.now()),
        actor_id,
        target_id: key.clone(),
        ref_id,
        payload: data,
    };
    let trace = trace::current().map(|trace| ("traceparent".to_owned(), trace.as_str().to_owned()));
    let message = QueueMessage {
        id: event_id.clone(),
        topic: topic.clone(),
        key,
        headers: BTreeMap::from_iter(trace),
        payload: event.to_json().into(),
    };
    queues.publish(&[message]).await.map_err(publish_error)?;
    Ok(AcceptedAnswer(AcceptedEvent { event_id, topic: topic.as_str().to_owned() }))
}

fn publish_error(failure: PublishFailure) -> ApiError {
    match failure {
        PublishFailure::UnboundTopic(_) => {
            let text = Text::new("이 토픽을 받는 큐가 없습니다", "no queue is bound to this topic");
            invalid("topic", Reason::Custom(text))
        }
        PublishFailure::Records(error) if error.is_store_failure() => {
            // At level debug, because this happens for every request; the records log the outage once.
            tracing::debug!(%error, "the database of the queues is unavailable; answering COMMON503");
            ApiError::of(
                Code::Common503,
                "지금은 이벤트를 저장할 수 없습니다.",
                "The event was not stored: the database is not available right now.",
            )
        }
        PublishFailure::Records(error) => {
            tracing::error!(%error, "failed to store a domain event; answering COMMON500");
            ApiError::unexpected()
        }
    }
}
