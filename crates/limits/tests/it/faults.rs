//! What happens when Redis is killed, stands still or forgets.

use bongsu_limits::cap::Refused;
use bongsu_limits::{Rate, bucket};
use bongsu_testkit::{Redis, tier, wait};

use crate::hub::{Hub, PATIENCE};

/// A Redis and two hubs. None where there is no Redis.
async fn redis_with_hubs() -> Option<(Redis, [Hub; 2])> {
    if !tier::needs_engine("redis") {
        return None;
    }
    let redis = Redis::start().await;
    let hubs = [Hub::start(&redis.url(), "").await, Hub::start(&redis.url(), "").await];
    Some((redis, hubs))
}

#[tokio::test]
async fn while_redis_is_away_nobody_enters_and_who_is_in_stays() {
    let Some((redis, [one, two])) = redis_with_hubs().await else { return };
    let _place = one.enter("anna", 2).await.unwrap();
    let given_back = one.enter("anna", 2).await.unwrap();
    redis.kill9().await;
    assert!(matches!(two.enter("anna", 2).await, Err(Refused::Away(_))));
    let rate = Rate::new(1.0, 1).unwrap();
    assert!(matches!(two.limits.buckets.take("anna", rate, 1).await, Err(bucket::Refused::Away(_))));
    // What Redis could not be told is told later.
    drop(given_back);
    redis.restart().await;
    let _other = two.enters("anna", 2).await;
    assert!(two.is_full("anna", 2).await, "the first place still counts");
}

#[tokio::test]
async fn a_redis_that_stands_still_holds_up_nobody_for_long_and_keeps_no_ghost() {
    let Some((redis, [one, two])) = redis_with_hubs().await else { return };
    let _place = one.enter("anna", 2).await.unwrap();
    redis.pause();
    // It may yet read what was sent: that must not count then.
    for hub in [&one, &two] {
        assert!(matches!(hub.enter("anna", 2).await, Err(Refused::Away(_))));
    }
    redis.resume();
    let _other = two.enters("anna", 2).await;
    assert!(two.is_full("anna", 2).await);
    // The two that gave up have left nothing behind, and the first place was put back if its lease ended.
    wait::until(PATIENCE, || async { one.enter("anna", 3).await.is_ok() }).await;
    wait::until(PATIENCE, || async { one.is_full("anna", 2).await && two.is_full("anna", 2).await }).await;
}

#[tokio::test]
async fn after_redis_lost_everything_places_are_put_back() {
    let Some((redis, [one, two])) = redis_with_hubs().await else { return };
    let mut places = Vec::new();
    for n in 0..600 {
        places.push(one.enter(&format!("user{n}"), 1).await.unwrap());
    }
    redis.command(&["FLUSHALL"]).await.accepted();
    for n in (0..600).step_by(7) {
        wait::until(PATIENCE, || async { two.is_full(&format!("user{n}"), 1).await }).await;
    }
}

#[tokio::test]
async fn nothing_is_left_in_redis_of_what_is_over() {
    let Some((redis, [one, _two])) = redis_with_hubs().await else { return };
    let rate = Rate::new(100.0, 10).unwrap();
    one.limits.buckets.take("anna", rate, 10).await.unwrap();
    drop(one.enter("anna", 2).await.unwrap());
    for key in redis.command(&["KEYS", "*"]).await.items() {
        let left = redis.command(&["PTTL", key.text()]).await.integer();
        // Gone by now, or going.
        assert!(left == -2 || left > 0, "{}: {left}", key.text());
    }
    wait::until(PATIENCE, || async { redis.command(&["EXISTS", "bucket:anna"]).await.integer() == 0 }).await;
}

#[tokio::test]
async fn an_old_word_that_comes_late_does_no_harm() {
    let Some((redis, [one, two])) = redis_with_hubs().await else { return };
    let place = one.enter("anna", 1).await.unwrap();
    let key = redis.command(&["KEYS", "*counts:anna"]).await.items()[0].text().to_owned();
    let leases = key.replace("counts:anna", "leases");
    let fields = redis.command(&["HGETALL", &key]).await;
    let (instance, said) = (fields.items()[0].text().to_owned(), fields.items()[1].text().to_owned());
    drop(place);
    drop(two.enters("anna", 1).await);
    // The same word once more, as a wire that held it back would bring it.
    let (places, number) = said.split_once(' ').unwrap();
    let enter = include_str!("../../lua/enter.lua");
    let words = ["EVAL", enter, "2", &leases, &key, &instance, number, places, "9", "1000", "600000"];
    redis.command(&words).await.accepted();
    let tell = include_str!("../../lua/tell.lua");
    redis.command(&["EVAL", tell, "1", &key, &instance, "600000", number, places]).await.accepted();
    drop(two.enter("anna", 1).await.unwrap());
}
