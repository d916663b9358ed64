//! Dead letters over HTTP, for operators.
//!
//! Requests are read and answers written here; what a queue does with its letters is its own affair ([`DeadLetters`]).

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRef, Path, State};
use bongsu_http::answer::{Accepted, Answer, invalid};
use bongsu_http::openapi::IdSchema;
use bongsu_http::{ApiError, Fields, Identity, Operator, Query, Small, envelope_document, fields};
use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::text::Text;
use bongsu_kernel::{Code, Id, Reason};
use bongsu_part::{DeadLetter, DeadLetters, MOST_LETTERS};
use bongsu_sql::Error;
use serde::Serialize;
use tokio::sync::mpsc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// So many are listed where nothing is said, and tried again in a second.
const LISTED: u64 = 20;
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

pub(crate) fn router(
    queues: Vec<Arc<dyn DeadLetters>>,
    identity: Identity,
    supervisor: &Supervisor,
) -> OpenApiRouter {
    let everything = start_redriving(supervisor);
    OpenApiRouter::new()
        .routes(routes!(queues_))
        .routes(routes!(list))
        .routes(routes!(show, discard))
        .routes(routes!(redrive))
        .with_state(LettersState { queues: queues.into(), everything, identity })
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

envelope_document!(struct QueuesEnvelope(Queues));

/// List queues of dead letters
#[utoipa::path(
    get,
    path = "/api/admin/dlq",
    tag = "operating",
    responses((status = 200, description = "Every queue, and how many letters wait in it.", body = QueuesEnvelope)),
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

envelope_document!(struct ShownPageEnvelope(ShownPage));
envelope_document!(struct ShownEnvelope(Shown));

/// List dead letters
///
/// Oldest first. `nextCursor` is given back as `cursor` for the next page.
#[utoipa::path(
    get,
    path = "/api/admin/dlq/{queue}",
    tag = "operating",
    params(
        ("queue" = String, Path, description = "The queue.", example = "outbox"),
        ("cursor" = Option<String>, Query, description = "After this one."),
        ("limit" = Option<u64>, Query, description = "At most so many.", minimum = 1, maximum = 100),
    ),
    responses((status = 200, description = "A page.", body = ShownPageEnvelope)),
    security(("operator" = [])),
)]
async fn list(
    _: Operator,
    Path(queue): Path<String>,
    query: Query,
    State(state): State<LettersState>,
) -> Result<Answer<ShownPage>, ApiError> {
    let after = match query.get("cursor") {
        None | Some("") => i64::MIN,
        Some(cursor) => {
            number(cursor).ok_or_else(|| invalid("cursor", Reason::Whole { min: 0, max: i64::MAX as u64 }))?
        }
    };
    let limit = query.whole("limit", 1, MOST_LETTERS as u64)?.unwrap_or(LISTED);
    let limit = usize::try_from(limit).unwrap_or(MOST_LETTERS);
    let queue = state.queue(&queue)?;
    let mut letters = queue.after(after, limit + 1).await.map_err(|error| away(&error))?;
    let more = letters.len() > limit;
    letters.truncate(limit);
    let next_cursor = letters.last().filter(|_| more).map(|letter| letter.id.to_string());
    Ok(Answer(ShownPage { letters: letters.into_iter().map(Shown::from).collect(), next_cursor }))
}

/// Show a dead letter
#[utoipa::path(
    get,
    path = "/api/admin/dlq/{queue}/{id}",
    tag = "operating",
    params(
        ("queue" = String, Path, description = "The queue.", example = "outbox"),
        ("id" = String, Path, description = "The letter.", example = "17"),
    ),
    responses((status = 200, description = "The letter, and why it was given up.", body = ShownEnvelope)),
    security(("operator" = [])),
)]
async fn show(
    _: Operator,
    Path((queue, id)): Path<(String, String)>,
    State(state): State<LettersState>,
) -> Result<Answer<Shown>, ApiError> {
    let (queue, id) = (state.queue(&queue)?, letter_id(&id)?);
    let found = queue.after(id.saturating_sub(1), 1).await.map_err(|error| away(&error))?;
    let letter = found.into_iter().next().filter(|letter| letter.id == id).ok_or_else(ApiError::not_found)?;
    Ok(Answer(Shown::from(letter)))
}

#[derive(Serialize, ToSchema)]
struct Discarded {
    #[schema(value_type = IdSchema, example = 17)]
    id: Id,
}

envelope_document!(struct DiscardedEnvelope(Discarded));

/// Let a dead letter go
///
/// Nobody tries it again. A follow-up record is forgotten; a row of the outbox stays for those who read the stream, until it
/// is too old.
#[utoipa::path(
    delete,
    path = "/api/admin/dlq/{queue}/{id}",
    tag = "operating",
    params(
        ("queue" = String, Path, description = "The queue.", example = "outbox"),
        ("id" = String, Path, description = "The letter.", example = "17"),
    ),
    responses((status = 200, description = "It is gone.", body = DiscardedEnvelope)),
    security(("operator" = [])),
)]
async fn discard(
    _: Operator,
    Path((queue, id)): Path<(String, String)>,
    State(state): State<LettersState>,
) -> Result<Answer<Discarded>, ApiError> {
    let (queue, id) = (state.queue(&queue)?, letter_id(&id)?);
    if queue.discard(id).await.map_err(|error| away(&error))? {
        Ok(Answer(Discarded { id: id.into() }))
    } else {
        Err(ApiError::not_found())
    }
}

/// Which letters are tried again: some, or all of them, so many a second.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes what is read field by field")]
struct Redrive {
    #[schema(value_type = Option<Vec<IdSchema>>, max_items = 100, example = json!([17, 18]))]
    ids: Option<Vec<Id>>,
    all: Option<bool>,
    #[schema(minimum = 1, maximum = 10_000, default = 100)]
    rate: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct Redriven {
    /// How many are tried again; of all, how many there were when it was asked for.
    #[schema(example = 2)]
    letters: u64,
}

envelope_document!(struct RedrivenEnvelope(Redriven));

/// Try dead letters again
///
/// They keep their ids, and are outside the order of what they are about. What can never work, such as a payload that is no
/// JSON, stays where it is.
#[utoipa::path(
    post,
    path = "/api/admin/dlq/{queue}/redrive",
    tag = "operating",
    params(("queue" = String, Path, description = "The queue.", example = "outbox")),
    request_body(content = Redrive),
    responses((status = 202, description = "They are on their way.", body = RedrivenEnvelope)),
    security(("operator" = [])),
)]
async fn redrive(
    _: Operator,
    Path(queue): Path<String>,
    State(state): State<LettersState>,
    Small(body): Small,
) -> Result<Accepted<Redriven>, ApiError> {
    let queue = state.queue(&queue)?;
    let fields = Fields::of_body(body.as_str())?;
    let rate = fields.optional("rate", |raw| whole(raw.get(), 1, FASTEST))?.unwrap_or(RATE);
    if fields.optional("all", fields::flag)?.unwrap_or_default() {
        if fields.optional("ids", |_| Ok(()))?.is_some() {
            let text = Text::new("all과 함께 쓸 수 없습니다", "not together with all");
            return Err(fields.invalid("ids", Reason::Given(text)).into());
        }
        let letters = queue.depth().await.map_err(|error| away(&error))?;
        let wish = Everything { of: queue.clone(), rate };
        state.everything.try_send(wish).map_err(|_| {
            ApiError::too_many("이미 처리 중입니다.", "This was asked for too often; it is under way.")
        })?;
        return Ok(Accepted(Redriven { letters }));
    }
    let ids = fields.required("ids", |raw| fields::list(raw, MOST_LETTERS))?;
    let read = |(index, raw): (usize, &&serde_json::value::RawValue)| {
        let number = fields::id(raw).ok().and_then(|id| number(id.as_str()));
        number.ok_or_else(|| {
            fields.invalid(&format!("ids[{index}]"), Reason::Whole { min: 0, max: i64::MAX as u64 })
        })
    };
    let ids = ids.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(Accepted(Redriven { letters: queue.redrive(ids).await.map_err(|error| away(&error))? }))
}

fn whole(text: &str, min: u64, max: u64) -> Result<u64, Reason> {
    text.parse().ok().filter(|number| (min..=max).contains(number)).ok_or(Reason::Whole { min, max })
}

fn letter_id(text: &str) -> Result<i64, ApiError> {
    number(text).ok_or_else(|| invalid("id", Reason::Whole { min: 0, max: i64::MAX as u64 }))
}

/// A number as it is given out.
fn number(text: &str) -> Option<i64> {
    text.parse::<i64>().ok().filter(|number| number.to_string() == text)
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
