//! Helpers of the contract tests: a builder of events, a log with its clock and sink, and a sink that records
//! deliveries.

use std::sync::{Arc, Mutex};

use bongsu_kernel::json::Object;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{Clock, EventType, Id, Millis, StreamId};
use bongsu_live::log::{Delivery, EphemeralMessage, Idempotency, ReadLimits, Recipients, Sink};
use bongsu_live::{
    Append, AppendError, AppendOutcome, Log, LogEntry, LogError, LogPosition, Page, SubjectName,
};

use super::Adapter;

/// The initial time of the clock: 2024-02-16.
pub(crate) const NOW: Millis = 1_708_070_400_000;
/// Limits that no test reaches.
pub(crate) const ALL: ReadLimits = ReadLimits { entries: 1_000_000, bytes: usize::MAX };

pub(crate) type Outcome = Result<AppendOutcome, AppendError>;

/// A builder of an event to append.
#[derive(Clone, Debug)]
pub(crate) struct Event(Append);

impl Event {
    pub(crate) fn of(room: &str) -> Self {
        Self(Append {
            subject: subject(room),
            event_type: EventType::new("test.happened").unwrap(),
            data: Object::from_stored("{}").unwrap(),
            publisher: None,
            idempotency: None,
            recipients: Recipients::NONE,
            membership_version: None,
            audience: 0,
            keep: 10_000,
            trace: None,
        })
    }

    /// Sets data that distinguishes this event from others.
    pub(crate) fn number(self, number: u64) -> Self {
        self.data(&format!("{{\"number\":{number}}}"))
    }

    pub(crate) fn data(mut self, json: &str) -> Self {
        self.0.data = Object::from_stored(json).unwrap();
        self
    }

    pub(crate) fn kind(mut self, event_type: &str) -> Self {
        self.0.event_type = EventType::new(event_type).unwrap();
        self
    }

    pub(crate) fn publisher(mut self, id: &str) -> Self {
        self.0.publisher = Some(Id::new(id).unwrap());
        self
    }

    /// Sets an idempotency key, with a digest of the current data.
    pub(crate) fn key(mut self, key: &str) -> Self {
        let mut digest = [0; 32];
        for (at, byte) in self.0.data.as_str().bytes().enumerate() {
            digest[at % 32] ^= byte.wrapping_add(at as u8);
        }
        self.0.idempotency = Some(Idempotency { key: key.to_owned(), digest, earlier_digest: None });
        self
    }

    /// Changes the digest, and keeps the previous one as the digest of an earlier version.
    pub(crate) fn new_digest(mut self) -> Self {
        let idempotency = self.0.idempotency.as_mut().expect("a key");
        idempotency.earlier_digest = Some(idempotency.digest);
        idempotency.digest[0] ^= 1;
        self
    }

    pub(crate) fn recipients(mut self, ids: &[&str]) -> Self {
        self.0.recipients = Recipients::Named(ids.iter().map(|id| Id::new(id).unwrap()).collect());
        self
    }

    /// Makes the registered members of the room the recipients.
    pub(crate) fn for_members(mut self) -> Self {
        self.0.recipients = Recipients::Members;
        self
    }

    /// Sets the membership version that the event is made for.
    pub(crate) fn version(mut self, version: u64) -> Self {
        self.0.membership_version = Some(version);
        self
    }

    pub(crate) fn audience(mut self, audience: u32) -> Self {
        self.0.audience = audience;
        self
    }

    pub(crate) fn keep(mut self, keep: u32) -> Self {
        self.0.keep = keep;
        self
    }

    pub(crate) fn trace(mut self, traceparent: &str) -> Self {
        self.0.trace = TraceParent::parse(traceparent);
        self
    }

    pub(crate) fn append(&self) -> &Append {
        &self.0
    }
}

pub(crate) fn subject(room: &str) -> SubjectName {
    SubjectName::new("room", &Id::new(room).unwrap())
}

/// The result of an append that must have succeeded.
#[track_caller]
pub(crate) fn appended(outcome: &Outcome) -> &AppendOutcome {
    outcome.as_ref().expect("the event was not appended")
}

/// A delivery that the sink got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedDelivery {
    pub(crate) subject: SubjectName,
    pub(crate) previous: StreamId,
    pub(crate) entry: LogEntry,
}

/// Records all deliveries in their order.
#[derive(Default)]
pub(crate) struct RecordingSink(Mutex<Vec<RecordedDelivery>>);

impl RecordingSink {
    pub(crate) fn all(&self) -> Vec<RecordedDelivery> {
        self.0.lock().unwrap().clone()
    }

    /// Waits until this event was delivered. The embedded log delivers before it answers; a bus needs a moment.
    pub(crate) async fn wait_for(&self, subject: &SubjectName, id: StreamId) {
        let is_delivered = || {
            let all = self.0.lock().unwrap();
            all.iter().rev().any(|delivery| delivery.subject == *subject && delivery.entry.position.id == id)
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !is_delivered() {
            assert!(std::time::Instant::now() < deadline, "{id} was not delivered");
            // A shorter interval than that of `wait`, because every test waits here for each of its events.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    pub(crate) fn of(&self, room: &str) -> Vec<RecordedDelivery> {
        let subject = subject(room);
        self.all().into_iter().filter(|delivery| delivery.subject == subject).collect()
    }
}

impl Sink for RecordingSink {
    fn deliver(&self, delivery: Delivery<'_>) {
        let Delivery { subject, previous, entry, .. } = delivery;
        let recorded = RecordedDelivery { subject: subject.clone(), previous, entry: entry.clone() };
        self.0.lock().unwrap().push(recorded);
    }

    fn deliver_ephemeral(&self, _: &SubjectName, _: &EphemeralMessage) {}

    fn mark_stale(&self, _: &SubjectName) {}
}

/// A log on an adapter, with its manual clock and its recording sink.
pub(crate) struct LogFixture<A: Adapter> {
    adapter: A,
    running: Option<A::Running>,
    pub(crate) clock: Clock,
    pub(crate) sink: Arc<RecordingSink>,
}

impl<A: Adapter> LogFixture<A> {
    pub(crate) async fn empty() -> Self {
        Self::at(A::empty().await).await
    }

    /// A log on storage that the test can kill.
    pub(crate) async fn killable() -> Self {
        Self::at(A::killable().await).await
    }

    pub(crate) async fn at(adapter: A) -> Self {
        let (clock, sink) = (Clock::manual(NOW), Arc::new(RecordingSink::default()));
        let running = Some(adapter.open(clock.clone(), sink.clone()).await);
        Self { adapter, running, clock, sink }
    }

    pub(crate) fn adapter(&self) -> &A {
        &self.adapter
    }

    pub(crate) fn log(&self) -> Arc<dyn Log> {
        A::log(self.running())
    }

    pub(crate) fn running(&self) -> &A::Running {
        self.running.as_ref().expect("the log is open")
    }

    /// Closes the log cleanly and opens it again.
    pub(crate) async fn reopen(&mut self) {
        self.close().await;
        self.open().await;
    }

    /// Kills the log and opens it again.
    pub(crate) async fn kill_and_reopen(&mut self) {
        let running = self.running.take().expect("the log is open");
        self.adapter.kill(running).await;
        self.open().await;
    }

    pub(crate) async fn close(&mut self) {
        let running = self.running.take().expect("the log is open");
        self.adapter.close(running).await;
    }

    async fn open(&mut self) {
        self.running = Some(self.adapter.open(self.clock.clone(), self.sink.clone()).await);
    }

    pub(crate) async fn try_append(&self, events: Vec<Event>) -> Result<Vec<Outcome>, LogError> {
        let events: Vec<Append> = events.into_iter().map(|event| event.0).collect();
        let subjects: Vec<SubjectName> = events.iter().map(|event| event.subject.clone()).collect();
        self.subscribe(&subjects).await;
        let outcomes = self.log().append(events).await?;
        for (subject, outcome) in subjects.iter().zip(&outcomes) {
            if let Ok(AppendOutcome { id, duplicate: false, .. }) = outcome {
                self.sink.wait_for(subject, *id).await;
            }
        }
        Ok(outcomes)
    }

    /// Subscribes the sink to subjects.
    pub(crate) async fn subscribe(&self, subjects: &[SubjectName]) {
        for subject in subjects {
            A::subscribe(self.running(), subject).await;
        }
    }

    pub(crate) async fn append(&self, events: Vec<Event>) -> Vec<Outcome> {
        let count = events.len();
        let outcomes = self.try_append(events).await.expect("the log accepts events");
        assert_eq!(outcomes.len(), count, "each event has an outcome");
        outcomes
    }

    /// Appends an event, which must succeed.
    pub(crate) async fn append_one(&self, event: &Event) -> AppendOutcome {
        appended(&self.append(vec![event.clone()]).await[0]).clone()
    }

    /// The version of a room's membership.
    pub(crate) async fn version(&self, room: &str) -> u64 {
        self.log().membership_version(&subject(room)).await.expect("a version")
    }

    pub(crate) async fn change_version(&self, room: &str) {
        self.log().change_membership_version(&subject(room)).await.expect("a change");
    }

    pub(crate) async fn read(&self, room: &str, after: StreamId, limits: ReadLimits) -> Page {
        self.log().read(&subject(room), after, limits).await.expect("the log can be read")
    }

    /// All entries of a room.
    pub(crate) async fn entries(&self, room: &str) -> Vec<LogEntry> {
        let page = self.read(room, StreamId::START, ALL).await;
        assert!(!page.more, "the page has no limit");
        page.entries
    }

    pub(crate) async fn ids(&self, room: &str) -> Vec<StreamId> {
        self.entries(room).await.iter().map(|entry| entry.position.id).collect()
    }

    pub(crate) async fn head(&self, room: &str) -> LogPosition {
        self.log().head(&subject(room)).await.expect("the log can be read")
    }
}

/// Whether each id is larger than the previous one.
pub(crate) fn is_strictly_increasing(ids: &[StreamId]) -> bool {
    ids.windows(2).all(|pair| pair[0] < pair[1])
}
