//! An entry on its way to those who are connected: what the bus carries and the ring holds. Version 1.
//!
//! It has no wording: every connection says it in its own language.

use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::json::Object;
use bongsu_kernel::text::Language;
use bongsu_kernel::{EventType, Id, Millis, StreamId};
use bongsu_live::{Entry as LiveEntry, Place};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{EventId, Kind, Notice, Templates};

/// The name of the event on a personal stream, as the contract has it.
pub const EVENT: &str = "notification";

/// What the entry is called on its way.
pub const SAVED: &str = "inbox.saved";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    v: u32,
    id: u64,
    event_id: String,
    r#type: String,
    ref_id: Option<Id>,
    actor_id: Option<Id>,
    payload: Box<RawValue>,
    at: Millis,
    /// The person's count, and the version that says which of two counts is newer. Hubs that do not send them yet are
    /// there while a fleet is being upgraded.
    unread: Option<u64>,
    version: Option<u64>,
}

/// What a client is told.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Said<'a> {
    id: Id,
    event_id: &'a EventId,
    r#type: &'a str,
    message: String,
    ref_id: Option<&'a Id>,
    actor_id: Option<&'a Id>,
    payload: &'a RawValue,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    unread: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
}

/// The place of an entry among a person's.
pub fn place(seq: u64) -> Place {
    Place { id: StreamId::new(seq, 0), number: None }
}

/// As the bus and the ring have it, with the person's count and its version.
pub fn written(seq: u64, notice: &Notice, at: Millis, (unread, version): (u64, u64)) -> Option<LiveEntry> {
    let wire = Wire {
        v: 1,
        id: seq,
        event_id: notice.event.to_string(),
        r#type: notice.kind.as_str().to_owned(),
        ref_id: notice.reference.clone(),
        actor_id: notice.actor.clone(),
        payload: RawValue::from_string(notice.payload.as_str().to_owned()).ok()?,
        at,
        unread: Some(unread),
        version: Some(version),
    };
    let data = Object::stored(&serde_json::to_string(&wire).ok()?)?;
    let event_type = EventType::new(SAVED).ok()?;
    Some(LiveEntry { place: place(seq), event_type, data, publisher: None, at, trace: None })
}

/// The data of [`written`] as a client is told it. What cannot be read is passed on as it is.
pub fn said(data: &str, templates: &Templates, language: Language) -> Option<String> {
    let wire: Wire = serde_json::from_str(data).ok()?;
    let notice = Notice {
        event: EventId::new(&wire.event_id).ok()?,
        kind: Kind::new(&wire.r#type).ok()?,
        reference: wire.ref_id.clone(),
        actor: wire.actor_id.clone(),
        payload: Object::stored(wire.payload.get())?,
    };
    let said = Said {
        id: wire.id.into(),
        event_id: &notice.event,
        r#type: &wire.r#type,
        message: templates.message(&notice, language),
        ref_id: wire.ref_id.as_ref(),
        actor_id: wire.actor_id.as_ref(),
        payload: &wire.payload,
        created_at: rfc3339(wire.at),
        unread: wire.unread,
        version: wire.version,
    };
    serde_json::to_string(&said).ok()
}
