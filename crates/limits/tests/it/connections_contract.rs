//! The contract of the limit of connections.
//!
//! What both policies promise alike is asked of `Refuse`, where it shows at once whether a place is free.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bongsu_kernel::Id;
use bongsu_limits::connections::Refused;
use bongsu_testkit::wait;
use futures_util::future::join_all;
use tokio::task::JoinSet;

use crate::hub::{Engine, LEASE, Open, PATIENCE, only_the_oldest_are_replaced, refuse, replace, two_hubs};

pub(crate) async fn refuse_lets_in_as_many_as_the_limit<E: Engine>(mut engine: E) {
    let hubs = two_hubs(&mut engine, refuse(5)).await;
    let mut open = Vec::new();
    for n in 0..5 {
        open.push(hubs[n % 2].enter("anna").await.unwrap());
    }
    for hub in &hubs {
        assert!(hub.is_full("anna").await);
    }
    // A place that is given back is free at once where it was given back.
    drop(open.pop());
    let again = hubs[0].enter("anna").await.unwrap();
    assert!(hubs[1].is_full("anna").await);
    assert!(open.iter().chain([&again]).all(|open| !open.is_replaced()));
}

pub(crate) async fn refuse_gives_a_free_place_to_every_instance<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, refuse(1)).await;
    for _ in 0..10 {
        let open = one.enters("anna").await;
        assert!(two.is_full("anna").await);
        drop(open);
        let open = two.enters("anna").await;
        assert!(one.is_full("anna").await);
        drop(open);
    }
}

pub(crate) async fn people_do_not_disturb_each_other<E: Engine>(mut engine: E) {
    let hubs = two_hubs(&mut engine, refuse(1)).await;
    let mut open = Vec::new();
    for n in 0..40 {
        open.push(hubs[n % 2].enter(&format!("user{n}")).await.unwrap());
    }
    for n in 0..40 {
        assert!(hubs[(n + 1) % 2].is_full(&format!("user{n}")).await, "user{n}");
    }
    drop(open);
    for n in 0..40 {
        drop(hubs[(n + 1) % 2].enters(&format!("user{n}")).await);
    }
}

pub(crate) async fn refuse_never_lets_in_more_than_the_limit_of_many_at_once<E: Engine>(mut engine: E) {
    const LIMIT: usize = 5;
    let hubs = two_hubs(&mut engine, refuse(LIMIT)).await;
    let (inside, entered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tries = JoinSet::new();
    for n in 0..50_usize {
        let connections = hubs[n % 2].connections.clone();
        let (inside, entered) = (inside.clone(), entered.clone());
        tries.spawn(async move {
            let anna = Id::new("anna").unwrap();
            for round in 0..20_u64 {
                match connections.enter(&anna, Box::new(|| panic!("nobody is replaced"))).await {
                    Ok(place) => {
                        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(now <= LIMIT, "{now} are in");
                        entered.fetch_add(1, Ordering::SeqCst);
                        // How long it stays, and below how long it waits before it tries again.
                        tokio::time::sleep(Duration::from_millis(round % 3)).await;
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(place);
                    }
                    Err(Refused::Full) => tokio::time::sleep(Duration::from_millis(round % 4)).await,
                    Err(away) => panic!("{away}"),
                }
            }
        });
    }
    while let Some(outcome) = tries.join_next().await {
        outcome.unwrap();
    }
    assert!(entered.load(Ordering::SeqCst) >= LIMIT);
    // Nothing is left of all that: every place is free.
    let mut open = Vec::new();
    for n in 0..LIMIT {
        open.push(hubs[n % 2].enters("anna").await);
    }
    assert!(hubs[0].is_full("anna").await);
}

pub(crate) async fn who_gives_up_in_the_middle_keeps_no_place<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, refuse(1)).await;
    for patience in (0..20).map(|n| Duration::from_micros(n * 100)) {
        let entered = tokio::time::timeout(patience, one.enter("anna")).await;
        drop(entered);
        drop(two.enters("anna").await);
        drop(one.enters("anna").await);
    }
}

pub(crate) async fn replace_ends_the_oldest_and_no_other<E: Engine>(mut engine: E) {
    let hubs = two_hubs(&mut engine, replace(3)).await;
    let mut open = Vec::new();
    for n in 0..6 {
        open.push(hubs[n % 2].enter("anna").await.unwrap());
        only_the_oldest_are_replaced(&open, open.len().saturating_sub(3)).await;
    }
    let other = hubs[1].enter("ben").await.unwrap();
    only_the_oldest_are_replaced(&[other], 0).await;
}

pub(crate) async fn replace_lets_the_limit_stay_of_many_at_once<E: Engine>(mut engine: E) {
    let hubs = two_hubs(&mut engine, replace(3)).await;
    let all_at_once = |count: usize| {
        let hubs = &hubs;
        join_all((0..count).map(async |n: usize| hubs[n % 2].enter("anna").await.unwrap()))
    };
    let replaced = |open: &[Open]| open.iter().filter(|open| open.is_replaced()).count();
    let ten = all_at_once(10).await;
    wait::until(PATIENCE, || async { replaced(&ten) == 7 }).await;
    let newest = all_at_once(3).await;
    wait::until(PATIENCE, || async { replaced(&ten) == 10 }).await;
    only_the_oldest_are_replaced(&newest, 0).await;
}

pub(crate) async fn replace_counts_nobody_who_has_gone<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, replace(2)).await;
    let stays = [one.enter("anna").await.unwrap()];
    for _ in 0..5 {
        // Told of at once where it goes, and by the report of the next one that comes there.
        drop(one.enter("anna").await.unwrap());
    }
    let newest = one.enter("anna").await.unwrap();
    only_the_oldest_are_replaced(&stays, 0).await;
    drop(newest);
    let [oldest] = stays;
    let open = [oldest, two.enter("anna").await.unwrap(), two.enter("anna").await.unwrap()];
    only_the_oldest_are_replaced(&open, 1).await;
}

pub(crate) async fn instances_may_have_different_limits<E: Engine>(mut engine: E) {
    let [one, two] = [engine.hub(refuse(3)).await, engine.hub(refuse(2)).await];
    let _open = [one.enter("anna").await.unwrap(), two.enter("anna").await.unwrap()];
    assert!(two.is_full("anna").await);
    assert!(!one.is_full("anna").await);
}

pub(crate) async fn refuse_counts_a_killed_instance_until_it_is_not_in_the_fleet<E: Engine>(mut engine: E) {
    let before_it_joined = Instant::now();
    let [one, two] = two_hubs(&mut engine, refuse(3)).await;
    let [_first, _second] = [one.enter("anna").await.unwrap(), one.enter("anna").await.unwrap()];
    let kept = two.enter("anna").await.unwrap();
    one.kill();
    // Unless this test itself was held up for longer than that.
    let lasts_on = two.is_full("anna").await;
    assert!(lasts_on || before_it_joined.elapsed() >= LEASE, "its lease lasts on");
    let open = [two.enters("anna").await, two.enters("anna").await];
    assert!(two.is_full("anna").await, "its own are still there");
    drop((open, kept));
}

pub(crate) async fn replace_ends_nobody_because_of_a_killed_instance<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, replace(3)).await;
    let mut open = vec![two.enter("anna").await.unwrap()];
    let _killed_with_it = [one.enter("anna").await.unwrap(), one.enter("anna").await.unwrap()];
    one.kill();
    // An instance that has just reported counts as alive, and is not asked.
    tokio::time::sleep(Duration::from_millis(600)).await;
    open.extend([two.enter("anna").await.unwrap(), two.enter("anna").await.unwrap()]);
    only_the_oldest_are_replaced(&open, 0).await;
    open.push(two.enter("anna").await.unwrap());
    only_the_oldest_are_replaced(&open, 1).await;
}

pub(crate) async fn places_of_an_instance_that_stops_are_free_at_once<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, refuse(1)).await;
    let _open = one.enter("anna").await.unwrap();
    one.stop().await;
    drop(two.enter("anna").await.unwrap());
}

pub(crate) async fn connections_count_for_much_longer_than_a_lease<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, refuse(1)).await;
    let mut open = Vec::new();
    for n in 0..10 {
        open.push(one.enter(&format!("user{n}")).await.unwrap());
    }
    // A third one's place ends with its lease, which began last.
    let killed = engine.hub(refuse(1)).await;
    let _open = killed.enter("measure").await.unwrap();
    killed.kill();
    drop(two.enters("measure").await);
    for n in 0..10 {
        assert!(two.is_full(&format!("user{n}")).await, "user{n}");
    }
}

pub(crate) async fn who_stood_still_puts_its_connections_back<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine, refuse(2)).await;
    let _open = one.enter("anna").await.unwrap();
    let others = [one.enter("ben").await.unwrap(), one.enter("ben").await.unwrap()];
    one.island().pause(LEASE * 2);
    // It counts as gone.
    let taken = [two.enters("anna").await, two.enters("anna").await];
    drop(two.enters("ben").await);
    // Now it is back, and nobody is turned out: it just is one too many, until one goes.
    wait::until(PATIENCE, || async { two.is_full("ben").await }).await;
    drop(taken);
    wait::until(PATIENCE, || async {
        let free = one.enter("anna").await;
        free.is_ok() && two.is_full("anna").await
    })
    .await;
    drop(others);
    drop(two.enters("ben").await);
}
