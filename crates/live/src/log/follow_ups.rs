//! The port of follow-up records: who is to be notified of an event.
//!
//! [`Log::append`](super::Log::append) stores the record together with the event. The inbox takes the record, makes
//! inbox entries from it and acknowledges it.

use std::sync::Arc;

use bongsu_kernel::trace::{self, TraceParent};
use bongsu_kernel::{Id, Millis, StreamId};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{Append, BoxFuture, LogFuture};
use crate::SubjectName;

/// The follow-up records that were not acknowledged yet.
///
/// - **Durable** like the event, and kept until [`FollowUps::acknowledge`], however often a record was taken.
/// - **In order** per subject. Several instances may take the same record, so handling one twice must be harmless.
/// - **Found.** A caller that repeats `take` gets every record within seconds, also if its announcement was lost.
pub trait FollowUps: Send + Sync {
    /// Returns about `limit` of the oldest records, without those in `excluded`, which were taken before and failed.
    fn take<'a>(
        &'a self,
        limit: usize,
        excluded: &'a [PendingFollowUp],
    ) -> LogFuture<'a, Vec<PendingFollowUp>>;

    /// Removes records that were handled.
    fn acknowledge(&self, pending: Vec<PendingFollowUp>) -> LogFuture<'_, ()>;

    /// The record of one event. The cost is bounded however many records wait, because every person may ask for any
    /// event; therefore a record that is older than hundreds of others may not be found.
    fn find(&self, subject: &SubjectName, id: StreamId) -> LogFuture<'_, Option<FollowUp>>;

    /// Watches for new records, from when this returns until the watch is dropped. At most one watch may exist.
    fn watch(&self) -> BoxFuture<'_, FollowUpWatch>;
}

/// Reports that records were added. The watch may miss a record and may report one that does not exist, so the caller
/// also polls.
pub struct FollowUpWatch {
    pub(super) added: Arc<Notify>,
    pub(super) on_drop: Box<dyn Fn() + Send + Sync>,
}

impl Drop for FollowUpWatch {
    fn drop(&mut self) {
        (self.on_drop)();
    }
}

impl FollowUpWatch {
    /// Waits until records were added since the previous call returned.
    pub async fn changed(&self) {
        self.added.notified().await;
    }
}

/// Who gets an inbox entry of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipients {
    /// The people in this list. No record is stored for an empty list.
    Named(Vec<Id>),
    /// The registered members of the subject when the inbox makes the entries, without the publisher. The append does
    /// not read the members from SQL.
    Members,
}

impl Recipients {
    pub const NONE: Self = Self::Named(Vec::new());

    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }
}

/// A stored record, unparsed, and the key by which the adapter finds it again.
#[derive(Clone, Debug)]
pub struct PendingFollowUp {
    pub key: String,
    pub record: Vec<u8>,
}

impl PendingFollowUp {
    /// The decoded record. None if it is malformed or of an unknown version.
    pub fn decode(&self) -> Option<FollowUp> {
        FollowUp::decode(&self.record)
    }
}

/// A follow-up record. Version 1 names its recipients; version 2 is for the registered members of the subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowUp {
    /// The version of the record format.
    pub v: u32,
    pub subject: String,
    pub stream_id: String,
    pub event_type: String,
    #[serde(
        default,
        deserialize_with = "trace::deserialize_stored",
        skip_serializing_if = "Option::is_none"
    )]
    pub traceparent: Option<TraceParent>,
    pub data: Box<serde_json::value::RawValue>,
    pub publisher_id: Option<Id>,
    pub timestamp: Millis,
    /// None: the registered members.
    pub recipients: Option<Vec<Id>>,
}

impl FollowUp {
    fn decode(record: &[u8]) -> Option<Self> {
        let read: Self = serde_json::from_slice(record).ok()?;
        matches!((read.v, &read.recipients), (1, Some(_)) | (2, None)).then_some(read)
    }

    /// Encodes the record of an event that was stored with this id at this time. None if the event has no recipients.
    pub(super) fn encode(
        event: &Append,
        stream_id: String,
        timestamp: Millis,
    ) -> Result<Option<String>, serde_json::Error> {
        let (v, recipients) = match &event.recipients {
            recipients if recipients.is_empty() => return Ok(None),
            Recipients::Named(people) => (1, Some(people.clone())),
            Recipients::Members => (2, None),
        };
        let record = Self {
            v,
            subject: event.subject.as_str().to_owned(),
            stream_id,
            event_type: event.event_type.as_str().to_owned(),
            traceparent: event.trace,
            data: serde_json::value::RawValue::from_string(event.data.as_str().to_owned())?,
            publisher_id: event.publisher.clone(),
            timestamp,
            recipients,
        };
        serde_json::to_string(&record).map(Some)
    }

    /// Removes the publisher from the registered members; the rest get an entry.
    pub fn filter_recipients(&self, mut members: Vec<Id>) -> Vec<Id> {
        members.retain(|member| Some(member) != self.publisher_id.as_ref());
        members
    }

    /// Decodes a record if it is the one of this event.
    pub(super) fn decode_if_of(subject: &SubjectName, id: StreamId, record: &[u8]) -> Option<Self> {
        let (id, text) = (id.to_string(), std::str::from_utf8(record).ok()?);
        // Parses only records that contain the id, because most records are of other events.
        let read = if text.contains(&id) { Self::decode(record) } else { None };
        read.filter(|record| record.subject == subject.as_str() && record.stream_id == id)
    }
}
