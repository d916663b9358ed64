//! The contract of runners: at most one instance runs a loop, and another one takes over soon.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_coordination::runner;
use bongsu_testkit::wait;

use crate::hub::{Engine, FleetEngine, Hub, LEASE_TTL, WAIT_TIMEOUT};

/// The steps of a loop over all hubs that run it.
#[derive(Default)]
pub(crate) struct RunHistory {
    /// The index of the hub and the number of the run, for each step.
    steps: Mutex<Vec<(usize, usize)>>,
    /// Runs that have begun.
    runs: AtomicUsize,
    running: Mutex<usize>,
}

/// Counts a run as running until this guard is dropped.
struct RunGuard(Arc<RunHistory>);

impl Drop for RunGuard {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap() -= 1;
    }
}

impl RunHistory {
    fn steps(&self) -> Vec<(usize, usize)> {
        self.steps.lock().unwrap().clone()
    }

    /// Waits for two more steps of the loop, and returns the hub and the run of the last one.
    pub(crate) async fn wait_for_next_step(&self) -> (usize, usize) {
        let before = self.steps().len();
        wait::until(WAIT_TIMEOUT, || async { self.steps().len() > before + 1 }).await;
        *self.steps().last().unwrap()
    }

    pub(crate) fn running(&self) -> usize {
        *self.running.lock().unwrap()
    }

    /// Whether no run took a step after a later run had begun.
    pub(crate) fn is_in_order(&self) -> bool {
        self.steps().is_sorted_by_key(|(_, run)| *run)
    }
}

/// Starts a runner whose loop records its steps.
pub(crate) fn run(hub: &Hub, hub_index: usize, history: &Arc<RunHistory>) {
    start(hub, "test", history, move |history, run| async move {
        loop {
            history.steps.lock().unwrap().push((hub_index, run));
            // Time between two steps.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// Starts a runner whose future stays pending.
pub(crate) fn run_pending(hub: &Hub, history: &Arc<RunHistory>) {
    start(hub, "quiet", history, |_, _| std::future::pending());
}

fn start<F: Future<Output = ()> + Send + 'static>(
    hub: &Hub,
    name: &'static str,
    history: &Arc<RunHistory>,
    work: impl Fn(Arc<RunHistory>, usize) -> F + Clone + Send + Sync + 'static,
) {
    let history = history.clone();
    let _guard = hub.process.as_ref().map(|process| process.runtime.enter());
    let begin_run = move || {
        let (history, work) = (history.clone(), work.clone());
        async move {
            *history.running.lock().unwrap() += 1;
            let _running = RunGuard(history.clone());
            let run = history.runs.fetch_add(1, Ordering::SeqCst);
            work(history, run).await;
        }
    };
    runner::start(hub.coordination.locks.clone(), name, &hub.supervisor, begin_run).unwrap();
}

pub(crate) async fn a_loop_is_restarted_after_it_returns<E: Engine>(mut engine: E) {
    let hub = engine.hub().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let work = move || {
        counter.fetch_add(1, Ordering::SeqCst);
        std::future::ready(())
    };
    {
        let _guard = hub.process.as_ref().map(|process| process.runtime.enter());
        runner::start(hub.coordination.locks.clone(), "brief", &hub.supervisor, work).unwrap();
    }
    wait::until(WAIT_TIMEOUT, || async { runs.load(Ordering::SeqCst) >= 3 }).await;
    hub.stop().await;
}

pub(crate) async fn a_loop_runs_on_one_instance_and_moves_when_it_stops<E: Engine>(mut engine: E) {
    let history = Arc::new(RunHistory::default());
    let mut hubs = Vec::new();
    for index in 0..3 {
        let hub = engine.hub().await;
        run(&hub, index, &history);
        hubs.push(Some(hub));
    }
    while hubs.iter().any(Option::is_some) {
        let (index, run) = history.wait_for_next_step().await;
        assert_eq!(history.running(), 1);
        // The run continues for longer than an unrenewed lease lasts.
        let running_hub = hubs[index].as_ref().expect("the loop runs on a hub that has not stopped");
        let locks = running_hub.coordination.locks.clone();
        let brief = locks.acquire(&crate::hub::id("brief")).await.unwrap();
        let bongsu_coordination::lock::AcquireOutcome::Acquired(brief) = brief else {
            panic!("the lock is not free")
        };
        wait::until(WAIT_TIMEOUT, || async { !brief.is_held() }).await;
        assert_eq!(history.wait_for_next_step().await, (index, run));
        let _ = locks.release(&brief).await;
        hubs[index].take().unwrap().stop().await;
    }
    assert_eq!(history.running(), 0);
    assert!(history.is_in_order());
}

pub(crate) async fn an_invalid_runner_name_is_refused<E: Engine>(mut engine: E) {
    let hub = engine.hub().await;
    let started = runner::start(hub.coordination.locks.clone(), "{}", &hub.supervisor, || async {});
    assert!(started.is_err());
}

pub(crate) async fn a_loop_moves_when_its_instance_is_killed<E: FleetEngine>(mut engine: E) {
    let history = Arc::new(RunHistory::default());
    let mut hubs = [Some(engine.hub().await), Some(engine.hub().await)];
    for (index, hub) in hubs.iter().flatten().enumerate() {
        run(hub, index, &history);
    }
    let (first, first_run) = history.wait_for_next_step().await;
    hubs[first].take().unwrap().kill();
    let (second, second_run) = history.wait_for_next_step().await;
    assert_eq!(second, 1 - first);
    assert!(second_run > first_run);
    assert!(history.is_in_order());
}

pub(crate) async fn a_suspended_runner_takes_no_further_step<E: FleetEngine>(mut engine: E) {
    let history = Arc::new(RunHistory::default());
    let hubs = [engine.hub().await, engine.hub().await];
    for (index, hub) in hubs.iter().enumerate() {
        run(hub, index, &history);
    }
    let (first, _) = history.wait_for_next_step().await;
    hubs[first].runtime().pause(LEASE_TTL * 2);
    wait::until(WAIT_TIMEOUT, || async { history.wait_for_next_step().await.0 != first }).await;
    // The suspended hub drops its run when it resumes.
    wait::until(WAIT_TIMEOUT, || async { history.running() == 1 }).await;
    assert!(history.is_in_order());
}

/// The work blocks its own thread and wakes itself, so that it is polled before the lease renewal of that hub runs.
/// Only the check of the clock at each poll can stop it.
pub(crate) async fn a_suspended_runner_that_is_polled_at_once_takes_no_further_step<E: FleetEngine>(
    mut engine: E,
) {
    let (first, second) = (engine.hub().await, engine.hub().await);
    let steps = Arc::new(AtomicUsize::new(0));
    let next = Arc::new(RunHistory::default());
    {
        let (steps, next) = (steps.clone(), next.clone());
        let work = move || {
            let (steps, next) = (steps.clone(), next.clone());
            std::future::poll_fn(move |context| {
                if steps.fetch_add(1, Ordering::SeqCst) == 0 {
                    let deadline = std::time::Instant::now() + WAIT_TIMEOUT;
                    while next.running() == 0 && std::time::Instant::now() < deadline {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    context.waker().wake_by_ref();
                }
                std::task::Poll::Pending
            })
        };
        let _guard = first.runtime().enter();
        runner::start(first.coordination.locks.clone(), "test", &first.supervisor, work).unwrap();
    }
    wait::until(WAIT_TIMEOUT, || async { steps.load(Ordering::SeqCst) == 1 }).await;
    run(&second, 2, &next);
    next.wait_for_next_step().await;
    // Once this future is done, the runtime of the first hub has polled everything that was ready.
    first.runtime().run(tokio::time::sleep(Duration::from_millis(50))).await;
    assert_eq!((steps.load(Ordering::SeqCst), next.running()), (1, 1));
}
