//! Reads requests, field by field.

use axum::extract::{FromRequestParts, Path};
use bongsu_http::answer::invalid;
use bongsu_http::{ApiError, Fields, Page, Query, fields};
use bongsu_kernel::json::Object;
use bongsu_kernel::{Id, Invalid, Reason};
use http::request::Parts;
use serde_json::value::RawValue;

use crate::list::Wanted;
use crate::notify::MOST_TARGETS;
use crate::{EntryId, EventId, Kind, Notice};

/// The entry in the path, and how it was written.
pub(super) struct EntryPath(pub(super) EntryId, pub(super) EventId);

impl<S: Send + Sync> FromRequestParts<S> for EntryPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let id = Path::<String>::from_request_parts(parts, state).await;
        let Path(id) = id.map_err(|_| invalid("id", Reason::Utf8))?;
        let given = EventId::new(&id).map_err(|reason| invalid("id", reason))?;
        Ok(Self(EntryId::of(given.clone()), given))
    }
}

pub(super) fn read_wanted(query: &Query, person: Id) -> Result<Wanted, Invalid> {
    let Page { before, limit } = Page::of(query)?;
    let unread = match query.get("unread") {
        None | Some("" | "false") => false,
        Some("true") => true,
        Some(_) => return Err(Invalid::new("unread", Reason::NotAFlag)),
    };
    Ok(Wanted { person, before, limit, unread })
}

pub(super) fn read_notify(fields: &Fields<'_>) -> Result<(Notice, Vec<Id>), ApiError> {
    let empty = || Object::stored("{}").ok_or_else(ApiError::unexpected);
    let notice = Notice {
        event: fields.required("eventId", |raw| EventId::new(fields::id(raw)?.as_str()))?,
        kind: fields.required("type", |raw| Kind::capitals(&fields::text(raw, Id::MAX_LEN)?))?,
        reference: fields.optional("refId", fields::id)?,
        actor: fields.optional("actorId", fields::id)?,
        payload: match fields.optional("payload", |raw| Object::parse(raw, ""))? {
            Some(payload) => fields.of_one_event("payload", payload)?,
            None => empty()?,
        },
    };
    Ok((notice, read_targets(fields)?))
}

fn read_targets(fields: &Fields<'_>) -> Result<Vec<Id>, Invalid> {
    let items = fields.required("targetIds", |raw| fields::list(raw, MOST_TARGETS))?;
    let read = |(index, raw): (usize, &&RawValue)| {
        fields::id(raw).map_err(|reason| fields.invalid(&format!("targetIds[{index}]"), reason))
    };
    let targets: Vec<Id> = items.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    if targets.is_empty() { Err(fields.invalid("targetIds", Reason::Empty)) } else { Ok(targets) }
}
