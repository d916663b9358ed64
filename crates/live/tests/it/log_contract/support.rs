//! What the tests of the contract speak in: events made in a line, a log with its clock and sink, and a sink that
//! remembers.

use std::sync::{Arc, Mutex};

use bongsu_kernel::json::Object;
use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{Clock, EventType, Id, Millis, StreamId};
use bongsu_live::log::{Delivery, Most, Once, Passing, Recipients, Sink};
use bongsu_live::{Append, AppendError, Appended, Entry, Log, LogError, Page, Place, SubjectName};

use super::Adapter;

/// When the tests' clock begins: 2024-02-16.
pub(crate) const NOW: Millis = 1_708_070_400_000;
/// More than any test appends.
pub(crate) const ALL: Most = Most { entries: 1_000_000, bytes: usize::MAX };

pub(crate) type Outcome = Result<Appended, AppendError>;

/// An event to be appended, made up as tests need it.
#[derive(Clone, Debug)]
pub(crate) struct Event(Append);

impl Event {
    pub(crate) fn of(room: &str) -> Self {
        Self(Append {
            subject: subject(room),
            event_type: EventType::new("test.happened").unwrap(),
            data: Object::stored("{}").unwrap(),
            publisher: None,
            once: None,
            recipients: Recipients::NONE,
            membership_version: None,
            audience: 0,
            keep: 10_000,
            trace: None,
        })
    }

    /// Data that tells this event from others.
    pub(crate) fn number(self, number: u64) -> Self {
        self.data(&format!("{{\"number\":{number}}}"))
    }

    pub(crate) fn data(mut self, json: &str) -> Self {
        self.0.data = Object::stored(json).unwrap();
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

    /// A key, with a digest that follows from the data.
    pub(crate) fn key(mut self, key: &str) -> Self {
        let mut digest = [0; 32];
        for (at, byte) in self.0.data.as_str().bytes().enumerate() {
            digest[at % 32] ^= byte.wrapping_add(at as u8);
        }
        self.0.once = Some(Once { key: key.to_owned(), digest, earlier_digest: None });
        self
    }

    /// The digest of an event with a key is another one since this version, which knows what it was before.
    pub(crate) fn new_digest(mut self) -> Self {
        let once = self.0.once.as_mut().expect("a key");
        once.earlier_digest = Some(once.digest);
        once.digest[0] ^= 1;
        self
    }

    pub(crate) fn recipients(mut self, ids: &[&str]) -> Self {
        self.0.recipients = Recipients::Named(ids.iter().map(|id| Id::new(id).unwrap()).collect());
        self
    }

    /// For the registered members of the room.
    pub(crate) fn for_members(mut self) -> Self {
        self.0.recipients = Recipients::Members;
        self
    }

    /// Made for a version of the membership.
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

/// The outcome of an event that has to have been taken.
#[track_caller]
pub(crate) fn appended(outcome: &Outcome) -> &Appended {
    outcome.as_ref().expect("the event was not taken")
}

/// What the sink was told of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) subject: SubjectName,
    pub(crate) previous: StreamId,
    pub(crate) entry: Entry,
}

/// Remembers everything in the order in which it was told.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Vec<Told>>);

impl Memory {
    pub(crate) fn all(&self) -> Vec<Told> {
        self.0.lock().unwrap().clone()
    }

    /// Until it was told of this event. A log in this process has told it before it answers; a bus needs a moment.
    pub(crate) async fn wait_for(&self, subject: &SubjectName, id: StreamId) {
        let told = || {
            let all = self.0.lock().unwrap();
            all.iter().rev().any(|told| told.subject == *subject && told.entry.place.id == id)
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !told() {
            assert!(std::time::Instant::now() < deadline, "the sink was never told of {id}");
            // Far more often than `wait` looks: this is asked for every event of every test.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }

    pub(crate) fn of(&self, room: &str) -> Vec<Told> {
        let subject = subject(room);
        self.all().into_iter().filter(|told| told.subject == subject).collect()
    }
}

impl Sink for Memory {
    fn deliver(&self, delivery: Delivery<'_>) {
        let Delivery { subject, previous, entry, .. } = delivery;
        let told = Told { subject: subject.clone(), previous, entry: entry.clone() };
        self.0.lock().unwrap().push(told);
    }

    fn pass(&self, _: &SubjectName, _: &Passing) {}

    fn doubt(&self, _: &SubjectName) {}
}

/// A log on an adapter, with its clock and its sink.
pub(crate) struct Stage<A: Adapter> {
    adapter: A,
    running: Option<A::Running>,
    pub(crate) clock: Clock,
    pub(crate) sink: Arc<Memory>,
}

impl<A: Adapter> Stage<A> {
    pub(crate) async fn empty() -> Self {
        Self::at(A::empty().await).await
    }

    /// For a test that kills.
    pub(crate) async fn mortal() -> Self {
        Self::at(A::mortal().await).await
    }

    pub(crate) async fn at(adapter: A) -> Self {
        let (clock, sink) = (Clock::manual(NOW), Arc::new(Memory::default()));
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

    /// Ends the log in order and opens it again.
    pub(crate) async fn reopen(&mut self) {
        self.close().await;
        self.open().await;
    }

    /// Ends the log as a kill would and opens it again.
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
        self.listen(&subjects).await;
        let outcomes = self.log().append(events).await?;
        for (subject, outcome) in subjects.iter().zip(&outcomes) {
            if let Ok(Appended { id, duplicate: false, .. }) = outcome {
                self.sink.wait_for(subject, *id).await;
            }
        }
        Ok(outcomes)
    }

    /// Has the sink told of these.
    pub(crate) async fn listen(&self, subjects: &[SubjectName]) {
        for subject in subjects {
            A::listen(self.running(), subject).await;
        }
    }

    pub(crate) async fn append(&self, events: Vec<Event>) -> Vec<Outcome> {
        let count = events.len();
        let outcomes = self.try_append(events).await.expect("the log takes events");
        assert_eq!(outcomes.len(), count, "each event has an outcome");
        outcomes
    }

    /// Appends an event that has to be taken.
    pub(crate) async fn append_one(&self, event: &Event) -> Appended {
        appended(&self.append(vec![event.clone()]).await[0]).clone()
    }

    /// The version of a room's membership.
    pub(crate) async fn version(&self, room: &str) -> u64 {
        self.log().membership_version(&subject(room)).await.expect("a version")
    }

    pub(crate) async fn change_version(&self, room: &str) {
        self.log().change_membership_version(&subject(room)).await.expect("a change");
    }

    pub(crate) async fn read(&self, room: &str, after: StreamId, most: Most) -> Page {
        self.log().read(&subject(room), after, most).await.expect("the log can be read")
    }

    /// All that a subject holds.
    pub(crate) async fn entries(&self, room: &str) -> Vec<Entry> {
        let page = self.read(room, StreamId::START, ALL).await;
        assert!(!page.more, "everything was asked for");
        page.entries
    }

    pub(crate) async fn ids(&self, room: &str) -> Vec<StreamId> {
        self.entries(room).await.iter().map(|entry| entry.place.id).collect()
    }

    pub(crate) async fn head(&self, room: &str) -> Place {
        self.log().head(&subject(room)).await.expect("the log can be read")
    }
}

/// Whether these only grow, none twice.
pub(crate) fn grow(ids: &[StreamId]) -> bool {
    ids.windows(2).all(|pair| pair[0] < pair[1])
}
