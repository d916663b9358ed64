//! The hub: every subject that is listened to, every open stream, and the way from the log to them.
//!
//! It keeps no queue: what is durable is told to it in order, and it wakes those who listen. Opening a stream
//! subscribes first and looks at the log afterwards.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc as StdArc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bongsu_http::{Person, StreamPerson};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Close, Id, StreamId, clock, random, shrink, sse};
use bytes::Bytes;
use futures_util::future::try_join_all;
use metrics::{Counter, Histogram};

use crate::Options;
use crate::SubjectName;
use crate::budget::Budget;
use crate::door::{Gate, Places};
use crate::log::{Delivery, LogError, Passing, Place, Sink};
use crate::many::ManyStream;
use crate::options::Manner;
use crate::people::{Full, People};
use crate::reader::Reader;
use crate::repair::Doubts;
use crate::ring::{Frame, Pushed, Ring};
use crate::seat::{Seat, Terms, Tick};
use crate::shard::{Inbox, Keeper, dispatch};
use crate::socket::{Desk, LiveSocket};
use crate::source::Family;
use crate::stream::LiveStream;
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
    pub(crate) doubts: Doubts,
    families: RwLock<HashMap<&'static str, Family, foldhash::fast::RandomState>>,
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
    #[error("{0}")]
    Away(String),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl Hub {
    pub fn new(options: Options, shards: usize, clock: Clock) -> Self {
        Self(Arc::new(Inner {
            budget: Arc::new(Budget::new(options.ring_bytes)),
            options,
            clock,
            started: Instant::now(),
            subjects: RwLock::default(),
            people: People::default(),
            inboxes: (0..shards).map(|_| Inbox::default()).collect(),
            keepers: (0..shards).map(|_| Keeper::new(0)).collect(),
            doubts: Doubts::default(),
            families: RwLock::default(),
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

    /// What a hub of a fleet asks before it lets somebody in or tells somebody something.
    pub fn asks(&self, places: StdArc<dyn Places>, gate: StdArc<dyn Gate>) {
        // Only the first count; there is one wiring.
        let _ = (self.0.places.set(places), self.0.gate.set(gate));
    }

    /// Streams that a person may have open; 0 for any number.
    pub fn most_per_person(&self) -> u32 {
        u32::try_from(self.0.options.per_person).unwrap_or(u32::MAX)
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
        let hub = self.clone();
        supervisor.every("subject-sweep", SWEEP, move || {
            hub.sweep();
            std::future::ready(())
        });
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
        let now = self.0.tick();
        for seat in self.0.people.everyone() {
            seat.end(Close::Draining, now);
        }
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
        let greeting = manner.greeting.clone();
        let entered = self.enter(caller, manner).await?;
        let reader = Self::read(&entered.chair, subject, position).await?;
        self.look_after(&entered.chair);
        Ok(LiveStream::new(entered, reader, position, &greeting))
    }

    /// Follows several subjects, each named by the id that their frames carry.
    pub async fn open_many(
        &self,
        caller: StreamPerson,
        subjects: Vec<(Id, SubjectName, Option<StreamId>)>,
    ) -> Result<ManyStream, OpenError> {
        let entered = self.enter(caller, self.0.options.manner()).await?;
        let reading = subjects.into_iter().map(async |(id, subject, position)| {
            Ok::<_, OpenError>((id, Self::read(&entered.chair, subject, position).await?))
        });
        let readers = try_join_all(reading).await?;
        self.look_after(&entered.chair);
        Ok(ManyStream::new(entered, readers))
    }

    /// A connection whose client will say what it wants to follow.
    pub async fn open_socket(
        &self,
        caller: StreamPerson,
        desk: Box<dyn Desk>,
    ) -> Result<LiveSocket, OpenError> {
        let entered = self.enter(caller, self.0.options.manner()).await?;
        self.look_after(&entered.chair);
        Ok(LiveSocket::new(entered, desk))
    }

    /// Counts somebody in.
    async fn enter(&self, caller: StreamPerson, manner: Manner) -> Result<Entered, OpenError> {
        let inner = &self.0;
        let (person, peer) = caller.into_parts();
        peer.becomes_stream();
        let (shard, now) = (peer.shard, inner.tick());
        let terms = inner.terms(now, &person, &manner);
        let seat = Arc::new(Seat::new(terms, Some(peer), now));
        // Over a fleet the person's places are counted elsewhere.
        let per_person = if inner.places.get().is_some() { 0 } else { manner.per_person };
        inner.people.enter(&person.id, seat.clone(), per_person, inner.options.most).map_err(|full| {
            match full {
                Full::Person => OpenError::TooManyForPerson,
                Full::Hub => OpenError::TooMany,
            }
        })?;
        // From here on the guards undo what was done, whatever happens.
        let chair = Chair { hub: self.clone(), seat, shard };
        // Most streams hold one thing; a list that grows by itself begins with four.
        let held = Vec::with_capacity(1);
        let mut entered = Entered { chair, person: person.id, held, alive: manner.alive };
        if let (Some(places), true) = (inner.places.get(), manner.per_person > 0) {
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
        Ok(Reader::new(listening, source, position))
    }

    /// A subject has come to a place of which nobody is told.
    pub fn advance(&self, name: &SubjectName, previous: StreamId, place: Place) {
        let Some(subject) = self.0.subject(name) else { return };
        if subject.push(previous, Frame::silent(place), &self.0.inboxes) == Pushed::Gap {
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

    /// Something that nobody keeps, as streams are told it, for those who listen right now.
    pub fn pass_frame(&self, name: &SubjectName, frame: Bytes) {
        let Some(subject) = self.0.subject(name).filter(|_| self.may_pass()) else { return };
        subject.pass(frame, Instant::now(), &self.0.inboxes);
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

    fn tell_audience(&self, name: &SubjectName, subject: &Subject) {
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
    fn forget_unused(&self, name: &SubjectName, subject: &Arc<Subject>) {
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
        let Some(subject) = self.0.subject(delivery.subject) else { return };
        if !self.may_pass() {
            // It is read from the log once the orders are known.
            return self.doubt_subject(delivery.subject, &subject);
        }
        let Ok(Family { source, .. }) = self.0.family(delivery.subject) else { return };
        let frame = Frame::of(delivery.entry, &*source, delivery.accepted);
        if subject.push(delivery.previous, frame, &self.0.inboxes) == Pushed::Gap {
            self.doubt_subject(delivery.subject, &subject);
        }
    }

    fn pass(&self, name: &SubjectName, passing: &Passing) {
        self.pass_frame(name, sse::passing(&passing.event_type, &passing.data, passing.at).into());
    }

    fn doubt(&self, name: &SubjectName) {
        if let Some(subject) = self.0.subject(name) {
            self.doubt_subject(name, &subject);
        }
    }
}

/// A connection's place at a shard of the hub.
#[derive(Clone)]
pub(crate) struct Chair {
    pub(crate) hub: Hub,
    pub(crate) seat: Arc<Seat>,
    shard: usize,
}

/// A person's stream is counted in; out again when this is dropped.
pub(crate) struct Entered {
    pub(crate) chair: Chair,
    pub(crate) person: Id,
    /// What goes when the stream goes.
    pub(crate) held: Vec<Box<dyn Any + Send>>,
    /// What it says when it has been silent for long.
    pub(crate) alive: &'static [u8],
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Chair { hub, seat, .. } = &self.chair;
        seat.leave();
        hub.0.people.leave(&self.person, seat);
    }
}

/// A stream listens to a subject until this is dropped.
pub(crate) struct Listening {
    pub(crate) name: SubjectName,
    pub(crate) subject: Arc<Subject>,
    pub(crate) chair: Chair,
}

impl Listening {
    fn start(chair: &Chair, name: SubjectName) -> Self {
        let inner = &chair.hub.0;
        let mut subjects = inner.subjects.write().unwrap_or_else(PoisonError::into_inner);
        let subject = subjects.entry(name.clone()).or_insert_with(|| {
            let ring = Ring::new(inner.options.ring_frames, inner.budget.clone());
            Arc::new(Subject::new(ring, inner.inboxes.len()))
        });
        let subject = subject.clone();
        // Under the lock that the sweep takes, so that the subject is not swept between.
        subject.sit_down(chair.shard, chair.seat.clone());
        drop(subjects);
        Self { name, subject, chair: chair.clone() }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let inner = &self.chair.hub.0;
        self.subject.stand_up(self.chair.shard, &self.chair.seat);
        inner.tell_audience(&self.name, &self.subject);
        inner.forget_unused(&self.name, &self.subject);
    }
}
