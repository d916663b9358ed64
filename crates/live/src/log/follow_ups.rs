//! The port of follow-ups: what was written down for people with an event, for whoever sees to it.
//!
//! The log writes it down ([`Log::append`](super::Log::append)); the inbox takes it, and lets go of it when it is done.

use std::sync::Arc;

use bongsu_kernel::trace::{self, TraceParent};
use bongsu_kernel::{Id, Millis, StreamId};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{Append, Boxed, LogError};
use crate::SubjectName;

/// What was written down for people, until somebody has seen to it.
///
/// - **Durable** with the event it is about, and there until it is [`done`](FollowUps::done), however often it was taken.
/// - **In order** per subject. Several hubs may take the same ones: seeing to one twice has to be harmless.
/// - **Found.** Who goes on taking comes by everything within seconds, also where the news of it was lost.
pub trait FollowUps: Send + Sync {
    /// Some of the oldest, leaving out those that were taken before and could not be seen to.
    fn take<'a>(&'a self, most: usize, but: &'a [Pending]) -> Boxed<'a, Result<Vec<Pending>, LogError>>;

    /// These were seen to.
    fn done(&self, pending: Vec<Pending>) -> Boxed<'_, Result<(), LogError>>;

    /// What waits for one event. It costs little however much waits, so that anybody may ask for anything; therefore one with
    /// hundreds of newer ones behind it may not be found.
    fn find(&self, subject: &SubjectName, id: StreamId) -> Boxed<'_, Result<Option<FollowUp>, LogError>>;

    /// Has news of what is written down from when it returns, until it is dropped. One at a time.
    fn watch(&self) -> Boxed<'_, Watch>;
}

/// Says when something was written down. It may miss that, and may say it for nothing: whoever waits looks again after a
/// while in any case.
pub struct Watch {
    pub(super) news: Arc<Notify>,
    pub(super) on_drop: Box<dyn Fn() + Send + Sync>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        (self.on_drop)();
    }
}

impl Watch {
    /// Waits until there is something new since it returned last.
    pub async fn news(&self) {
        self.news.notified().await;
    }
}

/// Who gets an inbox entry of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipients {
    /// These people. When there are none, no record is written.
    Named(Vec<Id>),
    /// Whoever is a registered member of the subject when the entries are made, less the publisher: an append needs no
    /// records in SQL for that.
    Members,
}

impl Recipients {
    pub const NONE: Self = Self::Named(Vec::new());

    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }
}

/// A record, and how its keeper finds it again. Its bytes are as they were found, whoever wrote them.
#[derive(Clone, Debug)]
pub struct Pending {
    pub key: String,
    pub record: Vec<u8>,
}

impl Pending {
    /// None when it is not readable, or of a version that is not known here.
    pub fn read(&self) -> Option<FollowUp> {
        FollowUp::read(&self.record)
    }
}

/// What is to be done for people, written down with the event and read by the inbox. Version 1 names its recipients;
/// version 2 is for the registered members of the subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowUp {
    /// The version of this record.
    pub v: u32,
    pub subject: String,
    pub stream_id: String,
    pub event_type: String,
    #[serde(default, deserialize_with = "trace::stored", skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceParent>,
    pub data: Box<serde_json::value::RawValue>,
    pub publisher_id: Option<Id>,
    pub timestamp: Millis,
    /// None: the registered members.
    pub recipients: Option<Vec<Id>>,
}

impl FollowUp {
    fn read(record: &[u8]) -> Option<Self> {
        let read: Self = serde_json::from_slice(record).ok()?;
        matches!((read.v, &read.recipients), (1, Some(_)) | (2, None)).then_some(read)
    }

    /// The record of an event that got this id at this time, as it is stored. None when nobody gets an entry.
    pub(super) fn written(
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

    /// Those of the registered members who get an entry.
    pub fn among(&self, mut members: Vec<Id>) -> Vec<Id> {
        members.retain(|member| Some(member) != self.publisher_id.as_ref());
        members
    }

    /// Reads a record, if it is the one of this event.
    pub(super) fn of(subject: &SubjectName, id: StreamId, record: &[u8]) -> Option<Self> {
        let (id, text) = (id.to_string(), std::str::from_utf8(record).ok()?);
        // Most are not, and are not worth reading.
        let read = if text.contains(&id) { Self::read(record) } else { None };
        read.filter(|record| record.subject == subject.as_str() && record.stream_id == id)
    }
}
