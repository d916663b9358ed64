//! The consumer of a queue: hands messages to a handler, several at a time, those of one key one after the other.
//!
//! The consumer holds a bounded number of messages. It writes outcomes and reads messages in one transaction
//! ([`crate::exchange`]) while handlers run, so no message is read before the outcome of its predecessor is written. A
//! consumer that another one has replaced is refused by the database and ends. When an engine is unavailable, the
//! consumer forgets the messages that have not begun, waits, and reads them again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::pending;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::trace::{self, TraceParent};
use bongsu_kernel::{Backoff, BoxFuture, Id};
use bongsu_sql::{Error, Transaction};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep, sleep_until};

use crate::exchange::{FailedMessage, Outcomes, ParkedMessage, Request, Response, exchange, take_over};
use crate::{Queue, QueueDelivery, Queues};

/// Messages that a consumer holds at most.
const MAX_HELD_MESSAGES: usize = 1_000;
/// Messages of one key that a consumer holds at most.
const MAX_HELD_OF_KEY: usize = 250;
/// A consumer that holds fewer messages reads more.
const LOW_HELD_MESSAGES: usize = 500;
/// A consumer that holds more bytes of payloads reads no more.
const MAX_HELD_BYTES: usize = 16 << 20;
/// Bytes of messages that one exchange reads.
const MAX_READ_BYTES: u64 = 8 << 20;
/// Outcomes that are written at once, unless [`WRITE_DELAY`] has passed before.
const WRITE_SIZE: usize = 128;
/// How long an outcome waits for others, to be written together.
const WRITE_DELAY: Duration = Duration::from_millis(5);
/// The delay before the next read when the messages that were read could not be taken.
const BLOCKED_DELAY: Duration = Duration::from_millis(50);
/// The delay before the next attempt of a consumer while an engine is unavailable.
const OUTAGE_BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(5), (50, 100));

/// Handles the messages of a queue.
pub trait MessageHandler: Send + Sync {
    /// Handles a message. Called again after a failure, and possibly after a success if the process was killed.
    fn handle<'a>(&'a self, delivery: &'a QueueDelivery) -> BoxFuture<'a, Result<(), Rejection>>;
}

/// Why a message was not handled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// An engine that the handler needs is unavailable: the consumer waits until the engine is back, and the message loses
    /// no attempt.
    #[error("an engine is unavailable: {0}")]
    Unavailable(String),
    /// The failure may be temporary: the message is parked and tried again.
    #[error("{0}")]
    Retryable(String),
    /// Repeating cannot help: the message becomes a dead letter at once.
    #[error("{0}")]
    Permanent(String),
}

#[derive(Clone, Copy, Debug)]
pub struct ConsumerOptions {
    /// Failed attempts after which a message becomes a dead letter.
    pub max_attempts: u64,
    /// The delay before the next attempt at a parked message.
    pub retry: Backoff,
    /// Messages that are handled at the same time.
    pub concurrency: usize,
    /// Time between two reads of a queue to which nothing was published here.
    pub poll_interval: Duration,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            retry: Backoff::new(Duration::from_secs(1), Duration::from_secs(60), (100, 125)),
            concurrency: 32,
            poll_interval: Duration::from_secs(1),
        }
    }
}

/// A consumer of a queue. One runs at a time in a fleet.
pub struct Consumer {
    queues: Queues,
    queue: Arc<Queue>,
    handler: Arc<dyn MessageHandler>,
    options: ConsumerOptions,
}

/// Messages that are handled one after the other: those of a key, or a single message without order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Lane {
    Key(Id),
    Single(i64),
}

impl Lane {
    fn of(delivery: &QueueDelivery) -> Self {
        delivery.ordering_key().map_or(Self::Single(delivery.row), |key| Self::Key(key.clone()))
    }
}

/// The messages of a lane that are in memory.
#[derive(Default)]
struct LaneState {
    waiting: VecDeque<QueueDelivery>,
    is_running: bool,
}

type Handling = BoxFuture<'static, (Lane, QueueDelivery, Result<(), Rejection>)>;
type Exchange = BoxFuture<'static, (Arc<Request>, Result<Response, Error>)>;

/// The state of one run of a consumer, lost when the run ends.
#[derive(Default)]
struct Run {
    fence: u64,
    lanes: HashMap<Lane, LaneState>,
    /// Lanes whose next message can begin.
    runnable: VecDeque<Lane>,
    running: FuturesUnordered<Handling>,
    /// Rows in memory, including those whose outcome is not written yet, with the bytes of their payloads.
    held: HashMap<i64, usize>,
    held_bytes: usize,
    /// Outcomes that are not written yet.
    outcomes: Outcomes,
    /// When the first of the outcomes was added.
    outcomes_since: Option<Instant>,
    /// The exchange in progress.
    exchange: Option<Exchange>,
    /// Keys with a parked message whose outcome the exchange in progress does not write: later messages must not begin.
    parking_keys: HashSet<Id>,
    /// When messages are to be read.
    read_at: Option<Instant>,
    /// How many exchanges and handlers in a row found an engine unavailable.
    outages: u64,
    paused_until: Option<Instant>,
}

impl Queues {
    pub fn consumer(
        &self,
        queue: &str,
        handler: Arc<dyn MessageHandler>,
        options: ConsumerOptions,
    ) -> Result<Consumer, Error> {
        Ok(Consumer { queues: self.clone(), queue: self.queue(queue)?, handler, options })
    }
}

impl Consumer {
    /// Handles messages until another consumer of the queue starts, or until the future is dropped.
    pub async fn run(&self) {
        let mut run = Run { fence: self.take_over().await, read_at: Some(Instant::now()), ..Run::default() };
        loop {
            self.start_handlers(&mut run);
            self.start_exchange(&mut run);
            let wake_at = self.next_wake(&run);
            tokio::select! {
                (request, result) = finished(&mut run.exchange) => {
                    run.exchange = None;
                    match result {
                        Ok(Response::Messages { deliveries, has_more, is_blocked }) => {
                            run.apply(&request, deliveries, has_more, is_blocked);
                        }
                        Ok(Response::Fenced) => {
                            tracing::warn!(queue = &*self.queue.name, "another consumer has taken over the queue; stopping");
                            return;
                        }
                        Err(error) => {
                            // Writing an outcome again changes nothing.
                            run.outcomes.restore(&request.outcomes);
                            run.outcomes_since.get_or_insert_with(Instant::now);
                            self.pause(&mut run, &error.to_string());
                        }
                    }
                }
                Some((lane, delivery, result)) = run.running.next(), if !run.running.is_empty() => {
                    self.record(&mut run, lane, &delivery, result);
                }
                () = self.queue.arrived.notified() => run.read_at = Some(Instant::now()),
                () = sleep_until(wake_at) => {}
            }
        }
    }

    /// Takes the queue over from earlier consumers. Retries while the database is unavailable.
    async fn take_over(&self) -> u64 {
        let mut attempts = 0;
        loop {
            match self.queues.records().write(self.queue.clone(), take_over).await {
                Ok(fence) => return fence,
                Err(error) => {
                    attempts += 1;
                    tracing::debug!(queue = &*self.queue.name, %error, "failed to take over a queue; retrying");
                    sleep(OUTAGE_BACKOFF.delay(attempts)).await;
                }
            }
        }
    }

    /// When the consumer has to act although no message has arrived and no future has finished.
    fn next_wake(&self, run: &Run) -> Instant {
        let poll_at = Instant::now() + self.options.poll_interval;
        if let Some(until) = run.paused_until.filter(|_| run.exchange.is_none()) {
            return until;
        }
        let write_at = run.outcomes_since.map(|since| since + WRITE_DELAY);
        let due = [write_at, run.read_at.filter(|_| run.has_room())];
        due.into_iter().flatten().filter(|_| run.exchange.is_none()).fold(poll_at, Instant::min)
    }

    fn start_handlers(&self, run: &mut Run) {
        while run.running.len() < self.options.concurrency
            && let Some(lane) = run.runnable.pop_front()
        {
            let Some(state) = run.lanes.get_mut(&lane).filter(|state| !state.is_running) else { continue };
            let Some(delivery) = state.waiting.pop_front() else { continue };
            state.is_running = true;
            let handler = self.handler.clone();
            let parent =
                delivery.message.headers.get("traceparent").and_then(|text| TraceParent::parse(text));
            run.running.push(Box::pin(async move {
                let handling = AssertUnwindSafe(trace::scope(parent, handler.handle(&delivery)));
                let panicked = |_| Err(Rejection::Retryable("the handler panicked".to_owned()));
                let result = handling.catch_unwind().await.unwrap_or_else(panicked);
                (lane, delivery, result)
            }));
        }
    }

    /// Starts an exchange if outcomes are to be written or messages to be read, and none is in progress.
    fn start_exchange(&self, run: &mut Run) {
        let now = Instant::now();
        if run.exchange.is_some() || run.paused_until.is_some_and(|until| now < until) {
            return;
        }
        run.paused_until = None;
        let reads = run.has_room() && run.read_at.is_some_and(|at| at <= now);
        let is_write_due = run.outcomes.len() >= WRITE_SIZE
            || run.running.is_empty()
            || run.outcomes_since.is_some_and(|since| since + WRITE_DELAY <= now);
        let writes = run.outcomes.len() > 0 && is_write_due;
        if !reads && !writes {
            return;
        }
        if reads {
            run.read_at = Some(now + self.options.poll_interval);
        }
        let request = Arc::new(self.request(run, reads));
        let records = self.queues.records().clone();
        run.exchange = Some(Box::pin(async move {
            let response = records.write(request.clone(), run_exchange).await;
            (request, response)
        }));
    }

    /// The request of the next exchange, with all outcomes.
    fn request(&self, run: &mut Run, reads: bool) -> Request {
        run.parking_keys.clear();
        run.outcomes_since = None;
        let mut request = Request {
            queue: self.queue.name.clone().into_owned(),
            fence: run.fence,
            now: self.queues.0.clock.now(),
            outcomes: std::mem::take(&mut run.outcomes),
            ..Request::default()
        };
        if reads {
            let busy = |(lane, state): (&Lane, &LaneState)| {
                let Lane::Key(key) = lane else { return None };
                Some((key.clone(), state.waiting.len()))
            };
            // A row with an outcome may be read again: one that was parked is due when its time has already come.
            let written: HashSet<i64> = request.outcomes.rows().collect();
            request.held = run.held.keys().copied().filter(|row| !written.contains(row)).collect();
            request.busy_keys = run.lanes.iter().filter_map(busy).collect();
            request.limit = MAX_HELD_MESSAGES - run.held.len();
            request.max_of_key = MAX_HELD_OF_KEY;
            request.max_bytes = MAX_READ_BYTES;
        }
        request
    }

    /// Records the outcome of a handled message, and makes the next message of its lane runnable.
    fn record(&self, run: &mut Run, lane: Lane, delivery: &QueueDelivery, result: Result<(), Rejection>) {
        let (queue, id, attempts) = (&*self.queue.name, &delivery.message.id, delivery.attempts + 1);
        let row = delivery.row;
        match result {
            Ok(()) => {
                run.outcomes.done.push(row);
                metrics::counter!("queue_handled_total", "queue" => queue.to_owned()).increment(1);
            }
            Err(Rejection::Unavailable(reason)) => {
                run.release(row);
                run.forget(&lane);
                return self.pause(run, &reason);
            }
            Err(Rejection::Retryable(reason)) if attempts < self.options.max_attempts => {
                tracing::warn!(queue, %id, attempts, reason, "failed to handle a message; parking it");
                metrics::counter!("queue_failures_total", "queue" => queue.to_owned()).increment(1);
                let delay = u64::try_from(self.options.retry.delay(attempts).as_millis()).unwrap_or(u64::MAX);
                let until = self.queues.0.clock.now().saturating_add(delay);
                run.outcomes.parked.push(ParkedMessage { row, attempts, until });
                run.outcomes_since.get_or_insert_with(Instant::now);
                // The later messages of the key wait in the database, behind the parked one.
                run.forget(&lane);
                run.parking_keys.extend(delivery.ordering_key().cloned());
                return;
            }
            Err(Rejection::Retryable(reason) | Rejection::Permanent(reason)) => {
                tracing::error!(queue, %id, attempts, reason, "gave up a message; it becomes a dead letter");
                metrics::counter!("queue_dead_letters_total", "queue" => queue.to_owned()).increment(1);
                run.outcomes.given_up.push(FailedMessage { row, attempts, reason });
            }
        }
        run.outages = 0;
        run.outcomes_since.get_or_insert_with(Instant::now);
        let Some(state) = run.lanes.get_mut(&lane) else { return };
        state.is_running = false;
        if !state.waiting.is_empty() {
            return run.runnable.push_back(lane);
        }
        run.lanes.remove(&lane);
        if let Lane::Key(key) = lane {
            // Messages that wait behind this one become ready, and may be read.
            run.outcomes.idle_keys.push(key);
            run.read_at = Some(Instant::now());
        }
    }

    /// Waits before anything else is read or begun, and forgets the messages that have not begun.
    fn pause(&self, run: &mut Run, reason: &str) {
        if run.paused_until.is_none() {
            if run.outages == 0 {
                tracing::warn!(
                    queue = &*self.queue.name,
                    reason,
                    "an engine is unavailable; pausing the queue"
                );
            }
            run.outages += 1;
        }
        let until = Instant::now() + OUTAGE_BACKOFF.delay(run.outages);
        run.paused_until = Some(until);
        run.read_at = Some(until);
        run.runnable.clear();
        let waiting = run.lanes.values_mut().flat_map(|state| state.waiting.drain(..));
        let waiting: Vec<i64> = waiting.map(|delivery| delivery.row).collect();
        waiting.into_iter().for_each(|row| run.release(row));
        run.lanes.retain(|_, state| state.is_running);
    }
}

impl Run {
    fn has_room(&self) -> bool {
        self.held.len() < LOW_HELD_MESSAGES && self.held_bytes < MAX_HELD_BYTES
    }

    /// Applies the response of an exchange.
    fn apply(&mut self, request: &Request, deliveries: Vec<QueueDelivery>, has_more: bool, is_blocked: bool) {
        request.outcomes.rows().for_each(|row| self.release(row));
        if self.paused_until.is_some() {
            // Read again after the pause.
            return;
        }
        self.outages = 0;
        if has_more {
            let read_at = Instant::now() + if is_blocked { BLOCKED_DELAY } else { Duration::ZERO };
            self.read_at = Some(self.read_at.map_or(read_at, |at| at.min(read_at)));
        }
        for delivery in deliveries {
            // A message behind one that was parked meanwhile is left to a later exchange, which makes it wait.
            if delivery.ordering_key().is_none_or(|key| !self.parking_keys.contains(key)) {
                self.hold(delivery);
            }
        }
    }

    /// Adds a message that was read.
    fn hold(&mut self, delivery: QueueDelivery) {
        self.held.insert(delivery.row, delivery.message.payload.len());
        self.held_bytes += delivery.message.payload.len();
        let lane = Lane::of(&delivery);
        let state = self.lanes.entry(lane.clone()).or_default();
        if state.waiting.is_empty() && !state.is_running {
            self.runnable.push_back(lane);
        }
        state.waiting.push_back(delivery);
    }

    /// Forgets the messages of a lane, which stay in the database.
    fn forget(&mut self, lane: &Lane) {
        for delivery in self.lanes.remove(lane).into_iter().flat_map(|state| state.waiting) {
            self.release(delivery.row);
        }
    }

    /// Stops holding a row.
    fn release(&mut self, row: i64) {
        self.held_bytes -= self.held.remove(&row).unwrap_or(0);
    }
}

async fn run_exchange(request: &Arc<Request>, tx: &mut Transaction<'_>) -> Result<Response, Error> {
    exchange(request, tx).await
}

/// The result of the exchange in progress; never resolves without one.
async fn finished(exchange: &mut Option<Exchange>) -> (Arc<Request>, Result<Response, Error>) {
    match exchange {
        Some(exchange) => exchange.await,
        None => pending().await,
    }
}
