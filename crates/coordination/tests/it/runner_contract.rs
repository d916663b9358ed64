//! The contract of runners: one at a time, and never nobody for long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_coordination::runner;
use bongsu_testkit::wait;

use crate::hub::{Engine, Hub, LEASE, PATIENCE, Shared};

/// What a loop did, and where.
#[derive(Default)]
pub(crate) struct Diary {
    /// Whose step it was, and in which turn.
    steps: Mutex<Vec<(usize, usize)>>,
    /// How many turns have begun.
    turns: AtomicUsize,
    running: Mutex<usize>,
}

/// A turn that lasts.
struct Turn(Arc<Diary>);

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap() -= 1;
    }
}

impl Diary {
    fn steps(&self) -> Vec<(usize, usize)> {
        self.steps.lock().unwrap().clone()
    }

    /// Whose turn it is, after the loop went on from here.
    pub(crate) async fn runs_on(&self) -> (usize, usize) {
        let before = self.steps().len();
        wait::until(PATIENCE, || async { self.steps().len() > before + 1 }).await;
        *self.steps().last().unwrap()
    }

    pub(crate) fn running(&self) -> usize {
        *self.running.lock().unwrap()
    }

    /// Nobody went on after another one had begun.
    pub(crate) fn was_in_order(&self) -> bool {
        self.steps().is_sorted_by_key(|(_, turn)| *turn)
    }
}

/// Runs a loop on a hub that writes down its steps.
pub(crate) fn run(hub: &Hub, who: usize, diary: &Arc<Diary>) {
    start(hub, "test", diary, move |diary, turn| async move {
        loop {
            diary.steps.lock().unwrap().push((who, turn));
            // The loop's own pace.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// Runs a loop on a hub that waits for something that does not come.
pub(crate) fn run_quietly(hub: &Hub, diary: &Arc<Diary>) {
    start(hub, "quiet", diary, |_, _| std::future::pending());
}

fn start<F: Future<Output = ()> + Send + 'static>(
    hub: &Hub,
    name: &'static str,
    diary: &Arc<Diary>,
    work: impl Fn(Arc<Diary>, usize) -> F + Clone + Send + Sync + 'static,
) {
    let diary = diary.clone();
    let _there = hub.process.as_ref().map(|process| process.island.enter());
    let turn = move || {
        let (diary, work) = (diary.clone(), work.clone());
        async move {
            *diary.running.lock().unwrap() += 1;
            let _turn = Turn(diary.clone());
            let number = diary.turns.fetch_add(1, Ordering::SeqCst);
            work(diary, number).await;
        }
    };
    runner::start(hub.coordination.locks.clone(), name, &hub.supervisor, turn).unwrap();
}

pub(crate) async fn a_loop_runs_and_comes_again_after_it_returned<E: Engine>(mut engine: E) {
    let hub = engine.hub().await;
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = turns.clone();
    let work = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::ready(())
    };
    {
        let _there = hub.process.as_ref().map(|process| process.island.enter());
        runner::start(hub.coordination.locks.clone(), "brief", &hub.supervisor, work).unwrap();
    }
    wait::until(PATIENCE, || async { turns.load(Ordering::SeqCst) >= 3 }).await;
    hub.stop().await;
}

pub(crate) async fn a_loop_runs_once_in_the_fleet_and_moves_when_its_hub_stops<E: Engine>(mut engine: E) {
    let diary = Arc::new(Diary::default());
    let mut hubs = Vec::new();
    for who in 0..3 {
        let hub = engine.hub().await;
        run(&hub, who, &diary);
        hubs.push(Some(hub));
    }
    while hubs.iter().any(Option::is_some) {
        let (who, turn) = diary.runs_on().await;
        assert_eq!(diary.running(), 1);
        // It stays where it is for longer than a lease.
        let lasts = |hub: &Hub| hub.coordination.locks.clone();
        let locks = lasts(hubs[who].as_ref().expect("it runs on a hub that is there"));
        let brief = locks.acquire(&crate::hub::id("brief")).await.unwrap();
        let bongsu_coordination::lock::Acquired::Granted(brief) = brief else { panic!("nobody else has it") };
        wait::until(PATIENCE, || async { !brief.is_held() }).await;
        assert_eq!(diary.runs_on().await, (who, turn));
        let _ = locks.release(&brief).await;
        hubs[who].take().unwrap().stop().await;
    }
    assert_eq!(diary.running(), 0);
    assert!(diary.was_in_order());
}

pub(crate) async fn a_name_that_is_none_is_refused<E: Engine>(mut engine: E) {
    let hub = engine.hub().await;
    let started = runner::start(hub.coordination.locks.clone(), "{}", &hub.supervisor, || async {});
    assert!(started.is_err());
}

pub(crate) async fn a_loop_moves_when_its_hub_is_killed<E: Shared>(mut engine: E) {
    let diary = Arc::new(Diary::default());
    let mut hubs = [Some(engine.hub().await), Some(engine.hub().await)];
    for (who, hub) in hubs.iter().flatten().enumerate() {
        run(hub, who, &diary);
    }
    let (first, turn) = diary.runs_on().await;
    hubs[first].take().unwrap().kill();
    let (second, next) = diary.runs_on().await;
    assert_eq!(second, 1 - first);
    assert!(next > turn);
    assert!(diary.was_in_order());
}

pub(crate) async fn a_holder_that_stood_still_takes_no_further_step<E: Shared>(mut engine: E) {
    let diary = Arc::new(Diary::default());
    let hubs = [engine.hub().await, engine.hub().await];
    for (who, hub) in hubs.iter().enumerate() {
        run(hub, who, &diary);
    }
    let (first, _) = diary.runs_on().await;
    hubs[first].island().pause(LEASE * 2);
    wait::until(PATIENCE, || async { diary.runs_on().await.0 != first }).await;
    // Its turn was dropped when it woke up.
    wait::until(PATIENCE, || async { diary.running() == 1 }).await;
    assert!(diary.was_in_order());
}

/// Here nothing but the clock can tell it, for it goes on before anybody else there has had a look.
pub(crate) async fn a_holder_that_stood_still_and_goes_on_at_once_takes_no_further_step<E: Shared>(
    mut engine: E,
) {
    let (first, second) = (engine.hub().await, engine.hub().await);
    let steps = Arc::new(AtomicUsize::new(0));
    let next = Arc::new(Diary::default());
    {
        let (steps, next) = (steps.clone(), next.clone());
        let work = move || {
            let (steps, next) = (steps.clone(), next.clone());
            std::future::poll_fn(move |context| {
                if steps.fetch_add(1, Ordering::SeqCst) == 0 {
                    let woken = std::time::Instant::now() + PATIENCE;
                    while next.running() == 0 && std::time::Instant::now() < woken {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    context.waker().wake_by_ref();
                }
                std::task::Poll::Pending
            })
        };
        let _there = first.island().enter();
        runner::start(first.coordination.locks.clone(), "test", &first.supervisor, work).unwrap();
    }
    wait::until(PATIENCE, || async { steps.load(Ordering::SeqCst) == 1 }).await;
    run(&second, 2, &next);
    next.runs_on().await;
    // When this comes back, the first one has been through everything that it had to do.
    first.island().run(tokio::time::sleep(Duration::from_millis(50))).await;
    assert_eq!((steps.load(Ordering::SeqCst), next.running()), (1, 1));
}
