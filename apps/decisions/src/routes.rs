//! Decisions over HTTP: requests in, answers out. Nothing is decided here.
//!
//! The stream of an event, `/events/{eventId}/stream`, is the outbox's. JSON is snake_case, as there.

mod documents;
mod refusals;
mod requests;

use axum::extract::State;
use bongsu_http::openapi::tagged;
use bongsu_http::{Answer, ApiError, Caller, Identity, Page, Person, RouteState, Small};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::documents::{
    Admitted, CommentItem, Comments, DecidedAnswer, EventAnswer, ProposalItem, Proposals, VotedAnswer,
};
use self::refusals::refused;
use self::requests::{
    ApprovePath, CommentBody, CriterionPath, EventBody, EventPath, MemberPath, MembershipBody, ProposalBody,
    RejectPath, VotePath,
};
use crate::{Admission, By, Decisions, NewComment, NewEvent, NewProposal};

/// None when nothing is recorded.
type DecisionsState = RouteState<Option<Decisions>>;

/// The routes of this application, with their documents. Without decisions they say that nothing is recorded.
pub fn router(decisions: Option<Decisions>, identity: Identity) -> OpenApiRouter {
    let routes = OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(event))
        .routes(routes!(admit))
        .routes(routes!(proposals, propose))
        .routes(routes!(vote, withdraw))
        .routes(routes!(approve))
        .routes(routes!(reject))
        .routes(routes!(comments, comment))
        .with_state(DecisionsState { part: decisions, identity });
    tagged("decisions", routes)
}

/// Create an event
///
/// Something to be decided. Whoever creates it is its first member.
#[utoipa::path(
    post,
    path = "/events",
    request_body = EventBody,
    responses((status = 200, description = "It is there, and so is the creator's membership.", body = EventAnswer)),
    security(("person" = [])),
)]
async fn create(
    person: Person,
    State(state): State<DecisionsState>,
    Small(body): Small,
) -> Result<Answer<EventAnswer>, ApiError> {
    let EventBody { title, auto_approve_percent } = body.read()?;
    let new = NewEvent { title, auto_approve_percent, creator: person.id };
    let created = state.get()?.create(new).await.map_err(refused)?;
    Ok(Answer(EventAnswer::created(created)))
}

/// An event
#[utoipa::path(
    get,
    path = "/events/{event_id}",
    params(EventPath),
    responses((status = 200, description = "The event, for its members.", body = EventAnswer)),
    security(("person" = [])),
)]
async fn event(
    person: Person,
    EventPath { event_id }: EventPath,
    State(state): State<DecisionsState>,
) -> Result<Answer<EventAnswer>, ApiError> {
    let shown = state.get()?.event(event_id, person.id).await.map_err(refused)?;
    Ok(Answer(EventAnswer::new(shown.event, shown.counts)))
}

/// Say who takes part
///
/// By the event's creator, or an operator. A membership that ends, ends the person's streams (3501). The creator's own can
/// be ended by an operator only.
#[utoipa::path(
    put,
    path = "/events/{event_id}/members/{user_id}",
    params(MemberPath),
    request_body = MembershipBody,
    responses((status = 200, description = "So it is.", body = Admitted)),
    security(("person" = []), ("operator" = [])),
)]
async fn admit(
    caller: Caller,
    MemberPath { event_id, user_id }: MemberPath,
    State(state): State<DecisionsState>,
    Small(body): Small,
) -> Result<Answer<Admitted>, ApiError> {
    let MembershipBody { status } = body.read()?;
    let by = match caller {
        Caller::Operator => By::Operator,
        Caller::Person(person) => By::Person(person.id),
    };
    let admission = Admission { event: event_id.clone(), person: user_id.clone(), status };
    state.get()?.admit(by, admission).await.map_err(refused)?;
    Ok(Answer(Admitted { event_id, user_id, status }))
}

/// List proposals
///
/// Newest first. `next_cursor` is given back as `cursor` for the page after this one.
#[utoipa::path(
    get,
    path = "/events/{event_id}/proposals",
    params(EventPath, Page),
    responses((status = 200, description = "A page.", body = Proposals)),
    security(("person" = [])),
)]
async fn proposals(
    person: Person,
    EventPath { event_id }: EventPath,
    page: Page,
    State(state): State<DecisionsState>,
) -> Result<Answer<Proposals>, ApiError> {
    let listed = state.get()?.proposals(event_id, person.id, page).await.map_err(refused)?;
    Ok(Answer(listed.into()))
}

/// Propose something
///
/// Followers are told `proposal.created.v1`.
#[utoipa::path(
    post,
    path = "/events/{event_id}/proposals",
    params(EventPath),
    request_body = ProposalBody,
    responses((status = 200, description = "It is proposed.", body = ProposalItem)),
    security(("person" = [])),
)]
async fn propose(
    person: Person,
    EventPath { event_id }: EventPath,
    State(state): State<DecisionsState>,
    Small(body): Small,
) -> Result<Answer<ProposalItem>, ApiError> {
    let ProposalBody { proposal_type, content } = body.read()?;
    let new = NewProposal { event: event_id, person: person.id, proposal_type, content };
    let proposed = state.get()?.propose(new).await.map_err(refused)?;
    Ok(Answer(proposed.into()))
}

/// Vote for a proposal
///
/// Once for each person; voting again changes nothing. Followers are told `proposal.vote.created.v1`, and
/// `proposal.approved.v1` when the votes are enough of the members.
#[utoipa::path(
    post,
    path = "/events/{event_id}/proposals/{proposal_id}/votes",
    params(VotePath),
    responses(
        (status = 200, description = "The vote counts.", body = VotedAnswer),
        (status = 409, description = "It was decided already (COMMON409)."),
    ),
    security(("person" = [])),
)]
async fn vote(
    person: Person,
    VotePath { event_id, proposal_id }: VotePath,
    State(state): State<DecisionsState>,
) -> Result<Answer<VotedAnswer>, ApiError> {
    let voted = state.get()?.vote(event_id, proposal_id, person.id).await.map_err(refused)?;
    Ok(Answer(voted.into()))
}

/// Take a vote back
///
/// Without a vote nothing changes. Followers are told `proposal.vote.deleted.v1`.
#[utoipa::path(
    delete,
    path = "/events/{event_id}/proposals/{proposal_id}/votes",
    params(VotePath),
    responses(
        (status = 200, description = "There is no vote of this person.", body = VotedAnswer),
        (status = 409, description = "It was decided already (COMMON409)."),
    ),
    security(("person" = [])),
)]
async fn withdraw(
    person: Person,
    VotePath { event_id, proposal_id }: VotePath,
    State(state): State<DecisionsState>,
) -> Result<Answer<VotedAnswer>, ApiError> {
    let voted = state.get()?.withdraw(event_id, proposal_id, person.id).await.map_err(refused)?;
    Ok(Answer(voted.into()))
}

/// Approve a proposal
///
/// By the event's creator; approving again changes nothing. Followers are told `proposal.approved.v1`.
#[utoipa::path(
    post,
    path = "/events/{event_id}/proposals/{proposal_id}/approve",
    params(ApprovePath),
    responses(
        (status = 200, description = "It is approved.", body = DecidedAnswer),
        (status = 409, description = "It was rejected already (COMMON409)."),
    ),
    security(("person" = [])),
)]
async fn approve(
    person: Person,
    ApprovePath { event_id, proposal_id }: ApprovePath,
    State(state): State<DecisionsState>,
) -> Result<Answer<DecidedAnswer>, ApiError> {
    let decided = state.get()?.approve(event_id, proposal_id, person.id).await.map_err(refused)?;
    Ok(Answer(decided.into()))
}

/// Reject a proposal
///
/// By the event's creator; rejecting again changes nothing. Followers are told `proposal.rejected.v1`.
#[utoipa::path(
    post,
    path = "/events/{event_id}/proposals/{proposal_id}/reject",
    params(RejectPath),
    responses(
        (status = 200, description = "It is rejected.", body = DecidedAnswer),
        (status = 409, description = "It was approved already (COMMON409)."),
    ),
    security(("person" = [])),
)]
async fn reject(
    person: Person,
    RejectPath { event_id, proposal_id }: RejectPath,
    State(state): State<DecisionsState>,
) -> Result<Answer<DecidedAnswer>, ApiError> {
    let decided = state.get()?.reject(event_id, proposal_id, person.id).await.map_err(refused)?;
    Ok(Answer(decided.into()))
}

/// List comments
///
/// On a criterion, newest first. `next_cursor` is given back as `cursor` for the page after this one.
#[utoipa::path(
    get,
    path = "/events/{event_id}/criteria/{criterion_id}/comments",
    params(CriterionPath, Page),
    responses((status = 200, description = "A page.", body = Comments)),
    security(("person" = [])),
)]
async fn comments(
    person: Person,
    CriterionPath { event_id, criterion_id }: CriterionPath,
    page: Page,
    State(state): State<DecisionsState>,
) -> Result<Answer<Comments>, ApiError> {
    let listed = state.get()?.comments(event_id, criterion_id, person.id, page).await.map_err(refused)?;
    Ok(Answer(listed.into()))
}

/// Comment on a criterion
///
/// A criterion is a proposal of type `criteria` that was not rejected. Followers are told `comment.created.v1`.
#[utoipa::path(
    post,
    path = "/events/{event_id}/criteria/{criterion_id}/comments",
    params(CriterionPath),
    request_body = CommentBody,
    responses(
        (status = 200, description = "It is said.", body = CommentItem),
        (status = 409, description = "The criterion was rejected (COMMON409)."),
    ),
    security(("person" = [])),
)]
async fn comment(
    person: Person,
    CriterionPath { event_id, criterion_id }: CriterionPath,
    State(state): State<DecisionsState>,
    Small(body): Small,
) -> Result<Answer<CommentItem>, ApiError> {
    let CommentBody { content } = body.read()?;
    let new = NewComment { event: event_id, criterion: criterion_id, person: person.id, content };
    let commented = state.get()?.comment(new).await.map_err(refused)?;
    Ok(Answer(commented.into()))
}
