//! The port of follow-ups: what was written down for people with an event, for whoever sees to it.
//!
//! The log writes it down ([`Log::append`](super::Log::append)); the inbox takes it, and lets go of it when it is done.

use std::sync::Arc;

use bongsu_kernel::{Id, Millis, StreamId};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{Boxed, LogError};
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
    news: Arc<Notify>,
    _held: Option<Box<dyn Send + Sync>>,
}

impl Watch {
    pub(super) fn new(news: Arc<Notify>, held: Option<Box<dyn Send + Sync>>) -> Self {
        Self { news, _held: held }
    }

    /// Waits until there is something new since it returned last.
    pub async fn news(&self) {
        self.news.notified().await;
    }
}

/// A record, and how its keeper finds it again.
#[derive(Clone, Debug)]
pub struct Pending {
    pub key: String,
    pub record: String,
}

impl Pending {
    /// Nothing when it is of a version that is not known here.
    pub fn read(&self) -> Option<FollowUp> {
        FollowUp::read(&self.record)
    }
}

/// What is to be done for people, written down with the event and read by the inbox. Version 1.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowUp {
    /// The version of this record.
    pub v: u32,
    pub subject: String,
    pub stream_id: String,
    pub event_type: String,
    pub data: Box<serde_json::value::RawValue>,
    pub publisher_id: Option<Id>,
    pub timestamp: Millis,
    pub recipients: Vec<Id>,
}

impl FollowUp {
    fn read(record: &str) -> Option<Self> {
        serde_json::from_str::<Self>(record).ok().filter(|record| record.v == 1)
    }

    /// Reads a record, if it is the one of this event.
    pub(super) fn of(subject: &SubjectName, id: StreamId, record: &str) -> Option<Self> {
        let id = id.to_string();
        // Most are not, and are not worth reading.
        let read = if record.contains(&id) { Self::read(record) } else { None };
        read.filter(|record| record.subject == subject.as_str() && record.stream_id == id)
    }
}
