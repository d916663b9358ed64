//! Inbox entries of room events are usable at once: they can be marked and deleted before they are made, and are made
//! within a moment, whichever hub took the event and whichever makes the entries.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bongsu_testkit::{Api, Rng, engine, proof, tier, wait};
use serde_json::{Value, json};

use super::exact::{all, apis};
use super::{INBOX_PATH, WAIT_TIMEOUT, hub, ids, list, unread};

const READER: u64 = 7;
const PASSIVE_RECIPIENT: u64 = 8;
const DELETER: u64 = 9;
const NOT_A_RECIPIENT: u64 = 10;

fn event(room: &str, n: usize, recipients: &[u64]) -> Value {
    json!({"roomId": room, "eventType": "comment.created", "data": {"n": n}, "recipients": recipients})
}

/// The inbox ids of the events of a batch.
fn entry_ids(room: &str, answer: &Value) -> Vec<String> {
    let results = answer["results"].as_array().unwrap();
    results.iter().map(|result| format!("{room}:{}", result["streamId"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn an_event_can_be_marked_and_deleted_before_its_entry_was_derived() {
    tier::counts_events();
    let name = "an_event_can_be_marked_and_deleted_before_its_entry_was_derived";
    let hub = hub().await;
    let apis = apis(&hub);
    let (rounds, batch, each) = (tier::size(5, 50), 200, 15);
    let (mut early, mut marked, mut deleted) = (0, Vec::new(), 0);
    for round in 0..rounds {
        let room = format!("r{}", round % 2);
        let (one, other) = (&apis[round % apis.len()], &apis[(round + 1) % apis.len()]);
        let events: Vec<Value> =
            (0..batch).map(|n| event(&room, n, &[READER, PASSIVE_RECIPIENT, DELETER])).collect();
        let answer = one.publish_batch(&events).await.expect(200);
        // The newest events first, because the hub makes their entries last.
        let names = entry_ids(&room, answer.result());
        for (n, id) in names.iter().rev().take(each).enumerate() {
            let door = if n % 2 == 0 { INBOX_PATH } else { "/api/v1/notifications" };
            let read = other.person(READER).call("PATCH", &format!("{door}/{id}/read"), "").await;
            marked.push((id.clone(), read.expect(200).result()["readAt"].clone()));
            let path = format!("{INBOX_PATH}/{id}");
            one.person(NOT_A_RECIPIENT)
                .call("PATCH", &format!("{path}/read"), "")
                .await
                .expect_error(404, "COMMON404");
            one.person(NOT_A_RECIPIENT).call("DELETE", &path, "").await.expect_error(404, "COMMON404");
            one.person(DELETER).call("DELETE", &path, "").await.expect(200);
            other.person(DELETER).call("DELETE", &path, "").await.expect_error(404, "COMMON404");
            deleted += 1;
            // If a recipient who touched nothing does not have all entries yet, this entry was not made yet either.
            early += usize::from(unread(one, PASSIVE_RECIPIENT).await < ((round + 1) * batch) as u64);
        }
    }
    let total = rounds * batch;
    wait::until(WAIT_TIMEOUT, async || unread(&apis[0], PASSIVE_RECIPIENT).await == total as u64).await;
    for api in &apis {
        let (items, shown) = all(api, READER, "").await;
        let left = (total - marked.len()) as u64;
        assert_eq!((items.len(), shown, unread(api, READER).await), (total, left, left));
        let events: BTreeSet<&str> = items.iter().map(|item| item["eventId"].as_str().unwrap()).collect();
        assert_eq!(events.len(), total, "an event has two entries");
        for (id, read_at) in &marked {
            let item = items.iter().find(|item| item["eventId"] == id.as_str()).unwrap();
            assert_eq!(&item["readAt"], read_at, "{id}");
        }
        assert_eq!(
            (all(api, DELETER, "").await.0.len(), unread(api, NOT_A_RECIPIENT).await),
            (total - deleted, 0)
        );
        assert_eq!(unread(api, DELETER).await, (total - deleted) as u64);
        assert_eq!(ids(&list(api, NOT_A_RECIPIENT, "").await), Vec::<u64>::new());
    }
    assert!(early > 0, "no entry was marked before it was made");
    let facts = json!({"engine": engine().name(), "marked": marked.len(), "beforeItWasDerived": early});
    proof::record("inbox", name, facts);
}

#[tokio::test]
async fn an_id_without_a_pending_event_is_not_found() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let published = api.publish(event("a", 0, &[PASSIVE_RECIPIENT])).await.expect(200);
    let id = published.result()["streamId"].as_str().unwrap().to_owned();
    let far = format!("a:{}-{}", u64::MAX, u64::MAX);
    for entry in [&format!("b:{id}"), "a:1-0", "a:0-0", &far, "a:b", "a:b:1-0", ":1-0", &id] {
        for (method, path) in
            [("PATCH", format!("{INBOX_PATH}/{entry}/read")), ("DELETE", format!("{INBOX_PATH}/{entry}"))]
        {
            let answer = api.person(PASSIVE_RECIPIENT).call(method, &path, "").await;
            assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn entries_of_an_active_room_are_visible_soon_on_every_hub() {
    let name = "entries_of_an_active_room_are_visible_soon_on_every_hub";
    let mut rng = Rng::for_test(name);
    let hub = hub().await;
    let apis = apis(&hub);
    let mut took = Vec::new();
    for n in 0..tier::size(40, 400) {
        let (one, other) = (&apis[n % apis.len()], &apis[(n / 2) % apis.len()]);
        let published = Instant::now();
        one.publish(event("active", n, &[READER])).await.expect(200);
        wait::until(WAIT_TIMEOUT, async || unread(other, READER).await > n as u64).await;
        took.push(published.elapsed());
        // The publisher's own pace, random so that it hits every phase of the periodic loops.
        tokio::time::sleep(Duration::from_millis(rng.below(150))).await;
    }
    took.sort_unstable();
    let (median, most) = (took[took.len() / 2], took[took.len() - 1]);
    let ms = |took: Duration| u64::try_from(took.as_millis()).unwrap();
    proof::record(
        "inbox",
        name,
        json!({"engine": engine().name(), "hubs": apis.len(), "events": took.len(), "medianMs": ms(median),
            "p90Ms": ms(took[took.len() * 9 / 10]), "mostMs": ms(most)}),
    );
}
