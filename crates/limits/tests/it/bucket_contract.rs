//! The contract of buckets.

use std::time::Duration;

use bongsu_limits::Rate;
use bongsu_limits::bucket::Refused;
use bongsu_testkit::wait;
use tokio::task::JoinSet;

use crate::hub::{Engine, Hub, PATIENCE, refuse};

/// So little flows in that a test does not notice.
const TRICKLE: f64 = 0.001;

fn rate(per_second: f64, burst: u32) -> Rate {
    Rate::new(per_second, burst).unwrap()
}

async fn take(hub: &Hub, key: &str, rate: Rate, cost: u32) -> Result<(), Refused> {
    hub.buckets.take(key, rate, cost).await
}

pub(crate) async fn a_bucket_holds_its_burst_and_says_when_there_is_more<E: Engine>(mut engine: E) {
    let hubs = [engine.hub(refuse(1)).await, engine.hub(refuse(1)).await];
    let rate = rate(TRICKLE, 5);
    for n in 0..5 {
        assert_eq!(take(&hubs[n % 2], "anna", rate, 1).await, Ok(()), "{n}");
    }
    for hub in &hubs {
        let Err(Refused::RetryAfter(after)) = take(hub, "anna", rate, 1).await else { panic!("it is empty") };
        assert!((Duration::from_secs(900)..=Duration::from_secs(1_000)).contains(&after), "{after:?}");
        let Err(Refused::RetryAfter(more)) = take(hub, "anna", rate, 2).await else { panic!("it is empty") };
        assert!(more > after + Duration::from_secs(900), "{more:?}");
        assert_eq!(take(hub, "anna", rate, 0).await, Ok(()));
    }
}

pub(crate) async fn what_was_announced_is_there<E: Engine>(mut engine: E) {
    let hub = engine.hub(refuse(1)).await;
    let rate = rate(20.0, 2);
    for round in 0..4 {
        wait::until(PATIENCE, || async { take(&hub, "anna", rate, 2).await.is_ok() }).await;
        let Err(Refused::RetryAfter(after)) = take(&hub, "anna", rate, 2).await else { continue };
        assert!(after <= Duration::from_millis(101), "{after:?}");
        // As a client does that was told to.
        tokio::time::sleep(after).await;
        assert_eq!(take(&hub, "anna", rate, 2).await, Ok(()), "in round {round}");
    }
}

pub(crate) async fn of_many_at_once_no_more_is_taken_than_is_there<E: Engine>(mut engine: E) {
    let hubs = [engine.hub(refuse(1)).await, engine.hub(refuse(1)).await];
    let mut tries = JoinSet::new();
    for n in 0..100 {
        let buckets = hubs[n % 2].buckets.clone();
        tries.spawn(async move { buckets.take("anna", rate(TRICKLE, 30), 1).await.is_ok() });
    }
    let taken = tries.join_all().await.into_iter().filter(|taken| *taken).count();
    assert_eq!(taken, 30);
}

pub(crate) async fn more_than_a_bucket_holds_is_never_given<E: Engine>(mut engine: E) {
    let hub = engine.hub(refuse(1)).await;
    assert_eq!(take(&hub, "anna", rate(1.0, 5), 6).await, Err(Refused::Never));
    assert_eq!(take(&hub, "anna", rate(TRICKLE, 5), 5).await, Ok(()));
    assert_eq!(take(&hub, "anna", rate(1.0, 5), 6).await, Err(Refused::Never));
    assert_eq!(Rate::new(0.0, 5), None);
    assert_eq!(Rate::new(f64::NAN, 5), None);
    assert_eq!(Rate::new(1.0, 0), None);
}

pub(crate) async fn buckets_do_not_disturb_each_other<E: Engine>(mut engine: E) {
    let hub = engine.hub(refuse(1)).await;
    for n in 0..40 {
        // Also where a Cluster would look for a tag.
        let key = format!("user{n} {{}} {{x}}");
        assert_eq!(take(&hub, &key, rate(TRICKLE, 1), 1).await, Ok(()), "{key}");
        assert!(take(&hub, &key, rate(TRICKLE, 1), 1).await.is_err(), "{key}");
    }
}

pub(crate) async fn a_smaller_burst_holds_at_once<E: Engine>(mut engine: E) {
    let hub = engine.hub(refuse(1)).await;
    assert_eq!(take(&hub, "anna", rate(TRICKLE, 10), 1).await, Ok(()));
    assert_eq!(take(&hub, "anna", rate(TRICKLE, 2), 2).await, Ok(()));
    assert!(take(&hub, "anna", rate(TRICKLE, 2), 1).await.is_err());
}
