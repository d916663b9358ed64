//! Reads requests, field by field.

use axum::extract::{FromRequestParts, Path};
use bongsu_http::answer::invalid;
use bongsu_http::{ApiError, Fields, fields};
use bongsu_kernel::{Id, Invalid, Reason};
use http::request::Parts;
use serde_json::value::RawValue;

use crate::{Membership, NewComment, NewEvent, NewProposal, ProposalType};

/// Characters at most.
const MOST_TITLE: usize = 200;
const MOST_CONTENT: usize = 2_000;
/// How many of the members are enough where nothing is said, in percent.
const USUAL_PERCENT: u64 = 50;

/// The ids of a path, in its order.
pub(super) struct Ids<const N: usize>(pub(super) [Id; N]);

impl<S: Send + Sync, const N: usize> FromRequestParts<S> for Ids<N> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Path(given) = path.map_err(|_| invalid("path", Reason::Utf8))?;
        let read = |(name, text): &(String, String)| Id::new(text).map_err(|reason| invalid(name, reason));
        let ids: Vec<Id> = given.iter().map(read).collect::<Result<_, _>>()?;
        ids.try_into().map(Self).map_err(|_| ApiError::unexpected())
    }
}

pub(super) fn read_event(fields: &Fields<'_>, creator: Id) -> Result<NewEvent, Invalid> {
    let title = fields.required("title", |raw| fields::text(raw, MOST_TITLE))?;
    let percent = fields.optional("auto_approve_percent", |raw| fields::whole(raw, 1, 100))?;
    Ok(NewEvent { title, auto_approve_percent: percent.unwrap_or(USUAL_PERCENT), creator })
}

pub(super) fn read_membership(fields: &Fields<'_>) -> Result<Membership, Invalid> {
    fields.required("status", |raw| word(raw, Membership::WORDS, Membership::named))
}

pub(super) fn read_proposal(fields: &Fields<'_>, event: Id, person: Id) -> Result<NewProposal, Invalid> {
    let proposal_type =
        fields.required("proposal_type", |raw| word(raw, ProposalType::WORDS, ProposalType::named))?;
    Ok(NewProposal { event, person, proposal_type, content: content(fields)? })
}

pub(super) fn read_comment(
    fields: &Fields<'_>,
    event: Id,
    criterion: Id,
    person: Id,
) -> Result<NewComment, Invalid> {
    Ok(NewComment { event, criterion, person, content: content(fields)? })
}

fn content(fields: &Fields<'_>) -> Result<String, Invalid> {
    fields.required("content", |raw| fields::prose(raw, MOST_CONTENT))
}

fn word<T>(
    raw: &RawValue,
    known: &'static [&'static str],
    named: fn(&str) -> Option<T>,
) -> Result<T, Reason> {
    named(fields::one_of(raw, known)?).ok_or(Reason::OneOf(known))
}
