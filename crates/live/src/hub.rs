//! The hub: every subject that is listened to, every open stream, and the way from the log to them.
//!
//! It keeps no queue: what is durable is told to it in order, and it wakes those who listen. Opening a stream
//! subscribes first and looks at the log afterwards.

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
use crate::budget::Budget;
use crate::connection::{Chair, Entered, Listening};
use crate::door::{Gate, Places};
use crate::encode::{Encoder, Target};
use crate::log::{Delivery, LogError, Passing, Sink};
use crate::many::{ManyStream, Subjects};
use crate::message::{Item, Message};
use crate::options::{Manner, RETRY_MS};
use crate::people::People;
use crate::personal::PersonalFeed;
use crate::reader::Reader;
use crate::ring::{Pushed, Ring, RingEntry};
use crate::seat::{Seat, Terms, Tick};
use crate::shard::{Inbox, Keeper, dispatch};
use crate::socket::{LiveSocket, Operation, SocketPolicy};
use crate::source::Family;
use crate::stream::{Follow, LiveStream};
use crate::subject::Subject;
use crate::sync::Arc;

/// Subjects that nobody listens to any more are forgotten so often.
const SWEEP: Duration = Duration::from_secs(60);

/// Cheap to clone.
#[derive(Clone)]
pub struct Hub(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    options: Options,
    clock: Clock,
    started: Instant,
    subjects: RwLock<HashMap<SubjectName, Arc<Subject>, foldhash::fast::RandomState>>,
    pub(crate) people: People,
    pub(crate) inboxes: Vec<Inbox>,
    /// Where subjects in doubt wait, each at most once, and where they are taken out.
    pub(crate) doubts: mpsc::UnboundedSender<SubjectName>,
    pub(crate) doubted: tokio::sync::Mutex<mpsc::UnboundedReceiver<SubjectName>>,
    families: RwLock<HashMap<&'static str, Family, foldhash::fast::RandomState>>,
    personal: OnceLock<StdArc<dyn PersonalFeed>>,
    operations: RwLock<HashMap<&'static str, StdArc<dyn Operation>>>,
    pub(crate) gate: OnceLock<StdArc<dyn Gate>>,
    places: OnceLock<StdArc<dyn Places>>,
    keepers: Vec<Keeper>,
    budget: Arc<Budget>,
    draining: AtomicBool,
    pub(crate) delivered: Counter,
    pub(crate) lagged: Counter,
    pub(crate) latency: Histogram,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the person has too many streams open")]
    TooManyForPerson,
    #[error("the hub has too many streams open")]
    TooMany,
    /// The engine that counts them is away.
    #[error(transparent)]
    Away(#[from] Outage),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Hub {
    pub fn new(options: Options, shards: usize, clock: Clock) -> Self {
        let (doubts, doubted) = mpsc::unbounded_channel();
        Self(Arc::new(Inner {
            budget: Arc::new(Budget::new(options.ring_bytes)),
            options,
            clock,
            started: Instant::now(),
            subjects: RwLock::default(),
            people: People::default(),
            inboxes: (0..shards).map(|_| Inbox::default()).collect(),
            keepers: (0..shards).map(|_| Keeper::new(0)).collect(),
            doubts,
            doubted: doubted.into(),
            families: RwLock::default(),
            personal: OnceLock::new(),
            operations: RwLock::default(),
            gate: OnceLock::new(),
            places: OnceLock::new(),
            draining: AtomicBool::new(false),
            delivered: metrics::counter!("events_delivered_total"),
            lagged: metrics::counter!("events_lagged_total"),
            latency: metrics::histogram!("delivery_latency_seconds"),
        }))
    }

    /// What streams of a family of subjects read, and hear of others. What is read from in turn delivers to this hub, so
    /// it comes second.
    pub fn serves(&self, family: &'static str, served: Family) {
        self.0.families.write().unwrap_or_else(PoisonError::into_inner).insert(family, served);
    }

    /// Offers the personal stream to connections that follow rooms.
    pub fn offer_personal(&self, feed: StdArc<dyn PersonalFeed>) {
        // Only the first counts; there is one part that has it.
        let _ = self.0.personal.set(feed);
    }

    /// The personal stream; None where nothing is recorded.
    pub fn personal(&self) -> Option<StdArc<dyn PersonalFeed>> {
        self.0.personal.get().cloned()
    }

    /// Adds an operation to WebSockets. Names are given once; `subscribe` and `unsubscribe` are the hub's own.
    pub fn add_operation(&self, name: &'static str, operation: StdArc<dyn Operation>) {
        self.0.operations.write().unwrap_or_else(PoisonError::into_inner).insert(name, operation);
    }

    pub(crate) fn operation(&self, name: &str) -> Option<StdArc<dyn Operation>> {
        self.0.operations.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// What a hub asks before it lets a person's stream in. Only the first one counts; there is one wiring.
    pub fn limit_people(&self, places: StdArc<dyn Places>) {
        let _ = self.0.places.set(places);
    }

    /// What a hub of a fleet asks before it tells somebody something. Only the first one counts.
    pub fn set_gate(&self, gate: StdArc<dyn Gate>) {
        let _ = self.0.gate.set(gate);
    }

    /// What every shard runs beside its connections.
    pub async fn run_shard(self, shard: usize) {
        tokio::join!(
            dispatch(&self.0.inboxes[shard], shard),
            self.0.keepers[shard].run(|| (self.0.tick(), self.0.clock.now()))
        );
    }

    /// Repairs rings, and forgets subjects that nobody listens to, for as long as the process runs.
    pub fn start_upkeep(&self, supervisor: &Supervisor) {
        self.start_repair(supervisor);
        supervisor.every("subject-sweep", SWEEP, self, |hub| async move { hub.sweep() });
    }

    fn sweep(&self) {
        let mut subjects = self.0.subjects.write().unwrap_or_else(PoisonError::into_inner);
        subjects.retain(|name, subject| {
            let stays = subject.listeners() > 0;
            if !stays {
                self.0.unsubscribe(name);
            }
            stays
        });
        subjects.shrink_to_fit();
    }

    /// Streams that listen to a subject.
    pub fn listeners(&self, subject: &SubjectName) -> usize {
        self.0.subject(subject).map_or(0, |subject| subject.listeners())
    }

    /// Whether somebody listens to a subject, or did a moment ago: then its ring has to be told of everything.
    pub fn knows(&self, subject: &SubjectName) -> bool {
        self.0.subject(subject).is_some()
    }

    /// Subjects in memory: those that somebody listens to, and for up to a minute those that had events while somebody did.
    pub fn known_subjects(&self) -> usize {
        self.0.subjects.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn open_streams(&self) -> usize {
        self.0.people.count()
    }

    /// Subjects of a family that somebody listens to.
    pub fn active_subjects(&self, family: &str) -> usize {
        let subjects = self.0.subjects.read().unwrap_or_else(PoisonError::into_inner);
        let of_family = subjects.iter().filter(|(name, _)| name.parts().0 == family);
        of_family.filter(|(_, subject)| subject.listeners() > 0).count()
    }

    /// Closes every stream with 3000, and every stream that is opened from now on right after its greeting.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::SeqCst);
        self.end_all(&self.0.people.everyone(), Close::Draining);
    }

    /// Follows a subject, after a position or from now on. It is subscribed before this returns, so that nothing is
    /// missed from here on; whoever checks rights does so now.
    pub async fn open(
        &self,
        caller: StreamPerson,
        subject: SubjectName,
        position: Option<StreamId>,
    ) -> Result<LiveStream, OpenError> {
        self.open_in(caller, subject, position, self.0.options.manner()).await
    }

    /// Follows a subject in a manner of its own.
    pub async fn open_in(
        &self,
        caller: StreamPerson,
        subject: SubjectName,
        position: Option<StreamId>,
        manner: Manner,
    ) -> Result<LiveStream, OpenError> {
        let entered = self.enter(caller, &manner).await?;
        let encoder = Encoder::sse(entered.language);
        let reader = Self::read(&entered.chair, subject, position, encoder).await?;
        self.look_after(&entered.chair);
        let place = (manner.is_placed && position.is_none()).then(|| reader.place_name());
        Ok(LiveStream::new(reader, entered, place, manner.retry_ms))
    }

    /// Follows several subjects, in a manner of its own where one is given.
    pub async fn open_many(
        &self,
        caller: StreamPerson,
        subjects: Vec<(Target, SubjectName, Option<StreamId>)>,
        manner: Option<Manner>,
    ) -> Result<ManyStream, OpenError> {
        let entered = self.enter(caller, &manner.unwrap_or_else(|| self.0.options.manner())).await?;
        let reading = subjects.into_iter().map(async |(target, subject, position)| {
            let encoder = Encoder::sse_part(&target, entered.language);
            let reader = Self::read(&entered.chair, subject, position, encoder).await?;
            Ok::<_, OpenError>((target, reader))
        });
        let readers = try_join_all(reading).await?;
        self.look_after(&entered.chair);
        let subjects = Subjects::new(readers);
        let place = Some(subjects.resume_id());
        Ok(ManyStream::new(subjects, entered, place, RETRY_MS))
    }

    /// A connection whose client will say what it wants to follow.
    pub async fn open_socket(
        &self,
        caller: StreamPerson,
        policy: Box<dyn SocketPolicy>,
    ) -> Result<LiveSocket, OpenError> {
        let person = caller.person().clone();
        let entered = self.enter(caller, &self.0.options.manner()).await?;
        self.look_after(&entered.chair);
        Ok(LiveSocket::new(entered, person, policy))
    }

    /// Counts somebody in.
    async fn enter(&self, caller: StreamPerson, manner: &Manner) -> Result<Entered, OpenError> {
        let inner = &self.0;
        let (person, peer) = caller.into_parts();
        peer.becomes_stream();
        let (shard, now) = (peer.shard, inner.tick());
        let terms = inner.terms(now, &person, manner);
        let seat = Arc::new(Seat::new(terms, Some(peer), now));
        if !inner.people.enter(&person.id, seat.clone(), inner.options.most) {
            return Err(OpenError::TooMany);
        }
        // From here on the guards undo what was done, whatever happens.
        let chair = Chair { hub: self.clone(), seat, shard };
        // Most streams hold one thing; a list that grows by itself begins with four.
        let (language, held) = (bongsu_http::frame::language(), Vec::with_capacity(1));
        let mut entered = Entered { chair, person: person.id, held, alive: manner.alive, language };
        if let (Some(places), true) = (inner.places.get(), manner.is_limited) {
            entered.held.push(places.take(&entered.person).await?);
        }
        // A refusal would be an HTTP error, after which an EventSource gives up for good.
        if inner.draining.load(Ordering::SeqCst) {
            entered.chair.seat.end(Close::Draining, inner.tick());
        }
        Ok(entered)
    }

    /// Lets a connection follow a subject.
    pub(crate) async fn read(
        chair: &Chair,
        subject: SubjectName,
        position: Option<StreamId>,
        encoder: Encoder,
    ) -> Result<Reader, OpenError> {
        let Family { source, bus } = chair.hub.0.family(&subject)?;
        let listening = Listening::start(chair, subject);
        let find = async || {
            // First the bus, then the log: what comes between is heard.
            if let Some(bus) = &bus {
                bus.listen(&listening.name).await?;
            }
            let heads = source.heads(std::slice::from_ref(&listening.name)).await;
            heads.into_iter().next().unwrap_or_else(|| Err(LogError::Failed("no head".to_owned())))
        };
        listening.subject.begin(find).await?;
        if let Some(bus) = &bus {
            bus.announce(&listening.name, listening.subject.listeners()).await;
        }
        Ok(Reader::new(listening, source, encoder, position))
    }

    /// An entry of a subject that its source holds already, for those who listen right now. It is made only for them.
    pub fn push(
        &self,
        name: &SubjectName,
        previous: StreamId,
        item: impl FnOnce() -> Item,
        accepted: Instant,
    ) {
        let Some(subject) = self.0.subject(name) else { return };
        let item = item();
        // While the orders are not known, it is left to be read from the source.
        let is_held_back = item.message.is_some() && !self.may_pass();
        let push = || subject.push(previous, RingEntry::new(item, accepted), &self.0.inboxes);
        if is_held_back || push() == Pushed::Gap {
            self.doubt_subject(name, &subject);
        }
    }

    /// What was told of a subject is not what its source has, whatever places look like: everybody who is here is told so
    /// and comes back, and whoever comes finds a new ring.
    pub fn lose(&self, name: &SubjectName) {
        let lost = self.0.subjects.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        if let Some(subject) = lost {
            subject.lose(&self.0.inboxes);
        }
    }

    /// A message that no source holds, for those who listen right now. While orders to send people away may be unknown here,
    /// it waits until they are known.
    pub fn pass_message(&self, name: &SubjectName, message: Message) {
        let Some(subject) = self.0.subject(name) else { return };
        if self.may_pass() {
            subject.pass(message, Instant::now(), &self.0.inboxes);
        } else {
            subject.hold(message);
            self.doubt_subject(name, &subject);
        }
    }

    /// Has the clock look at a stream from now on.
    fn look_after(&self, chair: &Chair) {
        let (now, terms) = (self.0.tick(), chair.seat.terms());
        // Spread, so that streams that were opened together are not all looked at together for ever.
        let first_look = now + random::between(0, terms.look().min(terms.keepalive));
        let first_look = first_look.min(terms.ends_at(now, self.0.clock.now()));
        self.0.keepers[chair.shard].look_after(chair.seat.clone(), first_look);
    }
}

impl Inner {
    pub(crate) fn tick(&self) -> Tick {
        self.tick_of(Instant::now())
    }

    pub(crate) fn tick_of(&self, moment: Instant) -> Tick {
        let running = moment.duration_since(self.started) + clock::moved();
        u64::try_from(running.as_millis()).unwrap_or(Tick::MAX)
    }

    pub(crate) fn family(&self, subject: &SubjectName) -> Result<Family, LogError> {
        let families = self.families.read().unwrap_or_else(PoisonError::into_inner);
        let family = families.get(subject.parts().0).cloned();
        family.ok_or_else(|| LogError::Failed("nobody keeps such subjects".to_owned()))
    }

    /// Has a connection listen to a subject, which is made when it is the first.
    pub(crate) fn sit_down(&self, name: &SubjectName, chair: &Chair) -> Arc<Subject> {
        let mut subjects = self.subjects.write().unwrap_or_else(PoisonError::into_inner);
        let subject = subjects.entry(name.clone()).or_insert_with(|| {
            let ring = Ring::new(self.options.ring_frames, self.budget.clone());
            Arc::new(Subject::new(ring, self.inboxes.len()))
        });
        // Under the lock that the sweep takes, so that the subject is not swept between.
        subject.sit_down(chair.shard, chair.seat.clone());
        subject.clone()
    }

    pub(crate) fn tell_audience(&self, name: &SubjectName, subject: &Subject) {
        if let Ok(Family { bus: Some(bus), .. }) = self.family(name) {
            bus.audience(name, subject.listeners());
        }
    }

    /// The bus need not bring news of a subject any more. Called under the lock of all subjects: whoever listens to it
    /// next has to come after this.
    fn unsubscribe(&self, name: &SubjectName) {
        if let Ok(Family { bus: Some(bus), .. }) = self.family(name) {
            bus.forget(name);
        }
    }

    /// Forgets a subject that nobody listens to any more and that had no events meanwhile: there is nothing to keep for
    /// those who come back, and anybody can name as many subjects as they like. Others are left to the sweep.
    pub(crate) fn forget_unused(&self, name: &SubjectName, subject: &Arc<Subject>) {
        if subject.listeners() > 0 || subject.has_events() {
            return;
        }
        let mut subjects = self.subjects.write().unwrap_or_else(PoisonError::into_inner);
        // Under the lock nobody sits down; somebody may have before, and the name may be another subject's by now.
        let is_unused = |known: &Arc<Subject>| Arc::ptr_eq(known, subject) && subject.listeners() == 0;
        if subjects.get(name).is_some_and(is_unused) {
            subjects.remove(name);
            self.unsubscribe(name);
            shrink(&mut subjects);
        }
    }

    pub(crate) fn listened_to(&self) -> Vec<(SubjectName, Arc<Subject>)> {
        let subjects = self.subjects.read().unwrap_or_else(PoisonError::into_inner);
        let listened = subjects.iter().filter(|(_, subject)| subject.listeners() > 0);
        listened.map(|(name, subject)| (name.clone(), subject.clone())).collect()
    }

    pub(crate) fn subject(&self, name: &SubjectName) -> Option<Arc<Subject>> {
        self.subjects.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// When a stream that starts now ends at the latest.
    fn terms(&self, now: Tick, person: &Person, manner: &Manner) -> Terms {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(Tick::MAX / 4);
        let lifetime = manner.lifetime.map(|lifetime| {
            let lifetime = millis(lifetime);
            now + random::between(lifetime - lifetime / 10, lifetime)
        });
        Terms {
            keepalive: millis(manner.keepalive),
            stall: millis(self.options.stall),
            lifetime,
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

    fn pass(&self, name: &SubjectName, passing: &Passing) {
        self.pass_message(name, Message::passing(passing));
    }

    fn doubt(&self, name: &SubjectName) {
        if let Some(subject) = self.0.subject(name) {
            self.doubt_subject(name, &subject);
        }
    }
}
