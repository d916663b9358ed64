//! What was found of an event, in aligned lines or as JSON. Both say the same: the lines are written from what the JSON has.
//! The neighbour `explain` finds it.

use bongsu_inbox::explain::{Held, OnePerson, Spread};
use bongsu_inbox::settings::Silence;
use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::settings::Values;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{Id, Millis};
use bongsu_live::log::FollowUp;
use bongsu_outbox::explain::ExplainedRow;
use serde::Serialize;

use super::Found;
use bongsu_part::Failure;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    event_id: &'a str,
    /// The trace context of the request that published it.
    traceparent: Option<TraceParent>,
    accepted: Option<Accepted>,
    derived: Option<Spread>,
    /// How many people wait to get an entry.
    waiting: Option<usize>,
    outbox: Option<OutboxRow<'a>>,
    person: Option<Person<'a>>,
    not_known: &'a [&'static str],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Accepted {
    at: String,
    r#type: String,
    ref_id: Option<Id>,
    actor_id: Option<Id>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OutboxRow<'a> {
    id: Id,
    created_at: String,
    r#type: &'a str,
    target_event_id: &'a str,
    /// Null until streams have it.
    position: Option<u64>,
    /// Why no stream is told of it.
    not_told: Option<&'static str>,
    status: &'a str,
    attempts: u64,
    /// Why it was given up.
    reason: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Person<'a> {
    id: &'a Id,
    entry: Option<Entry>,
    /// Whether they are among those for whom an entry waits to be made.
    waits: bool,
    not_sent: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    id: Id,
    created_at: String,
    read_at: Option<String>,
    /// It was read, and that waits in Redis to be written.
    mark_waits: bool,
    deleted_at: Option<String>,
}

pub(super) fn unknown(found: &Found, values: &Values) -> String {
    let days = values.size(&bongsu_inbox::INBOX_RETENTION_DAYS);
    let unseen = found.not_known.iter().find(|line| line.starts_with("whether the room"));
    let unseen = unseen.map(|line| format!(". Not known: {line}")).unwrap_or_default();
    format!(
        "nothing is known of {}: it was not accepted here, it named nobody and its room has dropped it, or it is older than {days} days{unseen}",
        found.event
    )
}

pub(super) fn json(found: &Found) -> Result<String, Failure> {
    serde_json::to_string_pretty(&document(found)).map_err(Failure::other)
}

pub(super) fn text(found: &Found) -> String {
    let document = document(found);
    let mut lines = vec![("event", document.event_id.to_owned())];
    lines.extend(document.traceparent.map(|trace| ("trace", trace.trace_id().to_owned())));
    if let Some(Accepted { at, r#type, ref_id, actor_id }) = &document.accepted {
        let about = ref_id.as_ref().map(|id| format!(", about {id}")).unwrap_or_default();
        let by = actor_id.as_ref().map(|id| format!(", by {id}")).unwrap_or_default();
        lines.push(("accepted", format!("{at}, {type}{about}{by}")));
    }
    if let Some(row) = &document.outbox {
        lines.extend(row_lines(row));
    }
    match &document.derived {
        // A row is told to streams, and makes no entries.
        None if document.accepted.is_none() => {}
        None => lines.push(("derived", "nobody has an entry".to_owned())),
        Some(Spread { people, unread, read, deleted }) => {
            let has = if *people == 1 { "person has" } else { "people have" };
            let text = format!("{people} {has} an entry: {unread} unread, {read} read, {deleted} deleted");
            lines.push(("derived", text));
        }
    }
    lines.extend(
        document.waiting.map(|count| ("waiting", format!("entries for {count} still wait to be made"))),
    );
    if let Some(person) = &document.person {
        lines.push(("person", format!("{}: {}", person.id, entry_text(person))));
        let sent = person
            .not_sent
            .map_or_else(|| "sent to whoever was connected".to_owned(), |why| format!("not sent: {why}"));
        lines.extend(person.entry.is_some().then_some(("live", sent)));
    }
    lines.extend(document.not_known.iter().map(|line| ("not known", (*line).to_owned())));
    let widest = lines.iter().map(|(label, _)| label.len()).max().unwrap_or_default();
    let written: Vec<String> = lines.iter().map(|(label, text)| format!("{label:widest$}  {text}")).collect();
    written.join("\n")
}

fn row_lines(row: &OutboxRow<'_>) -> [(&'static str, String); 3] {
    let OutboxRow { id, created_at, r#type, target_event_id, .. } = row;
    let streams = match (row.position, row.not_told) {
        (_, Some(why)) => format!("not told: {why}"),
        (Some(position), None) => format!("position {position}: sent to whoever followed {target_event_id}"),
        (None, None) => "no position yet: the sequencer has not come by it".to_owned(),
    };
    let attempts =
        if row.attempts == 0 { String::new() } else { format!(" after {} attempts", row.attempts) };
    let reason = row.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    [
        ("outbox", format!("row {id}, {created_at}, {type}, about {target_event_id}")),
        ("streams", streams),
        ("work", format!("{}{attempts}{reason}", row.status)),
    ]
}

fn entry_text(person: &Person<'_>) -> String {
    let Some(entry) = &person.entry else {
        return if person.waits { "the entry waits to be made" } else { "has no entry" }.to_owned();
    };
    let state = match (&entry.deleted_at, &entry.read_at) {
        (Some(at), _) => format!("deleted {at}"),
        (None, Some(at)) if entry.mark_waits => format!("read {at} (waits in Redis to be written)"),
        (None, Some(at)) => format!("read {at}"),
        (None, None) => "unread".to_owned(),
    };
    format!("number {}, created {}, {state}", entry.id, entry.created_at)
}

fn document(found: &Found) -> Document<'_> {
    let Found { event, person, explained, room, row, not_known } = found;
    let (kept, waiting) = (
        room.as_ref().and_then(|traces| traces.event.as_ref()),
        room.as_ref().and_then(|traces| traces.waiting.as_ref()),
    );
    // The room is what its events are about.
    let reference = || event.as_str().rsplit_once(':').and_then(|(room, _)| Id::new(room).ok());
    let accepted = |at: Millis, kind: &str, ref_id: Option<Id>, actor: &Option<Id>| Accepted {
        at: rfc3339(at),
        r#type: kind.to_owned(),
        ref_id,
        actor_id: actor.clone(),
    };
    let accepted = match (kept, waiting, explained) {
        (Some(kept), ..) => Some(accepted(kept.at, kept.event_type.as_str(), reference(), &kept.publisher)),
        (_, Some(record), _) => {
            Some(accepted(record.timestamp, &record.event_type, reference(), &record.publisher_id))
        }
        (_, _, Some(explained)) => {
            let notice = &explained.notice;
            let reference = notice.reference.clone();
            Some(accepted(explained.accepted_at, notice.kind.as_str(), reference, &notice.actor))
        }
        (None, None, None) => None,
    };
    let derived = explained.as_ref().map(|explained| explained.spread);
    let one = explained.as_ref().and_then(|explained| explained.person.as_ref());
    let person = person.as_ref().map(|id| Person {
        id,
        entry: one.and_then(|one| one.held).map(entry),
        waits: waiting.is_some_and(|record| recipients(record).contains(id)),
        not_sent: one.and_then(|OnePerson { silence, .. }| *silence).map(words),
    });
    let traceparent = kept.and_then(|entry| entry.trace);
    let traceparent = traceparent.or_else(|| waiting.and_then(|record| record.traceparent));
    let traceparent = traceparent.or_else(|| row.as_ref().and_then(|explained| explained.row.trace));
    let waiting = waiting.map(|record| recipients(record).len());
    let outbox = row.as_ref().map(outbox_row);
    Document { event_id: event.as_str(), traceparent, accepted, derived, waiting, outbox, person, not_known }
}

fn outbox_row(explained: &ExplainedRow) -> OutboxRow<'_> {
    let row = &explained.row;
    OutboxRow {
        id: row.id.into(),
        created_at: rfc3339(row.created_at),
        r#type: &row.event_type,
        target_event_id: &row.target,
        position: explained.position(),
        not_told: row.fault().map(bongsu_outbox::Fault::reason),
        status: &explained.status,
        attempts: explained.attempts,
        reason: explained.reason.as_deref(),
    }
}

fn recipients(record: &FollowUp) -> &[Id] {
    record.recipients.as_deref().unwrap_or_default()
}

fn entry(held: Held) -> Entry {
    Entry {
        id: held.seq.into(),
        created_at: rfc3339(held.created_at),
        read_at: held.read_at.map(rfc3339),
        mark_waits: held.mark_waits,
        deleted_at: held.deleted_at.map(rfc3339),
    }
}

fn words(silence: Silence) -> &'static str {
    match silence {
        Silence::Everything => "notifications are switched off",
        Silence::Channel => "the channel IN_APP is switched off",
        Silence::Type => "this type is switched off",
    }
}
