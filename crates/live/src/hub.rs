//! The hub: the subjects in memory, the open streams, and the delivery of messages from the log to the streams.
//!
//! The hub keeps no queue of messages: the log delivers durable entries in order, and the hub wakes the subscribers.
//! Opening a stream first subscribes and then reads the log, so that no entry is missed in between.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc as StdArc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bongsu_http::{Person, StreamPerson};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Close, Outage, StreamId, clock, random, shrink};
use futures_util::future::try_join_all;
use metrics::{Counter, Histogram};
use tokio::sync::mpsc;

use crate::Options;
use crate::SubjectName;
use crate::access::{ConnectionQuota, RevocationGate};
use crate::budget::Budget;
use crate::connection::{ConnectionGuard, ConnectionHandle, Subscription};
use crate::connection_state::{ConnectionState, Deadlines, Tick};
use crate::encode::{Encoder, Target};
use crate::log::{Delivery, EphemeralMessage, LogError, Sink};
use crate::message::{Item, Message};
use crate::multi_stream::{MultiReader, MultiSubjectStream};
use crate::open_connections::OpenConnections;
use crate::options::{RETRY_MS, StreamConfig};
use crate::personal_streams::PersonalStreams;
use crate::reader::Reader;
use crate::ring::{PushOutcome, Ring, RingEntry};
use crate::shard::{TimerDriver, WakeQueue, dispatch};
use crate::socket::{LiveSocket, Operation, SocketPolicy};
use crate::source::SubjectKind;
use crate::stream::{LiveStream, StreamReader};
use crate::subject::Subject;
use crate::sync::Arc;

/// Time between two removals of subjects without subscribers.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// The handle of the hub. Cheap to clone.
#[derive(Clone)]
pub struct Hub(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    options: Options,
    clock: Clock,
    started: Instant,
    subjects: RwLock<HashMap<SubjectName, Arc<Subject>, foldhash::fast::RandomState>>,
    pub(crate) connections: OpenConnections,
    pub(crate) wake_queues: Vec<WakeQueue>,
    /// Stale subjects that wait for repair, each at most once. The repair loop holds the receiver.
    pub(crate) stale_sender: mpsc::UnboundedSender<SubjectName>,
    pub(crate) stale_receiver: tokio::sync::Mutex<mpsc::UnboundedReceiver<SubjectName>>,
    subject_kinds: RwLock<HashMap<&'static str, SubjectKind, foldhash::fast::RandomState>>,
    personal_streams: OnceLock<StdArc<dyn PersonalStreams>>,
    operations: RwLock<HashMap<&'static str, StdArc<dyn Operation>>>,
    pub(crate) revocation_gate: OnceLock<StdArc<dyn RevocationGate>>,
    connection_quota: OnceLock<StdArc<dyn ConnectionQuota>>,
    timer_drivers: Vec<TimerDriver>,
    budget: Arc<Budget>,
    is_draining: AtomicBool,
    pub(crate) delivered: Counter,
    pub(crate) lagged: Counter,
    pub(crate) latency: Histogram,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the person has too many open streams")]
    TooManyForPerson,
    #[error("this instance has too many open streams")]
    TooMany,
    /// The engine that counts connections is unavailable.
    #[error(transparent)]
    Unavailable(#[from] Outage),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Hub {
    pub fn new(options: Options, shards: usize, clock: Clock) -> Self {
        let (stale_sender, stale_receiver) = mpsc::unbounded_channel();
        Self(Arc::new(Inner {
            budget: Arc::new(Budget::new(options.ring_bytes)),
            options,
            clock,
            started: Instant::now(),
            subjects: RwLock::default(),
            connections: OpenConnections::default(),
            wake_queues: (0..shards).map(|_| WakeQueue::default()).collect(),
            timer_drivers: (0..shards).map(|_| TimerDriver::new(0)).collect(),
            stale_sender,
            stale_receiver: stale_receiver.into(),
            subject_kinds: RwLock::default(),
            personal_streams: OnceLock::new(),
            operations: RwLock::default(),
            revocation_gate: OnceLock::new(),
            connection_quota: OnceLock::new(),
            is_draining: AtomicBool::new(false),
            delivered: metrics::counter!("events_delivered_total"),
            lagged: metrics::counter!("events_lagged_total"),
            latency: metrics::histogram!("delivery_latency_seconds"),
        }))
    }

    /// Registers the source and the bus of a subject kind. A source delivers to this hub, so the source is created
    /// after the hub and registered here afterwards.
    pub fn register_subject_kind(&self, name: &'static str, kind: SubjectKind) {
        self.0.subject_kinds.write().unwrap_or_else(PoisonError::into_inner).insert(name, kind);
    }

    /// Makes personal streams available to connections that subscribe to rooms.
    pub fn set_personal_streams(&self, provider: StdArc<dyn PersonalStreams>) {
        // Only the first call counts; one part provides personal streams.
        let _ = self.0.personal_streams.set(provider);
    }

    /// The provider of personal streams. None without a database.
    pub fn personal_streams(&self) -> Option<StdArc<dyn PersonalStreams>> {
        self.0.personal_streams.get().cloned()
    }

    /// Adds an operation to WebSockets. Callers add each name once; the hub itself handles `subscribe` and
    /// `unsubscribe`.
    pub fn add_operation(&self, name: &'static str, operation: StdArc<dyn Operation>) {
        self.0.operations.write().unwrap_or_else(PoisonError::into_inner).insert(name, operation);
    }

    pub(crate) fn operation(&self, name: &str) -> Option<StdArc<dyn Operation>> {
        self.0.operations.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Sets the connection limit that every new stream is checked against. Only the first call counts.
    pub fn set_connection_quota(&self, quota: StdArc<dyn ConnectionQuota>) {
        let _ = self.0.connection_quota.set(quota);
    }

    /// Sets the gate that holds messages back while access commands may be unknown. Only the first call counts.
    pub fn set_revocation_gate(&self, gate: StdArc<dyn RevocationGate>) {
        let _ = self.0.revocation_gate.set(gate);
    }

    /// Runs the delivery loop and the timers of a shard, beside the shard's connections.
    pub async fn run_shard(self, shard: usize) {
        tokio::join!(
            dispatch(&self.0.wake_queues[shard], shard),
            self.0.timer_drivers[shard].run(|| (self.0.tick(), self.0.clock.now()))
        );
    }

    /// Starts the loops that repair stale ring buffers and that remove subjects without subscribers.
    pub fn start_upkeep(&self, supervisor: &Supervisor) {
        self.start_repair(supervisor);
        supervisor.every("subject-sweep", SWEEP_INTERVAL, self, |hub| async move { hub.sweep() });
    }

    fn sweep(&self) {
        let mut subjects = self.0.subjects.write().unwrap_or_else(PoisonError::into_inner);
        subjects.retain(|name, subject| {
            let has_subscribers = subject.subscriber_count() > 0;
            if !has_subscribers {
                self.0.unsubscribe(name);
            }
            has_subscribers
        });
        subjects.shrink_to_fit();
    }

    /// The number of streams of this instance that are subscribed to a subject.
    pub fn subscriber_count(&self, subject: &SubjectName) -> usize {
        self.0.subject(subject).map_or(0, |subject| subject.subscriber_count())
    }

    /// Whether a subject is in memory: it has subscribers, or had some within the last minute. Every message of such a
    /// subject has to be pushed, because its ring buffer must stay complete.
    pub fn has_subject(&self, subject: &SubjectName) -> bool {
        self.0.subject(subject).is_some()
    }

    /// The number of subjects in memory: those with subscribers, and for up to a minute those that had events while
    /// they had subscribers.
    pub fn subject_count(&self) -> usize {
        self.0.subjects.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn open_stream_count(&self) -> usize {
        self.0.connections.count()
    }

    /// The number of subjects of a kind that have subscribers.
    pub fn active_subject_count(&self, kind: &str) -> usize {
        let subjects = self.0.subjects.read().unwrap_or_else(PoisonError::into_inner);
        let of_kind = subjects.iter().filter(|(name, _)| name.parts().0 == kind);
        of_kind.filter(|(_, subject)| subject.subscriber_count() > 0).count()
    }

    /// Closes every stream with 3000, and closes every stream that is opened from now on right after its greeting.
    pub fn drain(&self) {
        self.0.is_draining.store(true, Ordering::SeqCst);
        self.close_all(&self.0.connections.all(), Close::Draining);
    }

    /// Opens a stream of a subject, after a position or from now on. The subscription exists when this
    /// returns, so no later entry is missed. A caller that checks access does so afterwards.
    pub async fn open(
        &self,
        caller: StreamPerson,
        subject: SubjectName,
        position: Option<StreamId>,
    ) -> Result<LiveStream, OpenError> {
        self.open_with(caller, subject, position, self.0.options.stream_config()).await
    }

    /// Opens a stream of a subject with the configuration of its subject kind.
    pub async fn open_with(
        &self,
        caller: StreamPerson,
        subject: SubjectName,
        position: Option<StreamId>,
        config: StreamConfig,
    ) -> Result<LiveStream, OpenError> {
        let connection = self.admit(caller, &config).await?;
        let encoder = Encoder::sse(connection.language);
        let reader = Self::read(&connection.handle, subject, position, encoder).await?;
        self.schedule_checks(&connection.handle);
        let position =
            (config.has_initial_position && position.is_none()).then(|| reader.resume_message_id());
        Ok(LiveStream::new(reader, connection, position, config.retry_ms))
    }

    /// Opens one stream for several subjects. Without a `config` it is configured like streams of rooms.
    pub async fn open_many(
        &self,
        caller: StreamPerson,
        subjects: Vec<(Target, SubjectName, Option<StreamId>)>,
        config: Option<StreamConfig>,
    ) -> Result<MultiSubjectStream, OpenError> {
        let connection =
            self.admit(caller, &config.unwrap_or_else(|| self.0.options.stream_config())).await?;
        let reading = subjects.into_iter().map(async |(target, subject, position)| {
            let encoder = Encoder::sse_part(&target, connection.language);
            let reader = Self::read(&connection.handle, subject, position, encoder).await?;
            Ok::<_, OpenError>((target, reader))
        });
        let readers = try_join_all(reading).await?;
        self.schedule_checks(&connection.handle);
        let subjects = MultiReader::new(readers);
        let position = Some(subjects.resume_id());
        Ok(MultiSubjectStream::new(subjects, connection, position, RETRY_MS))
    }

    /// Opens a WebSocket, whose client names the subjects to subscribe to.
    pub async fn open_socket(
        &self,
        caller: StreamPerson,
        policy: Box<dyn SocketPolicy>,
    ) -> Result<LiveSocket, OpenError> {
        let person = caller.person().clone();
        let connection = self.admit(caller, &self.0.options.stream_config()).await?;
        self.schedule_checks(&connection.handle);
        Ok(LiveSocket::new(connection, person, policy))
    }

    /// Counts the connection, checks the limits and creates its state.
    async fn admit(&self, caller: StreamPerson, config: &StreamConfig) -> Result<ConnectionGuard, OpenError> {
        let inner = &self.0;
        let (person, peer) = caller.into_parts();
        peer.set_stream_mode();
        let (shard, now) = (peer.shard, inner.tick());
        let deadlines = inner.deadlines(now, &person, config);
        let state = Arc::new(ConnectionState::new(deadlines, Some(peer), now));
        if !inner.connections.try_add(&person.id, state.clone(), inner.options.max_streams) {
            return Err(OpenError::TooMany);
        }
        // If a later step fails, dropping the guard undoes the previous steps.
        let handle = ConnectionHandle { hub: self.clone(), state, shard };
        // Most streams hold one resource; a Vec that grows by itself allocates four slots first.
        let (language, resources) = (bongsu_http::request_scope::language(), Vec::with_capacity(1));
        let mut connection = ConnectionGuard {
            handle,
            person: person.id,
            resources,
            keepalive_frame: config.keepalive_frame,
            language,
        };
        if let (Some(quota), true) = (inner.connection_quota.get(), config.is_limited) {
            connection.resources.push(quota.acquire(&connection.person).await?);
        }
        // Close instead of refusing: after an HTTP error an EventSource never reconnects.
        if inner.is_draining.load(Ordering::SeqCst) {
            connection.handle.state.close(Close::Draining, inner.tick());
        }
        Ok(connection)
    }

    /// Subscribes a connection to a subject and returns the reader.
    pub(crate) async fn read(
        handle: &ConnectionHandle,
        subject: SubjectName,
        position: Option<StreamId>,
        encoder: Encoder,
    ) -> Result<Reader, OpenError> {
        let SubjectKind { source, bus } = handle.hub.0.subject_kind(&subject)?;
        let subscription = Subscription::start(handle, subject);
        let find_head = async || {
            // Subscribe to the bus first, then read the head: entries in between arrive over the bus.
            if let Some(bus) = &bus {
                bus.subscribe(&subscription.name).await?;
            }
            let heads = source.heads(std::slice::from_ref(&subscription.name)).await;
            let missing = || Err(LogError::Failed("the source returned no head".to_owned()));
            heads.into_iter().next().unwrap_or_else(missing)
        };
        subscription.subject.initialize(find_head).await?;
        if let Some(bus) = &bus {
            bus.announce_audience(&subscription.name, subscription.subject.subscriber_count()).await;
        }
        Ok(Reader::new(subscription, source, encoder, position))
    }

    /// Adds an entry that the source already holds to the ring buffer of its subject. `item` is called only if the
    /// subject is in memory.
    pub fn push(
        &self,
        name: &SubjectName,
        previous: StreamId,
        item: impl FnOnce() -> Item,
        accepted: Instant,
    ) {
        let Some(subject) = self.0.subject(name) else { return };
        let item = item();
        // While access commands may be unknown, the entry is not pushed; the repair reads it from the source later.
        let is_held_back = item.message.is_some() && !self.can_deliver();
        let push = || subject.push(previous, RingEntry::new(item, accepted), &self.0.wake_queues);
        if is_held_back || push() == PushOutcome::Gap {
            self.mark_subject_stale(name, &subject);
        }
    }

    /// Called when the source holds other entries than those that were delivered, perhaps at the same positions (a
    /// restored database). Closes the streams of the subject; their clients reconnect and read a new ring buffer.
    pub fn invalidate_subject(&self, name: &SubjectName) {
        let removed = self.0.subjects.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        if let Some(subject) = removed {
            subject.invalidate(&self.0.wake_queues);
        }
    }

    /// Delivers a message that no source holds to the current subscribers. While access commands may be
    /// unknown, the message is held back until the commands are applied.
    pub fn push_ephemeral(&self, name: &SubjectName, message: Message) {
        let Some(subject) = self.0.subject(name) else { return };
        if self.can_deliver() {
            subject.push_ephemeral(message, Instant::now(), &self.0.wake_queues);
        } else {
            subject.hold(message);
            self.mark_subject_stale(name, &subject);
        }
    }

    /// Adds a connection to the timers of its shard.
    fn schedule_checks(&self, handle: &ConnectionHandle) {
        let (now, deadlines) = (self.0.tick(), handle.state.deadlines());
        // Random, so that streams that were opened together are not checked together for ever.
        let first_check =
            now + random::between(0, deadlines.check_interval().min(deadlines.keepalive_interval));
        let first_check = first_check.min(deadlines.ends_at(now, self.0.clock.now()));
        self.0.timer_drivers[handle.shard].schedule(handle.state.clone(), first_check);
    }
}

impl Inner {
    pub(crate) fn tick(&self) -> Tick {
        self.tick_of(Instant::now())
    }

    pub(crate) fn tick_of(&self, moment: Instant) -> Tick {
        let running = moment.duration_since(self.started) + clock::test_offset();
        u64::try_from(running.as_millis()).unwrap_or(Tick::MAX)
    }

    pub(crate) fn subject_kind(&self, subject: &SubjectName) -> Result<SubjectKind, LogError> {
        let kinds = self.subject_kinds.read().unwrap_or_else(PoisonError::into_inner);
        let kind = kinds.get(subject.parts().0).cloned();
        kind.ok_or_else(|| LogError::Failed("no source is registered for this subject kind".to_owned()))
    }

    /// Subscribes a connection to a subject, and creates the subject for its first subscriber.
    pub(crate) fn subscribe(&self, name: &SubjectName, handle: &ConnectionHandle) -> Arc<Subject> {
        let mut subjects = self.subjects.write().unwrap_or_else(PoisonError::into_inner);
        let subject = subjects.entry(name.clone()).or_insert_with(|| {
            let ring = Ring::new(self.options.ring_frames, self.budget.clone());
            Arc::new(Subject::new(ring, self.wake_queues.len()))
        });
        // Under the lock that the sweep takes, so that the sweep cannot remove the subject in between.
        subject.add_subscriber(handle.shard, handle.state.clone());
        subject.clone()
    }

    pub(crate) fn report_audience(&self, name: &SubjectName, subject: &Subject) {
        if let Ok(SubjectKind { bus: Some(bus), .. }) = self.subject_kind(name) {
            bus.report_audience(name, subject.subscriber_count());
        }
    }

    /// Unsubscribes from the bus. Called under the write lock of `subjects`, so that a later subscriber of the same
    /// subject subscribes to the bus after this.
    fn unsubscribe(&self, name: &SubjectName) {
        if let Ok(SubjectKind { bus: Some(bus), .. }) = self.subject_kind(name) {
            bus.unsubscribe(name);
        }
    }

    /// Removes a subject without subscribers whose ring buffer holds no event: reconnecting clients do not
    /// need it, and clients can name any number of subjects. The sweep removes the others without
    /// subscribers.
    pub(crate) fn remove_unused(&self, name: &SubjectName, subject: &Arc<Subject>) {
        if subject.subscriber_count() > 0 || subject.has_events() {
            return;
        }
        let mut subjects = self.subjects.write().unwrap_or_else(PoisonError::into_inner);
        // While this lock is held, no subscription is added. One may have been added before, and the name may
        // already belong to a newer subject.
        let is_unused = |known: &Arc<Subject>| Arc::ptr_eq(known, subject) && subject.subscriber_count() == 0;
        if subjects.get(name).is_some_and(is_unused) {
            subjects.remove(name);
            self.unsubscribe(name);
            shrink(&mut subjects);
        }
    }

    pub(crate) fn subscribed_subjects(&self) -> Vec<(SubjectName, Arc<Subject>)> {
        let subjects = self.subjects.read().unwrap_or_else(PoisonError::into_inner);
        let subscribed = subjects.iter().filter(|(_, subject)| subject.subscriber_count() > 0);
        subscribed.map(|(name, subject)| (name.clone(), subject.clone())).collect()
    }

    pub(crate) fn subject(&self, name: &SubjectName) -> Option<Arc<Subject>> {
        self.subjects.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The deadlines of a stream that is opened now.
    fn deadlines(&self, now: Tick, person: &Person, config: &StreamConfig) -> Deadlines {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(Tick::MAX / 4);
        let lifetime_ends_at = config.lifetime.map(|lifetime| {
            let lifetime = millis(lifetime);
            now + random::between(lifetime - lifetime / 10, lifetime)
        });
        Deadlines {
            keepalive_interval: millis(config.keepalive),
            stall_timeout: millis(self.options.stall),
            lifetime_ends_at,
            issued_at: person.issued_at,
            expires_at: person.expires_at,
        }
    }
}

impl Sink for Hub {
    fn deliver(&self, delivery: Delivery<'_>) {
        let Delivery { subject: name, previous, entry, accepted } = delivery;
        self.push(name, previous, || Item::of_entry(entry, Message::of_event), accepted);
    }

    fn deliver_ephemeral(&self, name: &SubjectName, message: &EphemeralMessage) {
        self.push_ephemeral(name, Message::ephemeral(message));
    }

    fn mark_stale(&self, name: &SubjectName) {
        if let Some(subject) = self.0.subject(name) {
            self.mark_subject_stale(name, &subject);
        }
    }
}
