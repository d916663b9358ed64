//! The contract of [`Buckets`](bongsu_limits::Buckets), tested with every adapter.

use std::time::Duration;

use bongsu_limits::Rate;
use bongsu_limits::bucket::RateLimitError;
use bongsu_testkit::wait;
use tokio::task::JoinSet;

use crate::hub::{Engine, Hub, WAIT_TIMEOUT, refuse};

/// A rate per second at which no whole token flows in during a test.
const SLOW_RATE: f64 = 0.001;

fn rate(per_second: f64, burst: u32) -> Rate {
    Rate::new(per_second, burst).unwrap()
}

async fn take(hub: &Hub, key: &str, rate: Rate, cost: u32) -> Result<(), RateLimitError> {
    hub.buckets.take(key, rate, cost).await
}

pub(crate) async fn an_empty_bucket_returns_the_time_until_it_has_tokens<E: Engine>(mut engine: E) {
    let hubs = [engine.hub(refuse(1)).await, engine.hub(refuse(1)).await];
    let rate = rate(SLOW_RATE, 5);
    for n in 0..5 {
        assert_eq!(take(&hubs[n % 2], "anna", rate, 1).await, Ok(()), "{n}");
    }
    for hub in &hubs {
        let Err(RateLimitError::RetryAfter(after)) = take(hub, "anna", rate, 1).await else {
            panic!("the bucket is empty")
        };
        assert!((Duration::from_secs(900)..=Duration::from_secs(1_000)).contains(&after), "{after:?}");
        let Err(RateLimitError::RetryAfter(more)) = take(hub, "anna", rate, 2).await else {
            panic!("the bucket is empty")
        };
        assert!(more > after + Duration::from_secs(900), "{more:?}");
        assert_eq!(take(hub, "anna", rate, 0).await, Ok(()));
    }
}

pub(crate) async fn a_retry_after_the_returned_delay_succeeds<E: Engine>(mut engine: E) {
    let hub = engine.hub(refuse(1)).await;
    let rate = rate(20.0, 2);
    for round in 0..4 {
        wait::until(WAIT_TIMEOUT, || async { take(&hub, "anna", rate, 2).await.is_ok() }).await;
        let Err(RateLimitError::RetryAfter(after)) = take(&hub, "anna", rate, 2).await else { continue };
        assert!(after <= Duration::from_millis(101), "{after:?}");
        // The delay that the error names.
        tokio::time::sleep(after).await;
        assert_eq!(take(&hub, "anna", rate, 2).await, Ok(()), "in round {round}");
    }
}

pub(crate) async fn concurrent_takes_never_exceed_the_burst<E: Engine>(mut engine: E) {
    let hubs = [engine.hub(refuse(1)).await, engine.hub(refuse(1)).await];
    let mut tries = JoinSet::new();
    for n in 0..100 {
        let buckets = hubs[n % 2].buckets.clone();
        tries.spawn(async move { buckets.take("anna", rate(SLOW_RATE, 30), 1).await.is_ok() });
    }
    let taken = tries.join_all().await.into_iter().filter(|taken| *taken).count();
    assert_eq!(taken, 30);
}

pub(crate) async fn a_cost_above_the_burst_is_refused<E: Engine>(mut engine: E) {
    let hub = engine.hub(refuse(1)).await;
    assert_eq!(take(&hub, "anna", rate(1.0, 5), 6).await, Err(RateLimitError::ExceedsBurst));
    assert_eq!(take(&hub, "anna", rate(SLOW_RATE, 5), 5).await, Ok(()));
    assert_eq!(take(&hub, "anna", rate(1.0, 5), 6).await, Err(RateLimitError::ExceedsBurst));
    assert_eq!(Rate::new(0.0, 5), None);
    assert_eq!(Rate::new(f64::NAN, 5), None);
    assert_eq!(Rate::new(1.0, 0), None);
}

pub(crate) async fn buckets_are_independent<E: Engine>(mut engine: E) {
    let hub = engine.hub(refuse(1)).await;
    for n in 0..40 {
        // The keys contain braces, in which a Cluster looks for a hash tag.
        let key = format!("user{n} {{}} {{x}}");
        assert_eq!(take(&hub, &key, rate(SLOW_RATE, 1), 1).await, Ok(()), "{key}");
        assert!(take(&hub, &key, rate(SLOW_RATE, 1), 1).await.is_err(), "{key}");
    }
}

pub(crate) async fn a_smaller_burst_takes_effect_at_once<E: Engine>(mut engine: E) {
    let hub = engine.hub(refuse(1)).await;
    assert_eq!(take(&hub, "anna", rate(SLOW_RATE, 10), 1).await, Ok(()));
    assert_eq!(take(&hub, "anna", rate(SLOW_RATE, 2), 2).await, Ok(()));
    assert!(take(&hub, "anna", rate(SLOW_RATE, 2), 1).await.is_err());
}
