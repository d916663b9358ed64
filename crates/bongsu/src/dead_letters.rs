//! Dead letters over HTTP, for operators.
//!
//! The handlers convert requests and answers; each queue implements its operations ([`DeadLetters`]).

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use bongsu_http::answer::{AcceptedAnswer, Answer, invalid};
use bongsu_http::openapi::{IdSchema, tagged};
use bongsu_http::request::{FieldKind, flag, limit, whole};
use bongsu_http::{ApiError, Identity, Operator, RouteState, SmallBody, request};
use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::text::Text;
use bongsu_kernel::{Id, Reason};
use bongsu_part::{DeadLetter, DeadLetters, MAX_DEAD_LETTERS};
use bongsu_sql::Error;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

const DEFAULT_PAGE_SIZE: usize = 20;
/// Dead letters per second.
const DEFAULT_REDRIVE_RATE: u64 = 100;
/// Dead letters per second.
const MAX_REDRIVE_RATE: u64 = 10_000;

/// Requests to redrive a whole queue that may be pending.
const MAX_PENDING_REDRIVES: usize = 16;

#[derive(Clone)]
struct Letters {
    queues: Arc<[Arc<dyn DeadLetters>]>,
    redrives: mpsc::Sender<RedriveAll>,
}

type LettersState = RouteState<Letters>;

impl Letters {
    fn queue(&self, name: &str) -> Result<&Arc<dyn DeadLetters>, ApiError> {
        self.queues.iter().find(|queue| queue.name() == name).ok_or_else(ApiError::not_found)
    }
}

request! {
    path QueuePath {
        /// The name of the queue.
        queue: String = queue_name(),
    }

    path LetterPath {
        /// The name of the queue.
        queue: String = queue_name(),
        /// The id of the dead letter.
        id: i64 = letter_id(json!({"type": "string"})).example("17"),
    }

    query LettersQuery {
        /// The `nextCursor` of the previous page: only dead letters after this id are listed.
        cursor: Option<i64> = letter_id(json!({"type": "string"})).optional(),
        /// The maximum number of dead letters in the page.
        limit: usize = limit(MAX_DEAD_LETTERS as u64, DEFAULT_PAGE_SIZE),
    }

    /// The dead letters to redrive: those with the given `ids`, or, with `all`, every dead letter of the queue,
    /// at `rate` dead letters per second.
    body Redrive {
        rate: u64 = whole(1, MAX_REDRIVE_RATE).or(DEFAULT_REDRIVE_RATE),
        all: bool = flag().or(false),
        ids: Option<Vec<i64>> = request::list(letter_id(request::id_schema()), 0..=MAX_DEAD_LETTERS).example(json!([17, 18])).optional(),
    }
}

fn queue_name() -> FieldKind<String> {
    FieldKind::new(json!({"type": "string"}), |given| Ok(given.text()?.into_owned())).example("outbox")
}

/// The id of a dead letter, in the form that answers use.
fn letter_id(schema: Value) -> FieldKind<i64> {
    FieldKind::new(schema, |given| {
        let id = given.id().ok();
        let number =
            id.and_then(|id| id.as_str().parse().ok().filter(|n: &i64| n.to_string() == id.as_str()));
        Ok(number.ok_or(Reason::Integer { min: 0, max: i64::MAX as u64 })?)
    })
}

pub(crate) fn router(
    queues: Vec<Arc<dyn DeadLetters>>,
    identity: Identity,
    supervisor: &Supervisor,
) -> OpenApiRouter {
    let letters = Letters { queues: queues.into(), redrives: start_redriving(supervisor) };
    let routes = OpenApiRouter::new()
        .routes(routes!(list_queues))
        .routes(routes!(list))
        .routes(routes!(show, discard))
        .routes(routes!(redrive))
        .with_state(LettersState { part: letters, identity });
    tagged("operating", routes)
}

/// A refused statement is a bug and answers 500; an unavailable database answers 503.
#[expect(clippy::needless_pass_by_value, reason = "passed to map_err")]
fn records_error(error: Error) -> ApiError {
    if let Error::Failed(_) = error {
        tracing::error!(%error, "failed to run a query of dead letters; answering COMMON500");
        return ApiError::unexpected();
    }
    ApiError::database_unavailable()
}

#[derive(Serialize, ToSchema)]
struct Queues {
    queues: Vec<Queue>,
}

#[derive(Serialize, ToSchema)]
struct Queue {
    #[schema(example = "outbox")]
    queue: &'static str,
    /// The number of dead letters in the queue.
    #[schema(example = 3)]
    depth: u64,
}

/// List the queues of dead letters
#[utoipa::path(
    get,
    path = "/api/admin/dlq",
    responses((status = 200, description = "Every queue, with its number of dead letters.", body = Queues)),
    security(("operator" = [])),
)]
async fn list_queues(_: Operator, State(state): State<LettersState>) -> Result<Answer<Queues>, ApiError> {
    let mut queues = Vec::with_capacity(state.part.queues.len());
    for queue in &*state.part.queues {
        queues.push(Queue { queue: queue.name(), depth: queue.depth().await.map_err(records_error)? });
    }
    Ok(Answer(Queues { queues }))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeadLetterAnswer {
    #[schema(value_type = IdSchema, example = 17)]
    id: Id,
    /// The target of the outbox row, or the subject of the follow-up record, such as `room:42`.
    #[schema(example = "42")]
    key: String,
    #[schema(example = "proposal.created.v1")]
    r#type: String,
    /// The payload as stored, which may be invalid; null when it is too large to be shown.
    payload: Option<String>,
    attempts: u64,
    reason: String,
    #[schema(example = "2026-02-16T10:30:00.000Z")]
    created_at: String,
}

impl From<DeadLetter> for DeadLetterAnswer {
    fn from(letter: DeadLetter) -> Self {
        let DeadLetter { id, key, kind, payload, attempts, reason, created_at } = letter;
        Self { id: id.into(), key, r#type: kind, payload, attempts, reason, created_at: rfc3339(created_at) }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeadLetterPage {
    letters: Vec<DeadLetterAnswer>,
    /// The `cursor` of the next page; null on the last page.
    #[schema(example = "17")]
    next_cursor: Option<String>,
}

/// List dead letters
///
/// List the dead letters of a queue in the order of their ids. Pass `nextCursor` of one page as `cursor` to
/// get the next page.
#[utoipa::path(
    get,
    path = "/api/admin/dlq/{queue}",
    params(QueuePath, LettersQuery),
    responses((status = 200, description = "A page of dead letters.", body = DeadLetterPage)),
    security(("operator" = [])),
)]
async fn list(
    _: Operator,
    QueuePath { queue }: QueuePath,
    LettersQuery { cursor, limit }: LettersQuery,
    State(state): State<LettersState>,
) -> Result<Answer<DeadLetterPage>, ApiError> {
    let queue = state.part.queue(&queue)?;
    let mut letters = queue.list_after(cursor.unwrap_or(i64::MIN), limit + 1).await.map_err(records_error)?;
    let has_more = letters.len() > limit;
    letters.truncate(limit);
    let next_cursor = letters.last().filter(|_| has_more).map(|letter| letter.id.to_string());
    let letters = letters.into_iter().map(DeadLetterAnswer::from).collect();
    Ok(Answer(DeadLetterPage { letters, next_cursor }))
}

/// Show a dead letter
#[utoipa::path(
    get,
    path = "/api/admin/dlq/{queue}/{id}",
    params(LetterPath),
    responses((status = 200, description = "The dead letter, with the reason why it was given up.", body = DeadLetterAnswer)),
    security(("operator" = [])),
)]
async fn show(
    _: Operator,
    LetterPath { queue, id }: LetterPath,
    State(state): State<LettersState>,
) -> Result<Answer<DeadLetterAnswer>, ApiError> {
    let queue = state.part.queue(&queue)?;
    let found = queue.list_after(id.saturating_sub(1), 1).await.map_err(records_error)?;
    let letter = found.into_iter().next().filter(|letter| letter.id == id).ok_or_else(ApiError::not_found)?;
    Ok(Answer(DeadLetterAnswer::from(letter)))
}

#[derive(Serialize, ToSchema)]
struct DiscardAnswer {
    #[schema(value_type = IdSchema, example = 17)]
    id: Id,
}

/// Discard a dead letter
///
/// Remove the dead letter from its queue for good. A follow-up record is deleted. An outbox row stays
/// readable by streams until its retention ends.
#[utoipa::path(
    delete,
    path = "/api/admin/dlq/{queue}/{id}",
    params(LetterPath),
    responses((status = 200, description = "The dead letter has been removed from its queue.", body = DiscardAnswer)),
    security(("operator" = [])),
)]
async fn discard(
    _: Operator,
    LetterPath { queue, id }: LetterPath,
    State(state): State<LettersState>,
) -> Result<Answer<DiscardAnswer>, ApiError> {
    let queue = state.part.queue(&queue)?;
    if queue.discard(id).await.map_err(records_error)? {
        Ok(Answer(DiscardAnswer { id: id.into() }))
    } else {
        Err(ApiError::not_found())
    }
}

#[derive(Serialize, ToSchema)]
struct RedriveAnswer {
    /// With `ids`, the number of dead letters that left the queue; with `all`, the number in the queue at the
    /// time of the request.
    #[schema(example = 2)]
    letters: u64,
}

/// Redrive dead letters
///
/// Handle dead letters again, without keeping the order of those with the same key. An outbox row keeps its
/// id. A dead letter that can never succeed, such as one whose payload is not JSON, stays in the queue.
#[utoipa::path(
    post,
    path = "/api/admin/dlq/{queue}/redrive",
    params(QueuePath),
    request_body = Redrive,
    responses((status = 202, description = "The redrive has been accepted; with `all`, it continues after the response.", body = RedriveAnswer)),
    security(("operator" = [])),
)]
async fn redrive(
    _: Operator,
    QueuePath { queue }: QueuePath,
    State(state): State<LettersState>,
    SmallBody(body): SmallBody,
) -> Result<AcceptedAnswer<RedriveAnswer>, ApiError> {
    let queue = state.part.queue(&queue)?;
    let Redrive { rate, all, ids } = body.read()?;
    if all {
        if ids.is_some() {
            let text = Text::new("all과 함께 쓸 수 없습니다", "must not be combined with all");
            return Err(invalid("ids", Reason::Custom(text)));
        }
        let letters = queue.depth().await.map_err(records_error)?;
        let request = RedriveAll { queue: queue.clone(), rate, letters };
        state.part.redrives.try_send(request).map_err(|_| {
            ApiError::too_many(
                "이미 처리 중입니다.",
                "Too many redrives of whole queues are waiting; try again later.",
            )
        })?;
        return Ok(AcceptedAnswer(RedriveAnswer { letters }));
    }
    let ids = ids.ok_or_else(|| invalid("ids", Reason::Required))?;
    Ok(AcceptedAnswer(RedriveAnswer { letters: queue.redrive(ids).await.map_err(records_error)? }))
}

/// A request to redrive all dead letters of a queue.
struct RedriveAll {
    queue: Arc<dyn DeadLetters>,
    /// Dead letters per second.
    rate: u64,
    /// The dead letters at the time of the request.
    letters: u64,
}

/// Starts the loop that redrives whole queues one after the other, and returns the sender of requests.
fn start_redriving(supervisor: &Supervisor) -> mpsc::Sender<RedriveAll> {
    supervisor.queue("dlq-redrive", (MAX_PENDING_REDRIVES, 1), |requests: Vec<RedriveAll>| async move {
        for RedriveAll { queue, rate, letters } in requests {
            match redrive_all(&*queue, rate, letters).await {
                Ok(redriven) => {
                    tracing::info!(queue = queue.name(), redriven, "finished redriving the dead letters of a queue");
                }
                Err(error) => {
                    tracing::warn!(queue = queue.name(), %error, "failed to redrive a queue; the remaining dead letters stay in it");
                }
            }
        }
    })
}

/// Redrives as many dead letters as the queue had at the time of the request, in the order of ids.
async fn redrive_all(queue: &dyn DeadLetters, rate: u64, letters: u64) -> Result<u64, Error> {
    let rate = usize::try_from(rate).unwrap_or(MAX_DEAD_LETTERS);
    // One that fails again may get a new id at the end of the queue, which is not visited.
    let mut remaining = usize::try_from(letters).unwrap_or(usize::MAX);
    let (mut after, mut redriven) = (i64::MIN, 0);
    loop {
        let letters = queue.list_after(after, rate.min(MAX_DEAD_LETTERS).min(remaining)).await?;
        let ids: Vec<i64> = letters.iter().map(|letter| letter.id).collect();
        let Some(last) = ids.last() else { return Ok(redriven) };
        after = *last;
        remaining -= ids.len();
        let pause = Duration::from_secs(1).mul_f64(ids.len() as f64 / rate as f64);
        redriven += queue.redrive(ids).await?;
        tokio::time::sleep(pause).await;
    }
}
