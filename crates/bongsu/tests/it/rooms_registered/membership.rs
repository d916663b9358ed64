//! Publishing caches the members of rooms. A change that one hub has acknowledged applies to the next event, also at
//! another hub, and publishing reads no records while the members stay the same.

use std::time::{Duration, Instant};

use bongsu_testkit::{Api, Hub, wait};
use serde_json::{Value, json};

use super::recipients::numbers;
use super::{WAIT_TIMEOUT, delete, put};
use crate::BONGSU;

const MEMBERS: [u64; 4] = [1, 2, 3, 4];
/// A member during the whole test, who gets every event.
const WITNESS: u64 = 9;

/// The hub, and an API client for each process. On the embedded engine both clients use the same hub.
async fn start(mode: &str) -> (Hub, [Api; 2]) {
    let hub = Hub::builder(BONGSU).records().env("ROOMS_MODE", mode).start().await;
    let apis = [Api::at(&hub.url("")), Api::new(&hub)];
    (hub, apis)
}

fn event(n: usize) -> Value {
    json!({"roomId": 42, "eventType": "comment.created", "data": {"n": n}})
}

/// How often the hubs have run a query.
async fn count(hub: &Hub, query: &str) -> f64 {
    hub.metrics().await.get("sql_query_duration_seconds_count", &[("query", query)])
}

#[tokio::test]
async fn the_next_event_at_any_hub_is_for_the_members_after_a_change() {
    let (_hub, apis) = start("registered").await;
    put(&apis[0], "/api/v1/rooms/42").await;
    put(&apis[0], &format!("/api/v1/rooms/42/members/{WITNESS}")).await;
    let (mut expected, mut members, mut n) = (vec![Vec::new(); MEMBERS.len()], [false; MEMBERS.len()], 0);
    for round in 0..24 {
        // Both hubs have the members in their caches.
        let (changing, others) = (&apis[round % 2], [&apis[(round + 1) % 2], &apis[round % 2]]);
        let at = round % MEMBERS.len();
        let path = format!("/api/v1/rooms/42/members/{}", MEMBERS[at]);
        if members[at] {
            delete(changing, &path).await;
        } else {
            put(changing, &path).await;
        }
        members[at] = !members[at];
        for (api, is_named) in [(others[0], false), (others[1], true)] {
            let mut event = event(n);
            if is_named {
                event["recipients"] = json!([1, 2, 3, 4, WITNESS]);
            }
            api.publish(event).await.expect(200);
            (0..MEMBERS.len()).filter(|at| members[*at]).for_each(|at| expected[at].push(n));
            n += 1;
        }
    }
    wait::until(WAIT_TIMEOUT, async || numbers(&apis[0], WITNESS).await.len() == n).await;
    for (member, expected) in MEMBERS.iter().zip(expected) {
        assert_eq!(numbers(&apis[0], *member).await, expected, "events of member {member}");
    }
    delete(&apis[0], "/api/v1/rooms/42").await;
    apis[1].publish(event(n)).await.expect_error(404, "ROOM4041");
    put(&apis[1], "/api/v1/rooms/42").await;
    apis[0].publish(event(n)).await.expect(200);
}

#[tokio::test]
async fn the_first_event_after_the_registration_of_a_room_reaches_its_members() {
    let (hub, apis) = start("open").await;
    // Both hubs have cached that the room is not registered, so that events run no query.
    let is_cached = async || {
        let before = count(&hub, "registered").await;
        for _ in 0..5 {
            for api in &apis {
                api.publish(event(0)).await.expect(200);
            }
        }
        count(&hub, "registered").await == before
    };
    wait::until(WAIT_TIMEOUT, async || is_cached().await && is_cached().await).await;
    let started = Instant::now();
    put(&apis[0], "/api/v1/rooms/42").await;
    let took = started.elapsed();
    assert!(took < Duration::from_secs(2), "registering the first room took {took:?}");
    put(&apis[0], "/api/v1/rooms/42/members/1").await;
    for n in 0..4 {
        apis[(n + 1) % 2].publish(event(n)).await.expect(200);
    }
    wait::until(WAIT_TIMEOUT, async || numbers(&apis[0], 1).await == [0, 1, 2, 3]).await;
}

#[tokio::test]
async fn publishing_reads_no_members_while_they_stay_the_same() {
    let (hub, apis) = start("registered").await;
    put(&apis[0], "/api/v1/rooms/42").await;
    put(&apis[0], &format!("/api/v1/rooms/42/members/{WITNESS}")).await;
    let before = count(&hub, "members").await;
    for n in 0..200 {
        let mut event = event(n);
        if n % 3 > 0 {
            event["recipients"] = json!(if n % 3 == 1 { vec![] } else { vec![WITNESS] });
        }
        apis[n % 2].publish(event).await.expect(200);
    }
    let reads = count(&hub, "members").await - before;
    // Once per hub, and once more per hub if the test takes half a minute.
    assert!(reads <= 4.0, "members were read {reads} times for 200 events");
}
