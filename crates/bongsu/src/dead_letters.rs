//! Dead letters over HTTP, for operators.
//!
//! Requests are read and answers written here; what a queue does with its letters is its own affair ([`DeadLetters`]).

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRef, State};
use bongsu_http::answer::{Accepted, Answer, invalid};
use bongsu_http::openapi::{IdSchema, tagged};
use bongsu_http::request::{Kind, flag, limit, whole};
use bongsu_http::{ApiError, Identity, Operator, Small, request};
use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::text::Text;
use bongsu_kernel::{Code, Id, Reason};
use bongsu_part::{DeadLetter, DeadLetters, MOST_LETTERS};
use bongsu_sql::Error;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// So many are listed where nothing is said, and tried again in a second.
const LISTED: usize = 20;
const RATE: u64 = 100;
const FASTEST: u64 = 10_000;

/// Requests to try everything again that may wait behind each other.
const QUEUED: usize = 16;

#[derive(Clone)]
struct LettersState {
    queues: Arc<[Arc<dyn DeadLetters>]>,
    everything: mpsc::Sender<Everything>,
    identity: Identity,
}

impl FromRef<LettersState> for Identity {
    fn from_ref(state: &LettersState) -> Self {
        state.identity.clone()
    }
}

impl LettersState {
    fn queue(&self, name: &str) -> Result<&Arc<dyn DeadLetters>, ApiError> {
        self.queues.iter().find(|queue| queue.name() == name).ok_or_else(ApiError::not_found)
    }
}

request! {
    path QueuePath {
        /// The queue.
        queue: String = queue_name(),
    }

    path LetterPath {
        /// The queue.
        queue: String = queue_name(),
        /// The letter.
        id: i64 = letter_id(json!({"type": "string"})).example("17"),
    }

    query LettersQuery {
        /// After this one.
        cursor: Option<i64> = letter_id(json!({"type": "string"})).optional(),
        /// At most so many.
        limit: usize = limit(MOST_LETTERS as u64, LISTED),
    }

    /// Which letters are tried again: some, or all of them, so many a second.
    body Redrive {
        rate: u64 = whole(1, FASTEST).or(RATE),
        all: bool = flag().or(false),
        ids: Option<Vec<i64>> = request::list(letter_id(request::id_schema()), 0..=MOST_LETTERS).example(json!([17, 18])).optional(),
    }
}

fn queue_name() -> Kind<String> {
    Kind::new(json!({"type": "string"}), |given| Ok(given.text()?.into_owned())).example("outbox")
}

/// A number as it is given out.
fn letter_id(schema: Value) -> Kind<i64> {
    Kind::new(schema, |given| {
        let id = given.id().ok();
        let number =
            id.and_then(|id| id.as_str().parse().ok().filter(|n: &i64| n.to_string() == id.as_str()));
        Ok(number.ok_or(Reason::Whole { min: 0, max: i64::MAX as u64 })?)
    })
}

pub(crate) fn router(
    queues: Vec<Arc<dyn DeadLetters>>,
    identity: Identity,
    supervisor: &Supervisor,
) -> OpenApiRouter {
    let everything = start_redriving(supervisor);
    let routes = OpenApiRouter::new()
        .routes(routes!(queues_))
        .routes(routes!(list))
        .routes(routes!(show, discard))
        .routes(routes!(redrive))
        .with_state(LettersState { queues: queues.into(), everything, identity });
    tagged("operating", routes)
}

fn away(error: &Error) -> ApiError {
    if let Error::Failed(_) = error {
        tracing::error!(%error, "the records refuse what is asked of dead letters");
        return ApiError::unexpected();
    }
    let text =
        Text::new("지금은 데이터베이스를 사용할 수 없습니다.", "The database cannot be used right now.");
    ApiError::new(Code::Common503, text)
}

#[derive(Serialize, ToSchema)]
struct Queues {
    queues: Vec<Queue>,
}

#[derive(Serialize, ToSchema)]
struct Queue {
    #[schema(example = "outbox")]
    queue: &'static str,
    /// How many letters wait there.
    #[schema(example = 3)]
    depth: u64,
}

/// List queues of dead letters
#[utoipa::path(
    get,
    path = "/api/admin/dlq",
    responses((status = 200, description = "Every queue, and how many letters wait in it.", body = Queues)),
    security(("operator" = [])),
)]
async fn queues_(_: Operator, State(state): State<LettersState>) -> Result<Answer<Queues>, ApiError> {
    let mut queues = Vec::with_capacity(state.queues.len());
    for queue in &*state.queues {
        queues.push(Queue { queue: queue.name(), depth: queue.depth().await.map_err(|error| away(&error))? });
    }
    Ok(Answer(Queues { queues }))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Shown {
    #[schema(value_type = IdSchema, example = 17)]
    id: Id,
    /// What it is about.
    #[schema(example = "42")]
    key: String,
    #[schema(example = "proposal.created.v1")]
    r#type: String,
    /// As it was written, whatever it is; null when it is too large to be shown.
    payload: Option<String>,
    attempts: u64,
    reason: String,
    #[schema(example = "2026-02-16T10:30:00.000Z")]
    created_at: String,
}

impl From<DeadLetter> for Shown {
    fn from(letter: DeadLetter) -> Self {
        let DeadLetter { id, key, kind, payload, attempts, reason, created_at } = letter;
        Self { id: id.into(), key, r#type: kind, payload, attempts, reason, created_at: rfc3339(created_at) }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ShownPage {
    letters: Vec<Shown>,
    /// Null when there are no more.
    #[schema(example = "17")]
    next_cursor: Option<String>,
}

/// List dead letters
///
/// Oldest first. `nextCursor` is given back as `cursor` for the next page.
#[utoipa::path(
    get,
    path = "/api/admin/dlq/{queue}",
    params(QueuePath, LettersQuery),
    responses((status = 200, description = "A page.", body = ShownPage)),
    security(("operator" = [])),
)]
async fn list(
    _: Operator,
    QueuePath { queue }: QueuePath,
    LettersQuery { cursor, limit }: LettersQuery,
    State(state): State<LettersState>,
) -> Result<Answer<ShownPage>, ApiError> {
    let queue = state.queue(&queue)?;
    let mut letters =
        queue.after(cursor.unwrap_or(i64::MIN), limit + 1).await.map_err(|error| away(&error))?;
    let more = letters.len() > limit;
    letters.truncate(limit);
    let next_cursor = letters.last().filter(|_| more).map(|letter| letter.id.to_string());
    Ok(Answer(ShownPage { letters: letters.into_iter().map(Shown::from).collect(), next_cursor }))
}

/// Show a dead letter
#[utoipa::path(
    get,
    path = "/api/admin/dlq/{queue}/{id}",
    params(LetterPath),
    responses((status = 200, description = "The letter, and why it was given up.", body = Shown)),
    security(("operator" = [])),
)]
async fn show(
    _: Operator,
    LetterPath { queue, id }: LetterPath,
    State(state): State<LettersState>,
) -> Result<Answer<Shown>, ApiError> {
    let queue = state.queue(&queue)?;
    let found = queue.after(id.saturating_sub(1), 1).await.map_err(|error| away(&error))?;
    let letter = found.into_iter().next().filter(|letter| letter.id == id).ok_or_else(ApiError::not_found)?;
    Ok(Answer(Shown::from(letter)))
}

#[derive(Serialize, ToSchema)]
struct Discarded {
    #[schema(value_type = IdSchema, example = 17)]
    id: Id,
}

/// Let a dead letter go
///
/// Nobody tries it again. A follow-up record is forgotten; a row of the outbox stays for those who read the stream, until it
/// is too old.
#[utoipa::path(
    delete,
    path = "/api/admin/dlq/{queue}/{id}",
    params(LetterPath),
    responses((status = 200, description = "It is gone.", body = Discarded)),
    security(("operator" = [])),
)]
async fn discard(
    _: Operator,
    LetterPath { queue, id }: LetterPath,
    State(state): State<LettersState>,
) -> Result<Answer<Discarded>, ApiError> {
    let queue = state.queue(&queue)?;
    if queue.discard(id).await.map_err(|error| away(&error))? {
        Ok(Answer(Discarded { id: id.into() }))
    } else {
        Err(ApiError::not_found())
    }
}

#[derive(Serialize, ToSchema)]
struct Redriven {
    /// How many are tried again; of all, how many there were when it was asked for.
    #[schema(example = 2)]
    letters: u64,
}

/// Try dead letters again
///
/// They keep their ids, and are outside the order of what they are about. What can never work, such as a payload that is no
/// JSON, stays where it is.
#[utoipa::path(
    post,
    path = "/api/admin/dlq/{queue}/redrive",
    params(QueuePath),
    request_body = Redrive,
    responses((status = 202, description = "They are on their way.", body = Redriven)),
    security(("operator" = [])),
)]
async fn redrive(
    _: Operator,
    QueuePath { queue }: QueuePath,
    State(state): State<LettersState>,
    Small(body): Small,
) -> Result<Accepted<Redriven>, ApiError> {
    let queue = state.queue(&queue)?;
    let Redrive { rate, all, ids } = body.read()?;
    if all {
        if ids.is_some() {
            let text = Text::new("all과 함께 쓸 수 없습니다", "not together with all");
            return Err(invalid("ids", Reason::Given(text)));
        }
        let letters = queue.depth().await.map_err(|error| away(&error))?;
        let wish = Everything { of: queue.clone(), rate };
        state.everything.try_send(wish).map_err(|_| {
            ApiError::too_many("이미 처리 중입니다.", "This was asked for too often; it is under way.")
        })?;
        return Ok(Accepted(Redriven { letters }));
    }
    let ids = ids.ok_or_else(|| invalid("ids", Reason::Required))?;
    Ok(Accepted(Redriven { letters: queue.redrive(ids).await.map_err(|error| away(&error))? }))
}

/// A wish to have everything of a queue tried again, so many a second.
struct Everything {
    of: Arc<dyn DeadLetters>,
    rate: u64,
}

/// Starts what tries everything again, and gives the way to ask for it.
fn start_redriving(supervisor: &Supervisor) -> mpsc::Sender<Everything> {
    supervisor.queue("dlq-redrive", (QUEUED, 1), |wishes: Vec<Everything>| async move {
        for Everything { of, rate } in wishes {
            match redrive_all(&*of, rate).await {
                Ok(redriven) => {
                    tracing::info!(queue = of.name(), redriven, "dead letters are tried again");
                }
                Err(error) => {
                    tracing::warn!(queue = of.name(), %error, "not all dead letters are tried again");
                }
            }
        }
    })
}

/// Those that are there now: one that fails again meanwhile is not tried for ever.
async fn redrive_all(of: &dyn DeadLetters, rate: u64) -> Result<u64, Error> {
    let rate = usize::try_from(rate).unwrap_or(MOST_LETTERS);
    let (mut after, mut redriven) = (i64::MIN, 0);
    loop {
        let ids: Vec<i64> =
            of.after(after, rate.min(MOST_LETTERS)).await?.iter().map(|letter| letter.id).collect();
        let Some(last) = ids.last() else { return Ok(redriven) };
        after = *last;
        let pause = Duration::from_secs(1).mul_f64(ids.len() as f64 / rate as f64);
        redriven += of.redrive(ids).await?;
        tokio::time::sleep(pause).await;
    }
}
