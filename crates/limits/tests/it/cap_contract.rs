//! The contract of the cap.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bongsu_limits::cap::Refused;
use bongsu_testkit::wait;
use tokio::task::JoinSet;

use crate::hub::{Engine, Hub, LEASE, PATIENCE};

async fn two_hubs<E: Engine>(engine: &mut E) -> [Hub; 2] {
    [engine.hub().await, engine.hub().await]
}

pub(crate) async fn there_are_as_many_places_as_the_limit_says<E: Engine>(mut engine: E) {
    let hubs = two_hubs(&mut engine).await;
    let mut places = Vec::new();
    for n in 0..5 {
        places.push(hubs[n % 2].enter("anna", 5).await.unwrap());
    }
    for hub in &hubs {
        assert!(hub.is_full("anna", 5).await);
    }
    // A place that is given back is free at once where it was given back.
    drop(places.pop());
    let again = hubs[0].enter("anna", 5).await.unwrap();
    assert!(hubs[1].is_full("anna", 5).await);
    drop(again);
}

pub(crate) async fn a_place_that_is_given_back_is_free_everywhere<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine).await;
    for _ in 0..10 {
        let place = one.enters("anna", 1).await;
        assert!(two.is_full("anna", 1).await);
        drop(place);
        let place = two.enters("anna", 1).await;
        assert!(one.is_full("anna", 1).await);
        drop(place);
    }
}

pub(crate) async fn scopes_do_not_disturb_each_other<E: Engine>(mut engine: E) {
    let hubs = two_hubs(&mut engine).await;
    let mut places = Vec::new();
    for n in 0..40 {
        places.push(hubs[n % 2].enter(&format!("user{n}"), 1).await.unwrap());
    }
    for n in 0..40 {
        assert!(hubs[(n + 1) % 2].is_full(&format!("user{n}"), 1).await, "user{n}");
    }
    drop(places);
    for n in 0..40 {
        drop(hubs[(n + 1) % 2].enters(&format!("user{n}"), 1).await);
    }
}

pub(crate) async fn limits_may_change<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine).await;
    let _places = [one.enter("anna", 3).await.unwrap(), two.enter("anna", 3).await.unwrap()];
    for limit in [0, 1, 2] {
        assert!(one.is_full("anna", limit).await);
    }
    assert!(!two.is_full("anna", 3).await);
}

pub(crate) async fn of_many_at_once_never_more_than_the_limit_are_in<E: Engine>(mut engine: E) {
    const LIMIT: u32 = 5;
    let hubs = two_hubs(&mut engine).await;
    let (inside, entered) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tries = JoinSet::new();
    for n in 0..50_usize {
        let cap = hubs[n % 2].limits.cap.clone();
        let (inside, entered) = (inside.clone(), entered.clone());
        tries.spawn(async move {
            for round in 0..20_u64 {
                match cap.enter("anna", LIMIT).await {
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
    let mut places = Vec::new();
    for n in 0..LIMIT as usize {
        places.push(hubs[n % 2].enters("anna", LIMIT).await);
    }
    assert!(hubs[0].is_full("anna", LIMIT).await);
}

pub(crate) async fn who_gives_up_in_the_middle_keeps_no_place<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine).await;
    for patience in (0..20).map(|n| Duration::from_micros(n * 100)) {
        let entered = tokio::time::timeout(patience, one.enter("anna", 1)).await;
        drop(entered);
        drop(two.enters("anna", 1).await);
        drop(one.enters("anna", 1).await);
    }
}

pub(crate) async fn the_places_of_one_that_was_killed_count_until_its_lease_ends<E: Engine>(mut engine: E) {
    let before_it_joined = Instant::now();
    let [one, two] = two_hubs(&mut engine).await;
    let [_first, _second] = [one.enter("anna", 3).await.unwrap(), one.enter("anna", 3).await.unwrap()];
    let kept = two.enter("anna", 3).await.unwrap();
    one.kill();
    // Unless this test itself was held up for longer than that.
    let lasts_on = two.is_full("anna", 3).await;
    assert!(lasts_on || before_it_joined.elapsed() >= LEASE, "its lease lasts on");
    let places = [two.enters("anna", 3).await, two.enters("anna", 3).await];
    assert!(two.is_full("anna", 3).await, "its own are still there");
    drop((places, kept));
}

pub(crate) async fn the_places_of_one_that_stops_are_free_at_once<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine).await;
    let _place = one.enter("anna", 1).await.unwrap();
    one.stop().await;
    drop(two.enter("anna", 1).await.unwrap());
}

pub(crate) async fn places_count_for_much_longer_than_a_lease<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine).await;
    let mut places = Vec::new();
    for n in 0..10 {
        places.push(one.enter(&format!("user{n}"), 1).await.unwrap());
    }
    // A third one's place ends with its lease, which began last.
    let killed = engine.hub().await;
    let _place = killed.enter("measure", 1).await.unwrap();
    killed.kill();
    drop(two.enters("measure", 1).await);
    for n in 0..10 {
        assert!(two.is_full(&format!("user{n}"), 1).await, "user{n}");
    }
}

pub(crate) async fn who_stood_still_puts_its_places_back<E: Engine>(mut engine: E) {
    let [one, two] = two_hubs(&mut engine).await;
    let (_place, other) = (one.enter("anna", 2).await.unwrap(), one.enter("ben", 1).await.unwrap());
    one.island().pause(LEASE * 2);
    // It counts as gone.
    let taken = [two.enters("anna", 2).await, two.enters("anna", 2).await];
    drop(two.enters("ben", 1).await);
    // Now it is back, and nobody is turned out: it just is one too many, until one goes.
    wait::until(PATIENCE, || async { two.is_full("ben", 1).await }).await;
    drop(taken);
    wait::until(PATIENCE, || async {
        let free = one.enter("anna", 2).await;
        free.is_ok() && two.is_full("anna", 2).await
    })
    .await;
    drop(other);
    drop(two.enters("ben", 1).await);
}
