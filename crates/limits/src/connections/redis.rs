//! Connections of a fleet, counted in Redis. An instance reports all connections of a person that it holds to one
//! script (`lua/report_connections.lua`): when one is opened or closed, after messages of the bus may have been lost,
//! and periodically. The reports restore what Redis has lost, and remove connections that no instance holds.
//! Connections have no leases of their own: those of an instance count while the instance is in the fleet. Before the
//! connections of a silent instance cause a replacement, all instances are asked for reports: the silent one may have
//! been killed, and its clients may be those that connect now.

mod held_connections;
mod lost_instances;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Id, Millis, Outage, lock, random};
use bongsu_redis::redis::from_redis_value;
use bongsu_redis::{Channel, Error, Listener, Redis, Repeat, Script, Subscriber};

use futures_util::{StreamExt, TryStreamExt};
use serde::Deserialize;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::{AcquireResult, ConnectionLimitError, ConnectionPermit, Connections, Limit, OnReplaced, Policy};
use crate::BoxFuture;
use held_connections::{HeldConnections, Purpose, Report};

static REPORT: Script = Script::new("connections_report", include_str!("../../lua/report_connections.lua"));

/// Time between two checks, which report all connections that this instance holds. A check also starts as soon as the
/// bus may have lost messages, as after a restart of Redis. Other losses are found by the next check: under `Replace` a
/// replaced connection whose message was lost has to close soon, while under `Refuse` a count that is too low only
/// admits too many connections.
pub fn check_interval(policy: Policy) -> Duration {
    match policy {
        Policy::Replace => Duration::from_secs(30),
        Policy::Refuse => Duration::from_secs(600),
    }
}

/// Persons reported per second by a check. With more persons than fit into the interval, a check takes longer.
const CHECKS_PER_SECOND: usize = 256;
/// Attempts to send a report.
const MAX_ATTEMPTS: u32 = 3;
/// Time between two attempts.
const ATTEMPT_DELAY: Duration = Duration::from_millis(100);
/// Time before reports that failed in all attempts are sent again.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Reports that are sent at the same time.
const MAX_CONCURRENT_REPORTS: usize = 64;
/// Persons whose reports are sent, or whose index entries are updated, in one batch.
const BATCH_SIZE: usize = 1_024;
/// How long the admission of a connection may take.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time in which an instance has to report its connections after it was asked.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(400);
/// Maximum number of decisions that wait for answers of other instances. Further ones are left to the next
/// check.
const MAX_DECISIONS: usize = 65_536;
/// Expiry of the keys of a limit without a maximum age, in milliseconds. Every check renews it.
const KEY_TTL_MS: u128 = 3_600_000;

/// The live instances of the fleet.
pub struct LiveInstances {
    /// Sorted by id, so that all instances see the same order.
    pub instances: Vec<String>,
    /// When the list was read, by the clock of Redis, in milliseconds.
    pub seen_at: Millis,
}

/// Returns the instances that were alive when the registry was last read.
pub type FleetView = Arc<dyn Fn() -> LiveInstances + Send + Sync>;

/// The connections of a fleet. Cheap to clone.
#[derive(Clone)]
pub struct RedisConnections(Arc<Inner>);

struct Inner {
    redis: Redis,
    limit: Limit,
    fleet: FleetView,
    check_interval: Duration,
    /// Expiry of a person's keys, in milliseconds.
    key_ttl: String,
    /// Expiry of the index of an instance, in milliseconds.
    index_ttl: String,
    held: Mutex<HeldConnections>,
    /// The queue of decisions that wait for answers of other instances.
    decisions: (mpsc::Sender<PendingDecision>, tokio::sync::Mutex<mpsc::Receiver<PendingDecision>>),
    /// Starts a check at once: Redis may have lost connections of this instance, or the bus a message.
    recheck: Notify,
}

/// A report that is to be sent after other instances had time to answer.
struct PendingDecision {
    due: Instant,
    person: Id,
    /// When the instances were asked, by the clock of Redis.
    asked_at: Millis,
}

impl RedisConnections {
    /// Starts the loops of this instance. They also remove the connections of instances that have left the fleet.
    pub fn start(
        redis: Redis,
        limit: Limit,
        fleet: FleetView,
        check_interval: Duration,
        supervisor: &Supervisor,
    ) -> Self {
        let key_ttl = limit.lifetime.map_or(KEY_TTL_MS, |lifetime| 2 * lifetime.as_millis());
        // The index outlasts the keys of the persons in it, and several checks.
        let index_ttl = key_ttl.max(4 * check_interval.as_millis()).to_string();
        let (decisions, received_decisions) = mpsc::channel(MAX_DECISIONS);
        let this = Self(Arc::new(Inner {
            redis,
            fleet,
            check_interval,
            key_ttl: key_ttl.to_string(),
            index_ttl,
            held: Mutex::new(HeldConnections::new(limit.policy)),
            decisions: (decisions, received_decisions.into()),
            recheck: Notify::new(),
            limit,
        }));
        let bus = this.0.redis.subscriber(Arc::new(BusListener(this.clone())));
        let run = |(this, bus): (Self, Subscriber)| async move {
            tokio::select! {
                () = this.0.listen(&bus) => {}
                () = this.0.run_checks() => {}
                () = this.0.send_changes() => {}
                () = this.0.send_decisions() => {}
                () = this.0.run_sweeps() => {}
            }
        };
        let leave = |(this, _): (Self, Subscriber)| async move { this.0.leave().await };
        supervisor.run_until_stop(this.0.limit.name, &(this.clone(), bus), run, leave);
        this
    }
}

impl Inner {
    fn key(&self, suffix: &str) -> String {
        self.redis.key(format_args!("{}:{suffix}", self.limit.name))
    }

    async fn listen(&self, bus: &Subscriber) {
        for channel in [self.key("disconnect"), self.key("ask")] {
            // The bus retries a failed subscription, and calls `mark_stale` once it succeeds.
            let _ = bus.subscribe(Channel::Everywhere(channel.into())).await;
        }
        std::future::pending::<()>().await;
    }

    /// Reports all connections periodically, which restores what Redis has lost and closes connections that were
    /// replaced without a message. Sends at most [`CHECKS_PER_SECOND`] reports per second, except in a check that
    /// `recheck` or a failed report has caused.
    async fn run_checks(&self) {
        let mut is_urgent = false;
        'checks: loop {
            // After a failure the next check indexes the instance.
            let _ = self.index_instance().await;
            let people = lock(&self.held).people();
            for batch in people.chunks(CHECKS_PER_SECOND) {
                batch.iter().for_each(|person| lock(&self.held).schedule_index_update(person));
                if self.report_all(batch).await.is_err() {
                    tokio::time::sleep(RETRY_DELAY).await;
                    is_urgent = true;
                    continue 'checks;
                }
                if !is_urgent && timeout(Duration::from_secs(1), self.recheck.notified()).await.is_ok() {
                    is_urgent = true;
                    continue 'checks;
                }
            }
            is_urgent = timeout(self.check_interval, self.recheck.notified()).await.is_ok();
        }
    }

    async fn report_all(&self, people: &[Id]) -> Result<(), Error> {
        let reports: Vec<_> = people.iter().map(|person| Ok(self.report(person, Purpose::Change))).collect();
        let reports = futures_util::stream::iter(reports);
        reports.try_buffer_unordered(MAX_CONCURRENT_REPORTS).try_collect().await
    }

    /// Reports changes until Redis has them: a closed connection that still counts could cause the
    /// replacement of an open one. Then updates the index of this instance.
    async fn send_changes(&self) {
        let on_change = lock(&self.held).on_change.clone();
        loop {
            let batch = lock(&self.held).take_changed(BATCH_SIZE);
            if batch.is_empty() {
                on_change.notified().await;
                continue;
            }
            let reports: Vec<_> = batch
                .iter()
                .map(async |(person, purpose)| {
                    let Some(purpose) = *purpose else { return true };
                    let is_sent = self.report(person, purpose).await.is_ok();
                    if !is_sent {
                        lock(&self.held).schedule_report(person, Purpose::Change);
                    }
                    is_sent
                })
                .collect();
            // All reports run to their end, even when some fail: a report that is dropped would not be scheduled again.
            let reports = futures_util::stream::iter(reports).buffer_unordered(MAX_CONCURRENT_REPORTS);
            let are_sent = reports.fold(true, async |all, is_sent| all && is_sent).await;
            let people: Vec<&Id> = batch.iter().map(|(person, _)| person).collect();
            let is_indexed = self.update_index(&people).await.is_ok();
            if !is_indexed {
                people.iter().for_each(|person| lock(&self.held).schedule_index_update(person));
            }
            if !(are_sent && is_indexed) {
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Reports again after other instances had time to answer.
    async fn send_decisions(&self) {
        let mut decisions = self.decisions.1.lock().await;
        while let Some(PendingDecision { due, person, asked_at }) = decisions.recv().await {
            tokio::time::sleep_until(due.into()).await;
            if self.report(&person, Purpose::Decision(asked_at)).await.is_err() {
                lock(&self.held).schedule_report(&person, Purpose::Change);
            }
        }
    }

    /// Reports the connections of a person, and applies the answer. Every attempt reports the connections that are held
    /// at its time, so that a connection that was closed meanwhile does not count and replaces no other one.
    async fn report(&self, person: &Id, purpose: Purpose) -> Result<(), Error> {
        let mut failed = 0;
        // The first report of a new connection by a process is too late, because the process does not know
        // the time of Redis. The answer contains that time. After a failover the time may differ, which has
        // the same effect.
        let mut is_clock_known = false;
        loop {
            match self.report_once(person, purpose).await {
                Ok(true) => return Ok(()),
                Ok(false) if is_clock_known => {
                    return Err(Error::Unreachable("the report arrived after its deadline".to_owned()));
                }
                Ok(false) => is_clock_known = true,
                Err(error) => {
                    failed += 1;
                    if failed == MAX_ATTEMPTS {
                        return Err(error);
                    }
                    tokio::time::sleep(ATTEMPT_DELAY).await;
                }
            }
        }
    }

    /// Sends a report once. Returns false when it arrived too late.
    async fn report_once(&self, person: &Id, purpose: Purpose) -> Result<bool, Error> {
        let report = lock(&self.held).build_report(person);
        let answer = self.send(person, &report, purpose).await?;
        let (now, answer) = answer.split_first().ok_or_else(|| unexpected("a report has an empty answer"))?;
        lock(&self.held).set_clock(now.parse().map_err(unexpected)?);
        let [asked_at, was_known, times @ ..] = answer else { return Ok(false) };
        if let Ok(asked_at) = asked_at.parse() {
            let due = Instant::now() + ANSWER_TIMEOUT;
            let _ = self.decisions.0.try_send(PendingDecision { due, person: person.clone(), asked_at });
        }
        // Redis has lost the last report of this instance, and so may have lost other ones.
        if was_known == "0" && report.connections.iter().any(|(_, time)| !time.is_empty()) {
            self.recheck.notify_one();
        }
        let replaced: Vec<OnReplaced> = {
            let mut held = lock(&self.held);
            let answers = report.connections.iter().zip(times);
            answers.filter_map(|((id, _), time)| held.apply_answer(person, id, time)).collect()
        };
        replaced.into_iter().for_each(|on_replaced| on_replaced());
        Ok(true)
    }

    async fn send(&self, person: &Id, report: &Report, purpose: Purpose) -> Result<Vec<String>, Error> {
        let [connections, reports] = ["", ":hubs"].map(|suffix| self.key(&format!("{{{person}}}{suffix}")));
        let LiveInstances { instances, seen_at } = (self.fleet)();
        let asked = match purpose {
            Purpose::Change => "0".to_owned(),
            Purpose::Answer => "-1".to_owned(),
            Purpose::Decision(asked_at) => asked_at.to_string(),
        };
        let policy = match self.limit.policy {
            Policy::Refuse => "refuse",
            Policy::Replace => "replace",
        };
        let head = [
            self.redis.instance(),
            &report.number.to_string(),
            &self.limit.max.to_string(),
            policy,
            &self.limit.lifetime.unwrap_or_default().as_millis().to_string(),
            &self.key_ttl,
            &self.key("disconnect"),
            &serde_json::to_string(person).unwrap_or_default(),
            &report.deadline.to_string(),
            &asked,
            &self.key("ask"),
            &seen_at.to_string(),
            &report.connections.len().to_string(),
        ];
        let mut arguments: Vec<&[u8]> = head.map(str::as_bytes).to_vec();
        for (id, time) in &report.connections {
            arguments.extend([id.as_bytes(), time.as_bytes()]);
        }
        arguments.extend(instances.iter().map(String::as_bytes));
        let answer = self.redis.run(&REPORT, Repeat::Never, &[&connections, &reports], &arguments).await?;
        from_redis_value(answer).map_err(unexpected)
    }

    async fn acquire(self: Arc<Self>, person: Id, on_replaced: OnReplaced) -> AcquireResult {
        if !lock(&self.held).has_room_for_change(&person) {
            return Err(Outage("too many changes wait to be reported to Redis".to_owned()).into());
        }
        let (id, deadline): (Arc<str>, _) = (random::uuid().into(), Instant::now() + ACQUIRE_TIMEOUT);
        lock(&self.held).insert(&person, id.clone(), on_replaced, deadline);
        // The permit exists before the report, so that the connection is also removed when this future fails or is
        // dropped.
        let (inner, released) = (self.clone(), (person.clone(), id.clone()));
        let permit =
            ConnectionPermit(Box::new(move || drop(lock(&inner.held).remove(&released.0, &released.1))));
        match tokio::time::timeout_at(deadline.into(), self.report(&person, Purpose::Change)).await {
            Ok(outcome) => outcome.map_err(Outage::from)?,
            Err(_) => return Err(Outage("Redis did not answer in time".to_owned()).into()),
        }
        let is_refused = self.limit.policy == Policy::Refuse && !lock(&self.held).contains(&person, &id);
        if is_refused { Err(ConnectionLimitError::Full) } else { Ok(permit) }
    }

    /// Reports at shutdown that this instance holds no connections any more.
    async fn leave(&self) {
        let people = lock(&self.held).clear();
        // If a report is lost, the connections stop counting when the instance has left the fleet.
        let _ = self.report_all(&people).await;
    }
}

fn unexpected(error: impl std::fmt::Display) -> Error {
    Error::Unexpected(error.to_string())
}

impl Connections for RedisConnections {
    fn acquire(&self, person: &Id, on_replaced: OnReplaced) -> BoxFuture<'_, AcquireResult> {
        Box::pin(self.0.clone().acquire(person.clone(), on_replaced))
    }
}

/// Receives questions of other instances, and messages about replaced connections.
struct BusListener(RedisConnections);

/// The message that a connection was replaced, for the instance that holds it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Disconnect {
    member_id: Id,
    connection_id: String,
}

impl Listener for BusListener {
    fn message(&self, channel: &Channel, payload: &[u8]) {
        let inner = &self.0.0;
        let outcome = if channel.name() == inner.key("ask") {
            serde_json::from_slice::<Id>(payload).map(|person| {
                let mut held = lock(&inner.held);
                // Only an instance with a counted connection of the person answers.
                if held.has_counted(&person) {
                    held.schedule_report(&person, Purpose::Answer);
                }
            })
        } else {
            serde_json::from_slice::<Disconnect>(payload).map(|message| {
                let replaced = lock(&inner.held).remove(&message.member_id, &message.connection_id);
                if let Some(on_replaced) = replaced {
                    on_replaced();
                }
            })
        };
        if outcome.is_err() {
            metrics::counter!("bus_malformed_total").increment(1);
        }
    }

    fn mark_stale(&self, _: &Channel) {
        self.0.0.recheck.notify_one();
    }
}
