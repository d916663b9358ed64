//! Formats the report of `bongsu explain` as aligned lines or as JSON. The lines are written from the JSON document, so
//! that both have the same content.

use bongsu_inbox::explain::{EntryCounts, EntryState, RecipientReport};
use bongsu_inbox::settings::MuteReason;
use bongsu_kernel::clock::rfc3339;
use bongsu_kernel::settings::Values;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{Id, Millis};
use bongsu_live::log::FollowUp;
use bongsu_outbox::explain::ExplainedRow;
use serde::Serialize;

use super::EventData;
use bongsu_part::Failure;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    event_id: &'a str,
    /// The trace context of the request that published the event.
    traceparent: Option<TraceParent>,
    accepted: Option<Acceptance>,
    derived: Option<EntryCounts>,
    /// The number of people whose entry has not been made yet.
    waiting: Option<usize>,
    outbox: Option<OutboxRow<'a>>,
    person: Option<Person<'a>>,
    not_known: &'a [&'static str],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Acceptance {
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
    /// Null until the sequencer has given the row its position.
    position: Option<u64>,
    /// Why the row is not sent to streams.
    not_told: Option<&'static str>,
    status: &'a str,
    attempts: u64,
    /// Why the row was given up.
    reason: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Person<'a> {
    id: &'a Id,
    entry: Option<Entry>,
    /// The person's entry has not been made yet: a pending follow-up record names the person.
    waits: bool,
    /// Why the notification was not sent to streams.
    not_sent: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    id: Id,
    created_at: String,
    read_at: Option<String>,
    /// The read mark is pending in Redis and not written to the row yet.
    mark_waits: bool,
    deleted_at: Option<String>,
}

/// The error message for an event of which no data is stored.
pub(super) fn not_found(data: &EventData, values: &Values) -> String {
    let days = values.size(&bongsu_inbox::INBOX_RETENTION_DAYS);
    let not_known = data.not_known.iter().find(|line| line.starts_with("whether the room"));
    let not_known = not_known.map(|line| format!(". Not known: {line}")).unwrap_or_default();
    format!(
        "nothing is known of {}: it was not accepted by this hub, it had no recipients and was trimmed from its room, or it is older than {days} days{not_known}",
        data.event
    )
}

pub(super) fn json(data: &EventData) -> Result<String, Failure> {
    serde_json::to_string_pretty(&document(data)).map_err(Failure::other)
}

pub(super) fn text(data: &EventData) -> String {
    let document = document(data);
    let mut lines = vec![("event", document.event_id.to_owned())];
    lines.extend(document.traceparent.map(|trace| ("trace", trace.trace_id().to_owned())));
    if let Some(Acceptance { at, r#type, ref_id, actor_id }) = &document.accepted {
        let about = ref_id.as_ref().map(|id| format!(", about {id}")).unwrap_or_default();
        let by = actor_id.as_ref().map(|id| format!(", by {id}")).unwrap_or_default();
        lines.push(("accepted", format!("{at}, {type}{about}{by}")));
    }
    if let Some(row) = &document.outbox {
        lines.extend(row_lines(row));
    }
    match &document.derived {
        // An outbox row is sent to streams and has no inbox entries.
        None if document.accepted.is_none() => {}
        None => lines.push(("derived", "no person has an entry".to_owned())),
        Some(EntryCounts { people, unread, read, deleted }) => {
            let has = if *people == 1 { "person has" } else { "people have" };
            let text = format!("{people} {has} an entry: {unread} unread, {read} read, {deleted} deleted");
            lines.push(("derived", text));
        }
    }
    lines.extend(
        document.waiting.map(|count| ("waiting", format!("the entries of {count} people are not made yet"))),
    );
    if let Some(person) = &document.person {
        lines.push(("person", format!("{}: {}", person.id, entry_text(person))));
        let sent = person
            .not_sent
            .map_or_else(|| "sent to the connected devices".to_owned(), |why| format!("not sent: {why}"));
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
        (_, Some(why)) => format!("not sent: {why}"),
        (Some(position), None) => format!("position {position}: sent to the streams of {target_event_id}"),
        (None, None) => "no position yet: the sequencer has not reached this row".to_owned(),
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
        return if person.waits { "the entry is not made yet" } else { "has no entry" }.to_owned();
    };
    let state = match (&entry.deleted_at, &entry.read_at) {
        (Some(at), _) => format!("deleted {at}"),
        (None, Some(at)) if entry.mark_waits => format!("read {at} (pending in Redis, not written yet)"),
        (None, Some(at)) => format!("read {at}"),
        (None, None) => "unread".to_owned(),
    };
    format!("number {}, created {}, {state}", entry.id, entry.created_at)
}

fn document(data: &EventData) -> Document<'_> {
    let EventData { event, person, explained, room, row, not_known } = data;
    let (log_entry, follow_up) = (
        room.as_ref().and_then(|trace| trace.event.as_ref()),
        room.as_ref().and_then(|trace| trace.follow_up.as_ref()),
    );
    // The reference of a room event is its room.
    let reference = || event.as_str().rsplit_once(':').and_then(|(room, _)| Id::new(room).ok());
    let accepted = |at: Millis, kind: &str, ref_id: Option<Id>, actor: &Option<Id>| Acceptance {
        at: rfc3339(at),
        r#type: kind.to_owned(),
        ref_id,
        actor_id: actor.clone(),
    };
    let accepted = match (log_entry, follow_up, explained) {
        (Some(entry), ..) => {
            Some(accepted(entry.at, entry.event_type.as_str(), reference(), &entry.publisher))
        }
        (_, Some(record), _) => {
            Some(accepted(record.timestamp, &record.event_type, reference(), &record.publisher_id))
        }
        (_, _, Some(explained)) => {
            let notification = &explained.notification;
            let reference = notification.reference.clone();
            Some(accepted(explained.accepted_at, notification.kind.as_str(), reference, &notification.actor))
        }
        (None, None, None) => None,
    };
    let derived = explained.as_ref().map(|explained| explained.counts);
    let recipient = explained.as_ref().and_then(|explained| explained.person.as_ref());
    let person = person.as_ref().map(|id| Person {
        id,
        entry: recipient.and_then(|recipient| recipient.entry).map(entry),
        waits: follow_up.is_some_and(|record| recipients(record).contains(id)),
        not_sent: recipient.and_then(|RecipientReport { mute_reason, .. }| *mute_reason).map(mute_text),
    });
    let traceparent = log_entry.and_then(|entry| entry.trace);
    let traceparent = traceparent.or_else(|| follow_up.and_then(|record| record.traceparent));
    let traceparent = traceparent.or_else(|| row.as_ref().and_then(|explained| explained.row.trace));
    let waiting = follow_up.map(|record| recipients(record).len());
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

fn entry(state: EntryState) -> Entry {
    Entry {
        id: state.seq.into(),
        created_at: rfc3339(state.created_at),
        read_at: state.read_at.map(rfc3339),
        mark_waits: state.is_mark_pending,
        deleted_at: state.deleted_at.map(rfc3339),
    }
}

fn mute_text(reason: MuteReason) -> &'static str {
    match reason {
        MuteReason::AllNotifications => "notifications are switched off",
        MuteReason::InAppChannel => "the channel IN_APP is switched off",
        MuteReason::NotificationType => "this type is switched off",
    }
}
