//! The contract of runners: one at a time, fenced, and never nobody for long.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_coordination::{Fence, runner};
use bongsu_redis::redis::from_redis_value;
use bongsu_redis::{Redis, Repeat, Script};
use bongsu_testkit::wait;
use tokio::runtime::Handle;

use crate::hub::{Engine, Hub, LEASE, PATIENCE, Shared};

static FENCED_WRITE: Script = Script::new("fenced_write", include_str!("fenced_write.lua"));

/// What a loop did, and where.
#[derive(Default)]
pub(crate) struct Diary {
    /// Whose step it was, and with which fence.
    steps: Mutex<Vec<(usize, Fence)>>,
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
    fn steps(&self) -> Vec<(usize, Fence)> {
        self.steps.lock().unwrap().clone()
    }

    /// Whose turn it is, after the loop went on from here.
    pub(crate) async fn runs_on(&self) -> (usize, Fence) {
        let before = self.steps().len();
        wait::until(PATIENCE, || async { self.steps().len() > before + 1 }).await;
        *self.steps().last().unwrap()
    }

    pub(crate) fn running(&self) -> usize {
        *self.running.lock().unwrap()
    }

    /// Nobody went on after another one had begun.
    pub(crate) fn was_in_order(&self) -> bool {
        self.steps().is_sorted_by_key(|(_, fence)| *fence)
    }
}

/// Runs a loop on a hub that writes down its steps.
pub(crate) fn run(hub: &Hub, who: usize, diary: &Arc<Diary>) {
    start(hub, "test", diary, move |diary, fence| async move {
        loop {
            diary.steps.lock().unwrap().push((who, fence));
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
    work: impl Fn(Arc<Diary>, Fence) -> F + Clone + Send + Sync + 'static,
) {
    let diary = diary.clone();
    let _there = hub.process.as_ref().map(|process| process.island.enter());
    let turn = move |fence| {
        let (diary, work) = (diary.clone(), work.clone());
        async move {
            *diary.running.lock().unwrap() += 1;
            let _turn = Turn(diary.clone());
            work(diary, fence).await;
        }
    };
    runner::start(hub.coordination.locks.clone(), name, &hub.supervisor, turn).unwrap();
}

pub(crate) async fn a_loop_runs_and_comes_again_after_it_returned<E: Engine>(mut engine: E) {
    let hub = engine.hub().await;
    let fences: Arc<Mutex<Vec<Fence>>> = Arc::default();
    let written = fences.clone();
    let work = move |fence| {
        written.lock().unwrap().push(fence);
        std::future::ready(())
    };
    {
        let _there = hub.process.as_ref().map(|process| process.island.enter());
        runner::start(hub.coordination.locks.clone(), "brief", &hub.supervisor, work).unwrap();
    }
    wait::until(PATIENCE, || async { fences.lock().unwrap().len() >= 3 }).await;
    hub.stop().await;
    assert!(fences.lock().unwrap().is_sorted_by(|one, next| one < next), "every turn has a larger fence");
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
        let (who, fence) = diary.runs_on().await;
        assert_eq!(diary.running(), 1);
        // It stays where it is for longer than a lease.
        let lasts = |hub: &Hub| hub.coordination.locks.clone();
        let locks = lasts(hubs[who].as_ref().expect("it runs on a hub that is there"));
        let brief = locks.acquire(&crate::hub::id("brief")).await.unwrap();
        let bongsu_coordination::lock::Acquired::Granted(brief) = brief else { panic!("nobody else has it") };
        wait::until(PATIENCE, || async { !brief.is_held() }).await;
        assert_eq!(diary.runs_on().await, (who, fence));
        let _ = locks.release(&brief).await;
        hubs[who].take().unwrap().stop().await;
    }
    assert_eq!(diary.running(), 0);
    assert!(diary.was_in_order());
}

pub(crate) async fn a_name_that_is_none_is_refused<E: Engine>(mut engine: E) {
    let hub = engine.hub().await;
    let started = runner::start(hub.coordination.locks.clone(), "{}", &hub.supervisor, |_| async {});
    assert!(started.is_err());
}

pub(crate) async fn a_loop_moves_when_its_hub_is_killed<E: Shared>(mut engine: E) {
    let diary = Arc::new(Diary::default());
    let mut hubs = [Some(engine.hub().await), Some(engine.hub().await)];
    for (who, hub) in hubs.iter().flatten().enumerate() {
        run(hub, who, &diary);
    }
    let (first, fence) = diary.runs_on().await;
    hubs[first].take().unwrap().kill();
    let (second, next) = diary.runs_on().await;
    assert_eq!(second, 1 - first);
    assert!(next > fence);
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
        let work = move |_| {
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

async fn write(redis: Redis, text: &'static str, fence: Fence) -> String {
    let keys = ["value", "fence"].map(|name| redis.key(format_args!("{{fenced}}:{name}")));
    let token = fence.to_string();
    let keys = keys.each_ref().map(String::as_str);
    let outcome = redis.run(&FENCED_WRITE, Repeat::Never, &keys, &[text.as_bytes(), token.as_bytes()]).await;
    from_redis_value(outcome.unwrap()).unwrap()
}

pub(crate) async fn a_late_write_of_a_holder_that_stood_still_is_refused<E: Shared>(mut engine: E) {
    let (first, second) = (engine.hub().await, engine.hub().await);
    let redis = |hub: &Hub| hub.process.as_ref().unwrap().redis.clone();
    let next_has_written = Arc::new(AtomicBool::new(false));
    let late: Arc<Mutex<Option<String>>> = Arc::default();
    {
        let (next_has_written, late, redis) = (next_has_written.clone(), late.clone(), redis(&first));
        let stop = first.supervisor.stop();
        let work = move |fence| {
            let (next_has_written, late, redis) = (next_has_written.clone(), late.clone(), redis.clone());
            let stop = stop.clone();
            async move {
                assert_eq!(write(redis.clone(), "early", fence).await, "written");
                // It has just looked at its lease, stands still, and writes when it goes on.
                let woken = std::time::Instant::now() + PATIENCE;
                let is_over = || stop.is_cancelled() || std::time::Instant::now() > woken;
                while !next_has_written.load(Ordering::SeqCst) && !is_over() {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let writing = write(redis, "late", fence);
                Handle::current().spawn(async move { *late.lock().unwrap() = Some(writing.await) });
                std::future::pending::<()>().await;
            }
        };
        let _there = first.island().enter();
        runner::start(first.coordination.locks.clone(), "writer", &first.supervisor, work).unwrap();
    }
    let reader = redis(&second);
    let value = || async {
        let key = reader.key("{fenced}:value");
        let mut get = bongsu_redis::redis::cmd("GET");
        get.arg(&key);
        let value = reader.ask("get", &key, &get, Repeat::Safe).await.unwrap();
        from_redis_value::<Option<String>>(value).unwrap()
    };
    wait::until(PATIENCE, || async { value().await.as_deref() == Some("early") }).await;
    {
        let (next_has_written, redis) = (next_has_written.clone(), redis(&second));
        let work = move |fence| {
            let (next_has_written, redis) = (next_has_written.clone(), redis.clone());
            async move {
                assert_eq!(write(redis, "next", fence).await, "written");
                next_has_written.store(true, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }
        };
        let _there = second.island().enter();
        runner::start(second.coordination.locks.clone(), "writer", &second.supervisor, work).unwrap();
    }
    wait::until(PATIENCE, || async { late.lock().unwrap().is_some() }).await;
    assert_eq!(late.lock().unwrap().as_deref(), Some("fenced"));
    assert_eq!(value().await.as_deref(), Some("next"));
}
