//! A person's connections in Redis: an instance reports all that it holds of a person in one script (`lua/report.lua`), each
//! with the time that Redis gave it, when one comes, when one has gone, after every doubt of the bus, and now and then. So
//! whatever Redis has forgotten is put back, and nothing stays that nobody holds. The lease of an instance is its place in
//! the fleet: a connection needs none of its own. Before a connection is replaced because of what a silent instance holds,
//! that instance is asked: it may have been killed a moment ago, and the people who come now may be just those whom it held.

mod held;
mod notes;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_kernel::{Id, Millis, Outage, random};
use bongsu_redis::redis::from_redis_value;
use bongsu_redis::{Channel, Error, Listener, Redis, Repeat, Script, Subscriber};

use futures_util::{StreamExt, TryStreamExt};
use serde::Deserialize;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::{Connections, Limit, OnReplaced, Place, Policy, Refused};
use crate::Boxed;
use held::{Held, Purpose, Report};

static REPORT: Script = Script::new("connections_report", include_str!("../../lua/report.lua"));

/// Time between two checks of all connections that this instance holds. A lost bus, as after a restart of Redis, has them
/// checked at once. What else was lost shows with the next check: a connection that was replaced without a message has to
/// end soon, while a count that is too low only lets one more in.
pub fn check_interval(policy: Policy) -> Duration {
    match policy {
        Policy::Replace => Duration::from_secs(30),
        Policy::Refuse => Duration::from_secs(600),
    }
}

/// People who are checked in a second. With more of them than fit into the interval a check takes longer.
const CHECKS_PER_SECOND: usize = 256;
/// How often a report is sent until it is answered, and the time between two attempts.
const MAX_ATTEMPTS: u32 = 3;
const ATTEMPT_DELAY: Duration = Duration::from_millis(100);
/// Reports that failed are repeated after this.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Reports that are under way at the same time.
const MAX_CONCURRENT_REPORTS: usize = 64;
/// People who are told of, or noted, in one go.
const BATCH_SIZE: usize = 1_024;
/// A connection that was not let in after this is given up.
const ENTER_TIMEOUT: Duration = Duration::from_secs(2);
/// An instance that is asked has this long to report what it holds.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(400);
/// People of whom other instances are asked at the same time; the next check sees to the others.
const MAX_ASKED: usize = 65_536;
/// Life of keys whose connections have no end, in milliseconds. Every check renews it.
const KEY_LIFE: u128 = 3_600_000;

/// The instances of the fleet.
pub struct Alive {
    /// By id, in the same order everywhere.
    pub instances: Vec<String>,
    /// When they were alive, by Redis's clock.
    pub seen_at: Millis,
}

/// Gives the instances that are alive, as they were seen last.
pub type Fleet = Arc<dyn Fn() -> Alive + Send + Sync>;

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct RedisConnections(Arc<Inner>);

struct Inner {
    redis: Redis,
    limit: Limit,
    fleet: Fleet,
    check_interval: Duration,
    key_life: String,
    /// How long a note lives after it was written to, in milliseconds.
    note_life: String,
    held: Mutex<Held>,
    /// Of whom other instances were asked: when that is decided, and when it was by Redis's clock.
    asked: (mpsc::Sender<Asked>, tokio::sync::Mutex<mpsc::Receiver<Asked>>),
    /// Redis may have forgotten what this instance holds, or a message may be lost.
    doubt: Notify,
}

type Asked = (Instant, Id, Millis);

impl RedisConnections {
    /// Starts the reports of this instance. Connections of instances that have left `fleet` are given back.
    pub fn start(
        redis: Redis,
        limit: Limit,
        fleet: Fleet,
        check_interval: Duration,
        supervisor: &Supervisor,
    ) -> Self {
        let key_life = limit.lifetime.map_or(KEY_LIFE, |lifetime| 2 * lifetime.as_millis());
        // A note outlasts the keys that it leads to, and several checks.
        let note_life = key_life.max(4 * check_interval.as_millis()).to_string();
        let (asked, deciding) = mpsc::channel(MAX_ASKED);
        let this = Self(Arc::new(Inner {
            redis,
            fleet,
            check_interval,
            key_life: key_life.to_string(),
            note_life,
            held: Mutex::new(Held::new(limit.policy)),
            asked: (asked, deciding.into()),
            doubt: Notify::new(),
            limit,
        }));
        let bus = this.0.redis.subscriber(Arc::new(BusListener(this.clone())));
        let (running, stop) = (this.clone(), supervisor.stop());
        supervisor.spawn(this.0.limit.name, OnEnd::Restart, move || {
            let (this, stop, bus) = (running.clone(), stop.clone(), bus.clone());
            async move {
                tokio::select! {
                    () = stop.cancelled() => this.0.leave().await,
                    () = this.0.listen(&bus) => {}
                    () = this.0.check_for_ever() => {}
                    () = this.0.tell_for_ever() => {}
                    () = this.0.decide_for_ever() => {}
                    () = this.0.sweep_for_ever() => {}
                }
            }
        });
        this
    }
}

impl Inner {
    fn key(&self, end: &str) -> String {
        self.redis.key(format_args!("{}:{end}", self.limit.name))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn listen(&self, bus: &Subscriber) {
        for channel in [self.key("disconnect"), self.key("ask")] {
            // The bus itself goes on trying, and tells what becomes of it.
            let _ = bus.subscribe(Channel::Everywhere(channel.into())).await;
        }
        std::future::pending::<()>().await;
    }

    /// Reports everything again and again: what Redis forgot is put back, and who was replaced without a message ends. Not
    /// more than so much in a second, unless there is a doubt.
    async fn check_for_ever(&self) {
        let mut is_doubted = false;
        'checks: loop {
            // A note that fails here is written by the next check.
            let _ = self.note_instance().await;
            let people = self.held().people();
            for some in people.chunks(CHECKS_PER_SECOND) {
                some.iter().for_each(|person| self.held().note(person));
                if self.report_all(some).await.is_err() {
                    tokio::time::sleep(RETRY_DELAY).await;
                    is_doubted = true;
                    continue 'checks;
                }
                if !is_doubted && timeout(Duration::from_secs(1), self.doubt.notified()).await.is_ok() {
                    is_doubted = true;
                    continue 'checks;
                }
            }
            is_doubted = timeout(self.check_interval, self.doubt.notified()).await.is_ok();
        }
    }

    async fn report_all(&self, people: &[Id]) -> Result<(), Error> {
        let reports: Vec<_> = people.iter().map(|person| Ok(self.report(person, Purpose::Change))).collect();
        let reports = futures_util::stream::iter(reports);
        reports.try_buffer_unordered(MAX_CONCURRENT_REPORTS).try_collect().await
    }

    /// Tells Redis of changes, until it knows of them: a connection that nobody holds would push out one that somebody
    /// does. Then notes whose connections are held.
    async fn tell_for_ever(&self) {
        let on_change = self.held().on_change.clone();
        loop {
            let changed = self.held().take_changed(BATCH_SIZE);
            if changed.is_empty() {
                on_change.notified().await;
                continue;
            }
            let telling: Vec<_> = changed
                .iter()
                .map(async |(person, purpose)| {
                    let Some(purpose) = *purpose else { return true };
                    let is_told = self.report(person, purpose).await.is_ok();
                    if !is_told {
                        self.held().tell_of(person, Purpose::Change);
                    }
                    is_told
                })
                .collect();
            // To the end, whatever becomes of some: who is not asked any more would not be put back.
            let telling = futures_util::stream::iter(telling).buffer_unordered(MAX_CONCURRENT_REPORTS);
            let are_told = telling.fold(true, async |all, told| all && told).await;
            let people: Vec<&Id> = changed.iter().map(|(person, _)| person).collect();
            let is_noted = self.note(&people).await.is_ok();
            if !is_noted {
                people.iter().for_each(|person| self.held().note(person));
            }
            if !(are_told && is_noted) {
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }

    /// Reports again once those who were asked have had their time.
    async fn decide_for_ever(&self) {
        let mut asked = self.asked.1.lock().await;
        while let Some((when, person, since)) = asked.recv().await {
            tokio::time::sleep_until(when.into()).await;
            if self.report(&person, Purpose::Decision(since)).await.is_err() {
                self.held().tell_of(&person, Purpose::Change);
            }
        }
    }

    /// Reports what this instance holds of a person, and does what is answered. Every attempt reports what is held by then: a
    /// connection that was given up meanwhile is not to count, and to push out another one.
    async fn report(&self, person: &Id, purpose: Purpose) -> Result<(), Error> {
        let mut failed = 0;
        // The first report learns Redis's clock by being too late; so does one to a server with another clock.
        let mut is_clock_known = false;
        loop {
            match self.report_once(person, purpose).await {
                Ok(true) => return Ok(()),
                Ok(false) if is_clock_known => {
                    return Err(Error::Unreachable("it stood still meanwhile".to_owned()));
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

    /// False when it came too late.
    async fn report_once(&self, person: &Id, purpose: Purpose) -> Result<bool, Error> {
        let report = self.held().report(person);
        let answer = self.send(person, &report, purpose).await?;
        let (now, answer) = answer.split_first().ok_or_else(|| unexpected("no answer to a report"))?;
        self.held().set_clock(now.parse().map_err(unexpected)?);
        let [asked_at, was_known, times @ ..] = answer else { return Ok(false) };
        if let Ok(since) = asked_at.parse() {
            let _ = self.asked.0.try_send((Instant::now() + ANSWER_TIMEOUT, person.clone(), since));
        }
        if was_known == "0" && report.connections.iter().any(|(_, time)| !time.is_empty()) {
            self.doubt.notify_one();
        }
        let replaced: Vec<OnReplaced> = {
            let mut held = self.held();
            let answers = report.connections.iter().zip(times);
            answers.filter_map(|((id, _), time)| held.answered(person, id, time)).collect()
        };
        replaced.into_iter().for_each(|end| end());
        Ok(true)
    }

    async fn send(&self, person: &Id, report: &Report, purpose: Purpose) -> Result<Vec<String>, Error> {
        let [connections, reports] = ["", ":hubs"].map(|end| self.key(&format!("{{{person}}}{end}")));
        let Alive { instances, seen_at } = (self.fleet)();
        let asked = match purpose {
            Purpose::Change => "0".to_owned(),
            Purpose::Answer => "-1".to_owned(),
            Purpose::Decision(since) => since.to_string(),
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
            &self.key_life,
            &self.key("disconnect"),
            &serde_json::to_string(person).unwrap_or_default(),
            &report.until.to_string(),
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

    async fn enter(self: Arc<Self>, person: Id, on_replaced: OnReplaced) -> Result<Place, Refused> {
        if !self.held().can_change(&person) {
            return Err(Outage("too many have gone of whom Redis was not told".to_owned()).into());
        }
        let (id, deadline): (Arc<str>, _) = (random::uuid().into(), Instant::now() + ENTER_TIMEOUT);
        self.held().enter(&person, id.clone(), on_replaced, deadline);
        // From here on it is counted out again, whatever happens.
        let (inner, left) = (self.clone(), (person.clone(), id.clone()));
        let place = Place(Box::new(move || drop(inner.held().remove(&left.0, &left.1))));
        match tokio::time::timeout_at(deadline.into(), self.report(&person, Purpose::Change)).await {
            Ok(outcome) => outcome.map_err(Outage::from)?,
            Err(_) => return Err(Outage("Redis does not answer".to_owned()).into()),
        }
        let is_refused = self.limit.policy == Policy::Refuse && !self.held().holds(&person, &id);
        if is_refused { Err(Refused::Full) } else { Ok(place) }
    }

    /// Reports at shutdown that this instance holds no connections any more.
    async fn leave(&self) {
        let people = self.held().clear();
        // A report that is lost is made up for when the instance leaves the fleet.
        let _ = self.report_all(&people).await;
    }
}

fn unexpected(error: impl std::fmt::Display) -> Error {
    Error::Unexpected(error.to_string())
}

impl Connections for RedisConnections {
    fn enter(&self, person: &Id, on_replaced: OnReplaced) -> Boxed<'_, Result<Place, Refused>> {
        Box::pin(self.0.clone().enter(person.clone(), on_replaced))
    }
}

struct BusListener(RedisConnections);

/// The message by which the instance that holds a connection learns that it was replaced.
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
                let mut held = inner.held();
                // Only who holds something has an answer.
                if held.counts(&person) {
                    held.tell_of(&person, Purpose::Answer);
                }
            })
        } else {
            serde_json::from_slice::<Disconnect>(payload).map(|one| {
                let replaced = inner.held().remove(&one.member_id, &one.connection_id);
                if let Some(end) = replaced {
                    end();
                }
            })
        };
        if outcome.is_err() {
            metrics::counter!("bus_malformed_total").increment(1);
        }
    }

    fn mark_stale(&self, _: &Channel) {
        self.0.0.doubt.notify_one();
    }
}
