//! The HTTP API of this application. Handlers only convert requests and answers.
//!
//! The outbox serves the stream of an event, `/events/{eventId}/stream`. As in the outbox, JSON fields are snake_case.

mod answers;
mod errors;
mod requests;

use axum::extract::State;
use bongsu_http::openapi::tagged;
use bongsu_http::{Answer, ApiError, Caller, Identity, Page, Person, RouteState, SmallBody};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::answers::{
    CommentItem, Comments, DecisionAnswer, EventAnswer, MembershipAnswer, ProposalItem, Proposals, VoteAnswer,
};
use self::errors::api_error;
use self::requests::{
    ApprovePath, CommentBody, CriterionPath, EventBody, EventPath, MemberPath, MembershipBody, ProposalBody,
    RejectPath, VotePath,
};
use crate::{Actor, Decisions, MembershipChange, NewComment, NewEvent, NewProposal};

/// None if RECORDS is off.
type DecisionsState = RouteState<Option<Decisions>>;

/// The routes of this application, with their OpenAPI descriptions. If `decisions` is None, they answer 503.
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
/// Create an event whose members make proposals and vote on them. The caller becomes its first member, and
/// can approve and reject proposals.
#[utoipa::path(
    post,
    path = "/events",
    request_body = EventBody,
    responses((status = 200, description = "The event, with the caller's membership.", body = EventAnswer)),
    security(("person" = [])),
)]
async fn create(
    person: Person,
    State(state): State<DecisionsState>,
    SmallBody(body): SmallBody,
) -> Result<Answer<EventAnswer>, ApiError> {
    let EventBody { title, auto_approve_percent } = body.read()?;
    let new = NewEvent { title, auto_approve_percent, creator: person.id };
    let created = state.get()?.create(new).await.map_err(api_error)?;
    Ok(Answer(EventAnswer::created(created)))
}

/// Get an event
#[utoipa::path(
    get,
    path = "/events/{event_id}",
    params(EventPath),
    responses((status = 200, description = "The event, if the caller is an accepted member.", body = EventAnswer)),
    security(("person" = [])),
)]
async fn event(
    person: Person,
    EventPath { event_id }: EventPath,
    State(state): State<DecisionsState>,
) -> Result<Answer<EventAnswer>, ApiError> {
    let details = state.get()?.event(event_id, person.id).await.map_err(api_error)?;
    Ok(Answer(EventAnswer::new(details.event, details.counts)))
}

/// Set a membership
///
/// Allowed for the creator of the event, and for operators. Ending a membership closes the person's streams
/// of the event (3501). Only an operator can end the membership of the creator.
#[utoipa::path(
    put,
    path = "/events/{event_id}/members/{user_id}",
    params(MemberPath),
    request_body = MembershipBody,
    responses((status = 200, description = "The membership as stored.", body = MembershipAnswer)),
    security(("person" = []), ("operator" = [])),
)]
async fn admit(
    caller: Caller,
    MemberPath { event_id, user_id }: MemberPath,
    State(state): State<DecisionsState>,
    SmallBody(body): SmallBody,
) -> Result<Answer<MembershipAnswer>, ApiError> {
    let MembershipBody { status } = body.read()?;
    let actor = match caller {
        Caller::Operator => Actor::Operator,
        Caller::Person(person) => Actor::Person(person.id),
    };
    let change = MembershipChange { event: event_id.clone(), person: user_id.clone(), status };
    state.get()?.set_membership(actor, change).await.map_err(api_error)?;
    Ok(Answer(MembershipAnswer { event_id, user_id, status }))
}

/// List proposals
///
/// Get a page of the proposals of an event, newest first. Pass `next_cursor` as `cursor` to get the next
/// page.
#[utoipa::path(
    get,
    path = "/events/{event_id}/proposals",
    params(EventPath, Page),
    responses((status = 200, description = "A page of proposals.", body = Proposals)),
    security(("person" = [])),
)]
async fn proposals(
    person: Person,
    EventPath { event_id }: EventPath,
    page: Page,
    State(state): State<DecisionsState>,
) -> Result<Answer<Proposals>, ApiError> {
    let page = state.get()?.proposals(event_id, person.id, page).await.map_err(api_error)?;
    Ok(Answer(page.into()))
}

/// Create a proposal
///
/// Streams of the event receive `proposal.created.v1`.
#[utoipa::path(
    post,
    path = "/events/{event_id}/proposals",
    params(EventPath),
    request_body = ProposalBody,
    responses((status = 200, description = "The new proposal.", body = ProposalItem)),
    security(("person" = [])),
)]
async fn propose(
    person: Person,
    EventPath { event_id }: EventPath,
    State(state): State<DecisionsState>,
    SmallBody(body): SmallBody,
) -> Result<Answer<ProposalItem>, ApiError> {
    let ProposalBody { proposal_type, content } = body.read()?;
    let new = NewProposal { event: event_id, person: person.id, proposal_type, content };
    let proposal = state.get()?.propose(new).await.map_err(api_error)?;
    Ok(Answer(proposal.into()))
}

/// Vote for a proposal
///
/// Each person has one vote; a repeated request has no effect. Streams of the event receive
/// `proposal.vote.created.v1`, and `proposal.approved.v1` if the votes reach `auto_approve_percent` of the
/// members.
#[utoipa::path(
    post,
    path = "/events/{event_id}/proposals/{proposal_id}/votes",
    params(VotePath),
    responses(
        (status = 200, description = "The proposal, with the caller's vote.", body = VoteAnswer),
        (status = 409, description = "The proposal has been decided (COMMON409)."),
    ),
    security(("person" = [])),
)]
async fn vote(
    person: Person,
    VotePath { event_id, proposal_id }: VotePath,
    State(state): State<DecisionsState>,
) -> Result<Answer<VoteAnswer>, ApiError> {
    let result = state.get()?.vote(event_id, proposal_id, person.id).await.map_err(api_error)?;
    Ok(Answer(result.into()))
}

/// Withdraw a vote
///
/// Has no effect if the caller has not voted. Streams of the event receive `proposal.vote.deleted.v1`.
#[utoipa::path(
    delete,
    path = "/events/{event_id}/proposals/{proposal_id}/votes",
    params(VotePath),
    responses(
        (status = 200, description = "The proposal, without a vote of the caller.", body = VoteAnswer),
        (status = 409, description = "The proposal has been decided (COMMON409)."),
    ),
    security(("person" = [])),
)]
async fn withdraw(
    person: Person,
    VotePath { event_id, proposal_id }: VotePath,
    State(state): State<DecisionsState>,
) -> Result<Answer<VoteAnswer>, ApiError> {
    let result = state.get()?.withdraw(event_id, proposal_id, person.id).await.map_err(api_error)?;
    Ok(Answer(result.into()))
}

/// Approve a proposal
///
/// Allowed for the creator of the event; a repeated request has no effect. Streams of the event receive
/// `proposal.approved.v1`.
#[utoipa::path(
    post,
    path = "/events/{event_id}/proposals/{proposal_id}/approve",
    params(ApprovePath),
    responses(
        (status = 200, description = "The approved proposal.", body = DecisionAnswer),
        (status = 409, description = "The proposal has been rejected (COMMON409)."),
    ),
    security(("person" = [])),
)]
async fn approve(
    person: Person,
    ApprovePath { event_id, proposal_id }: ApprovePath,
    State(state): State<DecisionsState>,
) -> Result<Answer<DecisionAnswer>, ApiError> {
    let decision = state.get()?.approve(event_id, proposal_id, person.id).await.map_err(api_error)?;
    Ok(Answer(decision.into()))
}

/// Reject a proposal
///
/// Allowed for the creator of the event; a repeated request has no effect. Streams of the event receive
/// `proposal.rejected.v1`.
#[utoipa::path(
    post,
    path = "/events/{event_id}/proposals/{proposal_id}/reject",
    params(RejectPath),
    responses(
        (status = 200, description = "The rejected proposal.", body = DecisionAnswer),
        (status = 409, description = "The proposal has been approved (COMMON409)."),
    ),
    security(("person" = [])),
)]
async fn reject(
    person: Person,
    RejectPath { event_id, proposal_id }: RejectPath,
    State(state): State<DecisionsState>,
) -> Result<Answer<DecisionAnswer>, ApiError> {
    let decision = state.get()?.reject(event_id, proposal_id, person.id).await.map_err(api_error)?;
    Ok(Answer(decision.into()))
}

/// List comments
///
/// Get a page of the comments on a criterion, newest first. Pass `next_cursor` as `cursor` to get the next
/// page.
#[utoipa::path(
    get,
    path = "/events/{event_id}/criteria/{criterion_id}/comments",
    params(CriterionPath, Page),
    responses((status = 200, description = "A page of comments.", body = Comments)),
    security(("person" = [])),
)]
async fn comments(
    person: Person,
    CriterionPath { event_id, criterion_id }: CriterionPath,
    page: Page,
    State(state): State<DecisionsState>,
) -> Result<Answer<Comments>, ApiError> {
    let page = state.get()?.comments(event_id, criterion_id, person.id, page).await.map_err(api_error)?;
    Ok(Answer(page.into()))
}

/// Comment on a criterion
///
/// A criterion is a proposal of type `criteria`; a rejected one takes no comments. Streams of the event
/// receive `comment.created.v1`.
#[utoipa::path(
    post,
    path = "/events/{event_id}/criteria/{criterion_id}/comments",
    params(CriterionPath),
    request_body = CommentBody,
    responses(
        (status = 200, description = "The new comment.", body = CommentItem),
        (status = 409, description = "The criterion has been rejected (COMMON409)."),
    ),
    security(("person" = [])),
)]
async fn comment(
    person: Person,
    CriterionPath { event_id, criterion_id }: CriterionPath,
    State(state): State<DecisionsState>,
    SmallBody(body): SmallBody,
) -> Result<Answer<CommentItem>, ApiError> {
    let CommentBody { content } = body.read()?;
    let new = NewComment { event: event_id, criterion: criterion_id, person: person.id, content };
    let comment = state.get()?.comment(new).await.map_err(api_error)?;
    Ok(Answer(comment.into()))
}
