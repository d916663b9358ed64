//! Decisions over HTTP: requests in, answers out. Nothing is decided here.
//!
//! The stream of an event, `/events/{eventId}/stream`, is the outbox's. JSON is snake_case, as there.

mod documents;
mod refusals;
mod requests;

use axum::extract::{FromRef, State};
use bongsu_http::{Answer, ApiError, Caller, Fields, Identity, Page, Person, Query, Small};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::documents::{
    Admitted, CommentItem, Comments, DecidedAnswer, EventAnswer, ProposalItem, Proposals, VotedAnswer,
};
use self::refusals::refused;
use self::requests::{Ids, read_comment, read_event, read_membership, read_proposal};
use crate::{Admission, By, Decisions};

#[derive(Clone)]
struct DecisionsState {
    /// Nothing when nothing is recorded.
    decisions: Option<Decisions>,
    identity: Identity,
}

impl FromRef<DecisionsState> for Identity {
    fn from_ref(state: &DecisionsState) -> Self {
        state.identity.clone()
    }
}

impl DecisionsState {
    fn get(&self) -> Result<&Decisions, ApiError> {
        self.decisions.as_ref().ok_or_else(ApiError::no_records)
    }
}

/// The routes of this application, with their documents. Without decisions they say that nothing is recorded.
pub fn router(decisions: Option<Decisions>, identity: Identity) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(create))
        .routes(routes!(event))
        .routes(routes!(admit))
        .routes(routes!(proposals, propose))
        .routes(routes!(vote, withdraw))
        .routes(routes!(approve))
        .routes(routes!(reject))
        .routes(routes!(comments, comment))
        .with_state(DecisionsState { decisions, identity })
}

/// Create an event
///
/// Something to be decided. Whoever creates it is its first member.
#[utoipa::path(
    post,
    path = "/events",
    tag = "decisions",
    request_body = documents::EventBody,
    responses((status = 200, description = "It is there, and so is the creator's membership.", body = documents::EventEnvelope)),
    security(("person" = [])),
)]
async fn create(
    person: Person,
    State(state): State<DecisionsState>,
    Small(body): Small,
) -> Result<Answer<EventAnswer>, ApiError> {
    let new = read_event(&Fields::of_body(body.as_str())?, person.id)?;
    let created = state.get()?.create(new).await.map_err(refused)?;
    Ok(Answer(EventAnswer::created(created)))
}

/// An event
#[utoipa::path(
    get,
    path = "/events/{event_id}",
    tag = "decisions",
    params(documents::EventParam),
    responses((status = 200, description = "The event, for its members.", body = documents::EventEnvelope)),
    security(("person" = [])),
)]
async fn event(
    person: Person,
    Ids([event]): Ids<1>,
    State(state): State<DecisionsState>,
) -> Result<Answer<EventAnswer>, ApiError> {
    let shown = state.get()?.event(event, person.id).await.map_err(refused)?;
    Ok(Answer(EventAnswer::new(shown.event, shown.counts)))
}

/// Say who takes part
///
/// By the event's creator, or an operator. A membership that ends, ends the person's streams (3501). The creator's own can
/// be ended by an operator only.
#[utoipa::path(
    put,
    path = "/events/{event_id}/members/{user_id}",
    tag = "decisions",
    params(documents::MemberParams),
    request_body = documents::MembershipBody,
    responses((status = 200, description = "So it is.", body = documents::AdmittedEnvelope)),
    security(("person" = []), ("operator" = [])),
)]
async fn admit(
    caller: Caller,
    Ids([event, user]): Ids<2>,
    State(state): State<DecisionsState>,
    Small(body): Small,
) -> Result<Answer<Admitted>, ApiError> {
    let status = read_membership(&Fields::of_body(body.as_str())?)?;
    let by = match caller {
        Caller::Operator => By::Operator,
        Caller::Person(person) => By::Person(person.id),
    };
    let admission = Admission { event: event.clone(), person: user.clone(), status };
    state.get()?.admit(by, admission).await.map_err(refused)?;
    Ok(Answer(Admitted { event_id: event, user_id: user, status }))
}

/// List proposals
///
/// Newest first. `next_cursor` is given back as `cursor` for the page after this one.
#[utoipa::path(
    get,
    path = "/events/{event_id}/proposals",
    tag = "decisions",
    params(documents::EventParam, documents::PageParams),
    responses((status = 200, description = "A page.", body = documents::ProposalsEnvelope)),
    security(("person" = [])),
)]
async fn proposals(
    person: Person,
    Ids([event]): Ids<1>,
    query: Query,
    State(state): State<DecisionsState>,
) -> Result<Answer<Proposals>, ApiError> {
    let page = Page::of(&query)?;
    let listed = state.get()?.proposals(event, person.id, page).await.map_err(refused)?;
    Ok(Answer(listed.into()))
}

/// Propose something
///
/// Followers are told `proposal.created.v1`.
#[utoipa::path(
    post,
    path = "/events/{event_id}/proposals",
    tag = "decisions",
    params(documents::EventParam),
    request_body = documents::ProposalBody,
    responses((status = 200, description = "It is proposed.", body = documents::ProposalEnvelope)),
    security(("person" = [])),
)]
async fn propose(
    person: Person,
    Ids([event]): Ids<1>,
    State(state): State<DecisionsState>,
    Small(body): Small,
) -> Result<Answer<ProposalItem>, ApiError> {
    let new = read_proposal(&Fields::of_body(body.as_str())?, event, person.id)?;
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
    tag = "decisions",
    params(documents::VoteParams),
    responses(
        (status = 200, description = "The vote counts.", body = documents::VotedEnvelope),
        (status = 409, description = "It was decided already (COMMON409).", body = documents::Conflict),
    ),
    security(("person" = [])),
)]
async fn vote(
    person: Person,
    Ids([event, proposal]): Ids<2>,
    State(state): State<DecisionsState>,
) -> Result<Answer<VotedAnswer>, ApiError> {
    let voted = state.get()?.vote(event, proposal, person.id).await.map_err(refused)?;
    Ok(Answer(voted.into()))
}

/// Take a vote back
///
/// Without a vote nothing changes. Followers are told `proposal.vote.deleted.v1`.
#[utoipa::path(
    delete,
    path = "/events/{event_id}/proposals/{proposal_id}/votes",
    tag = "decisions",
    params(documents::VoteParams),
    responses(
        (status = 200, description = "There is no vote of this person.", body = documents::VotedEnvelope),
        (status = 409, description = "It was decided already (COMMON409).", body = documents::Conflict),
    ),
    security(("person" = [])),
)]
async fn withdraw(
    person: Person,
    Ids([event, proposal]): Ids<2>,
    State(state): State<DecisionsState>,
) -> Result<Answer<VotedAnswer>, ApiError> {
    let voted = state.get()?.withdraw(event, proposal, person.id).await.map_err(refused)?;
    Ok(Answer(voted.into()))
}

/// Approve a proposal
///
/// By the event's creator; approving again changes nothing. Followers are told `proposal.approved.v1`.
#[utoipa::path(
    post,
    path = "/events/{event_id}/proposals/{proposal_id}/approve",
    tag = "decisions",
    params(documents::ApproveParams),
    responses(
        (status = 200, description = "It is approved.", body = documents::DecidedEnvelope),
        (status = 409, description = "It was rejected already (COMMON409).", body = documents::Conflict),
    ),
    security(("person" = [])),
)]
async fn approve(
    person: Person,
    Ids([event, proposal]): Ids<2>,
    State(state): State<DecisionsState>,
) -> Result<Answer<DecidedAnswer>, ApiError> {
    let decided = state.get()?.approve(event, proposal, person.id).await.map_err(refused)?;
    Ok(Answer(decided.into()))
}

/// Reject a proposal
///
/// By the event's creator; rejecting again changes nothing. Followers are told `proposal.rejected.v1`.
#[utoipa::path(
    post,
    path = "/events/{event_id}/proposals/{proposal_id}/reject",
    tag = "decisions",
    params(documents::RejectParams),
    responses(
        (status = 200, description = "It is rejected.", body = documents::DecidedEnvelope),
        (status = 409, description = "It was approved already (COMMON409).", body = documents::Conflict),
    ),
    security(("person" = [])),
)]
async fn reject(
    person: Person,
    Ids([event, proposal]): Ids<2>,
    State(state): State<DecisionsState>,
) -> Result<Answer<DecidedAnswer>, ApiError> {
    let decided = state.get()?.reject(event, proposal, person.id).await.map_err(refused)?;
    Ok(Answer(decided.into()))
}

/// List comments
///
/// On a criterion, newest first. `next_cursor` is given back as `cursor` for the page after this one.
#[utoipa::path(
    get,
    path = "/events/{event_id}/criteria/{criterion_id}/comments",
    tag = "decisions",
    params(documents::CriterionParams, documents::PageParams),
    responses((status = 200, description = "A page.", body = documents::CommentsEnvelope)),
    security(("person" = [])),
)]
async fn comments(
    person: Person,
    Ids([event, criterion]): Ids<2>,
    query: Query,
    State(state): State<DecisionsState>,
) -> Result<Answer<Comments>, ApiError> {
    let page = Page::of(&query)?;
    let listed = state.get()?.comments(event, criterion, person.id, page).await.map_err(refused)?;
    Ok(Answer(listed.into()))
}

/// Comment on a criterion
///
/// A criterion is a proposal of type `criteria` that was not rejected. Followers are told `comment.created.v1`.
#[utoipa::path(
    post,
    path = "/events/{event_id}/criteria/{criterion_id}/comments",
    tag = "decisions",
    params(documents::CriterionParams),
    request_body = documents::CommentBody,
    responses(
        (status = 200, description = "It is said.", body = documents::CommentEnvelope),
        (status = 409, description = "The criterion was rejected (COMMON409).", body = documents::Conflict),
    ),
    security(("person" = [])),
)]
async fn comment(
    person: Person,
    Ids([event, criterion]): Ids<2>,
    State(state): State<DecisionsState>,
    Small(body): Small,
) -> Result<Answer<CommentItem>, ApiError> {
    let new = read_comment(&Fields::of_body(body.as_str())?, event, criterion, person.id)?;
    let commented = state.get()?.comment(new).await.map_err(refused)?;
    Ok(Answer(commented.into()))
}
