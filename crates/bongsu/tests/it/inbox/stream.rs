//! The personal stream: live delivery, replay, and the number of devices that a person may have.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bongsu_testkit::sse::{Event, ResumingClient, Stream};
use bongsu_testkit::tokens::Claims;
use bongsu_testkit::{Api, Hub, Rng, tier, wait};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::exact::apis;
use super::{
    STREAM_PATH, WAIT_TIMEOUT, hub, is_entry_of, like_notification, list, notify, open, stream_request,
    unread,
};
use crate::BONGSU;

/// The ids and event ids of the next `count` notifications.
async fn next(stream: &mut Stream, count: usize) -> Vec<(String, Value)> {
    let mut told = Vec::new();
    for _ in 0..count {
        let event = stream.expect_event("notification", WAIT_TIMEOUT).await;
        told.push((event.own_id.clone().unwrap_or_default(), event.json()["eventId"].clone()));
    }
    told
}

#[tokio::test]
async fn saved_entries_arrive_live_with_their_sequence_in_every_language() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut korean = open(stream_request(&hub, 7)).await;
    let mut english = open(stream_request(&hub, 7).header("accept-language", "en")).await;
    let mut other = open(stream_request(&hub, 8)).await;
    notify(&api, &like_notification("e1", &[7])).await.expect(202);
    for (stream, words) in [(&mut korean, "좋아합니다"), (&mut english, "likes your post")] {
        let event = stream.expect_event("notification", WAIT_TIMEOUT).await;
        assert_eq!(event.own_id.as_deref(), Some("1"));
        let data = event.json();
        assert_eq!(
            (&data["id"], &data["eventId"], &data["type"]),
            (&json!(1), &json!("e1"), &json!("POST_LIKE"))
        );
        assert_eq!((&data["refId"], &data["actorId"]), (&json!(100), &json!(2)));
        assert!(data["message"].as_str().unwrap().contains(words), "{data}");
    }
    notify(&api, &like_notification("e2", &[8])).await.expect(202);
    assert_eq!(next(&mut other, 1).await, [("1".to_owned(), json!("e2"))]);
}

/// The unread count that an event carries, and its version.
fn unread_and_version(event: &Event) -> (u64, u64) {
    let data = event.json();
    let number = |name: &str| data[name].as_u64().unwrap_or_else(|| panic!("no {name}: {data}"));
    (number("unread"), number("version"))
}

#[tokio::test]
async fn every_notification_carries_the_unread_count_and_its_version() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut stream = open(stream_request(&hub, 7)).await;
    let mut told = Vec::new();
    for n in 1..=2 {
        notify(&api, &like_notification(&format!("e{n}"), &[7])).await.expect(202);
        told.push(unread_and_version(&stream.expect_event("notification", WAIT_TIMEOUT).await));
    }
    // Where Redis buffers read marks, the database row does not count this one yet.
    api.person(7).call("PATCH", "/api/notifications/1/read", "").await.expect(200);
    told.push(unread_and_version(&stream.expect_event("read", WAIT_TIMEOUT).await));
    notify(&api, &like_notification("e3", &[7])).await.expect(202);
    told.push(unread_and_version(&stream.expect_event("notification", WAIT_TIMEOUT).await));
    let (counts, versions): (Vec<u64>, Vec<u64>) = told.iter().copied().unzip();
    assert_eq!(counts, [1, 2, 1, 2]);
    assert!(versions.is_sorted_by(|before, after| before < after), "{versions:?}");
    assert_eq!(unread(&api, 7).await, counts[3]);
    let mut anew = open(stream_request(&hub, 7)).await;
    for _ in 2..=3 {
        let replayed = unread_and_version(&anew.expect_event("notification", WAIT_TIMEOUT).await);
        assert_eq!(replayed, told[3], "the current count");
    }
    let mut back = open(stream_request(&hub, 7).last_event_id("0")).await;
    for _ in 1..=3 {
        let replayed = unread_and_version(&back.expect_event("notification", WAIT_TIMEOUT).await);
        assert!(told.contains(&replayed), "{replayed:?} is none of {told:?}");
    }
}

/// Reads until the entry of the event `last`; returns the unread counts received so far by version, and the version
/// of that entry.
async fn counts_until(stream: &mut Stream, last: &str) -> (BTreeMap<u64, u64>, u64) {
    let mut counts = BTreeMap::new();
    loop {
        let event = stream.next_event(WAIT_TIMEOUT).await.expect("an open stream");
        if ["notification", "read"].contains(&event.event.as_str()) {
            let (unread, version) = unread_and_version(&event);
            let known = *counts.entry(version).or_insert(unread);
            assert_eq!(known, unread, "two counts of version {version}");
            if is_entry_of(&event, last) {
                return (counts, version);
            }
        }
    }
}

#[tokio::test]
async fn an_unread_version_has_the_same_count_on_every_device() {
    let hub = Hub::builder(BONGSU).records().env("WRITE_BEHIND_INTERVAL_SECS", 1).start().await;
    let apis = apis(&hub);
    let mut devices =
        join_all(std::iter::once(&hub).chain(hub.twin()).map(|hub| open(stream_request(hub, 7)))).await;
    let steps = tier::size(40, 1_000);
    let changing = async {
        let workers = (0..3).map(async |worker: u64| {
            let mut rng = Rng::new(worker);
            for step in 0..steps {
                let api = rng.pick(&apis);
                let (person, entry) = (api.person(7), rng.below(60) + 1);
                match rng.below(10) {
                    0..5 => drop(
                        notify(api, &like_notification(&format!("{worker}-{step}"), &[7])).await.expect(202),
                    ),
                    5..8 => drop(person.call("PATCH", &format!("/api/notifications/{entry}/read"), "").await),
                    8 => drop(person.call("DELETE", &format!("/api/notifications/{entry}"), "").await),
                    _ => drop(person.post("/api/notifications/read-all", json!({})).await.expect(200)),
                }
            }
        });
        join_all(workers).await;
        notify(&apis[0], &like_notification("the-end", &[7])).await.expect(202);
    };
    let hearing = join_all(devices.iter_mut().map(|device| counts_until(device, "the-end")));
    let ((), heard) = tokio::join!(changing, hearing);
    let truth = unread(&apis[0], 7).await;
    let mut all: BTreeMap<u64, u64> = BTreeMap::new();
    for (counts, last) in heard {
        assert_eq!(counts.last_key_value(), Some((&last, &truth)), "the newest count must be the stored one");
        for (version, unread) in counts {
            assert_eq!(*all.entry(version).or_insert(unread), unread, "two counts of version {version}");
        }
    }
}

#[tokio::test]
async fn the_language_is_that_of_the_url_else_of_the_header_else_the_default() {
    let hub = Hub::builder(BONGSU).records().env("DEFAULT_LANGUAGE", "en").start().await;
    let api = Api::new(&hub);
    notify(&api, &like_notification("e1", &[7])).await.expect(202);
    let (korean, english) = ("좋아합니다", "likes your post");
    let says = |event: &Value, words: &str| {
        assert!(event["message"].as_str().unwrap().contains(words), "{event}: not {words}");
    };
    for (query, header, words) in [
        ("", None, english),
        ("?lang=", Some("de, *"), english),
        ("", Some("ko"), korean),
        ("?lang=ko", None, korean),
        ("?lang=en", Some("ko"), english),
        ("?lang=ko", Some("en"), korean),
    ] {
        let request = Stream::request(&hub, &format!("{STREAM_PATH}{query}")).person(7);
        let request = header.map_or(request.clone(), |header| request.header("accept-language", header));
        says(&open(request).await.expect_event("notification", WAIT_TIMEOUT).await.json(), words);
    }
    says(&list(&api, 7, "").await["items"][0], english);
    let streams = [
        "/api/notifications/stream",
        "/api/v1/rooms/1/stream",
        "/api/v1/stream",
        "/api/v1/ws",
        "/events/1/stream",
    ];
    for path in streams {
        for lang in ["fr", "EN", "ko-KR"] {
            let refused = api.person(7).get(&format!("{path}?rooms=1&lang={lang}")).await;
            let refused = refused.expect_error(400, "COMMON400");
            assert_eq!(refused.message(), "lang: must be one of ko, en", "{path}");
        }
        let refused = api.anonymous().get(&format!("{path}?rooms=1&lang=ko")).await;
        assert!(!refused.message().is_ascii(), "{path}: {}", refused.message());
    }
}

#[tokio::test]
async fn a_new_stream_gets_the_newest_unread_and_a_resumed_one_the_entries_since() {
    let hub = hub().await;
    let api = Api::new(&hub);
    for n in 1..=15 {
        notify(&api, &like_notification(&format!("e{n}"), &[7])).await.expect(202);
    }
    api.person(7).call("PATCH", "/api/notifications/14/read", "").await.expect(200);
    let mut anew = open(stream_request(&hub, 7)).await;
    let shown: Vec<String> = next(&mut anew, 10).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(shown, ["5", "6", "7", "8", "9", "10", "11", "12", "13", "15"]);
    notify(&api, &like_notification("e16", &[7])).await.expect(202);
    assert_eq!(next(&mut anew, 1).await[0].0, "16");
    let mut back = open(stream_request(&hub, 7).last_event_id("13")).await;
    let missed: Vec<String> = next(&mut back, 3).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(missed, ["14", "15", "16"], "read entries are replayed, too");
    // A client without any event knows its position.
    let mut silent = open(stream_request(&hub, 9)).await;
    assert_eq!(silent.position(WAIT_TIMEOUT).await, "0");
    notify(&api, &like_notification("late", &[9])).await.expect(202);
    let mut later = open(stream_request(&hub, 9).last_event_id("0")).await;
    assert_eq!(next(&mut later, 1).await[0].0, "1");
}

#[tokio::test]
async fn malformed_unknown_and_trimmed_positions_are_reported() {
    let hub = hub().await;
    let api = Api::new(&hub);
    for n in 1..=120 {
        notify(&api, &like_notification(&format!("e{n}"), &[7])).await.expect(202);
    }
    for position in ["x", "-1", "1-0", "01", "99999999999999999999"] {
        let refused = stream_request(&hub, 7).last_event_id(position).open().await.err().expect(position);
        assert!(refused.expect_error(400, "COMMON400").text().contains("Last-Event-ID"));
    }
    let mut future = open(stream_request(&hub, 7).last_event_id("999")).await;
    let reset = future.expect_event("system.reset", WAIT_TIMEOUT).await;
    assert_eq!((reset.json()["reason"].clone(), reset.own_id.as_deref()), (json!("unknown"), Some("120")));
    let mut far = open(stream_request(&hub, 7).last_event_id("5")).await;
    let told = next(&mut far, 100).await;
    assert_eq!((told[0].0.as_str(), told[99].0.as_str()), ("6", "105"));
    let reset = far.expect_event("system.reset", WAIT_TIMEOUT).await;
    assert_eq!((reset.json()["reason"].clone(), reset.own_id.as_deref()), (json!("trimmed"), Some("120")));
    notify(&api, &like_notification("next", &[7])).await.expect(202);
    assert_eq!(next(&mut far, 1).await[0].0, "121");
    assert_eq!(next(&mut future, 1).await[0].0, "121");
}

#[tokio::test]
async fn a_read_mark_of_one_device_reaches_all_devices() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut stream = open(stream_request(&hub, 7)).await;
    for n in 1..=3 {
        notify(&api, &like_notification(&format!("e{n}"), &[7])).await.expect(202);
    }
    next(&mut stream, 3).await;
    let person = api.person(7);
    person.call("PATCH", "/api/notifications/2/read", "").await.expect(200);
    let first = stream.expect_event("read", WAIT_TIMEOUT).await;
    assert_eq!((first.json()["ids"].clone(), first.json()["unread"].clone()), (json!([2]), json!(2)));
    assert_eq!(first.own_id, None, "a read event has no id");
    person.call("PATCH", "/api/notifications/2/read", "").await.expect(200);
    person.call("DELETE", "/api/notifications/3", "").await.expect(200);
    let second = stream.expect_event("read", WAIT_TIMEOUT).await.json();
    assert_eq!((&second["ids"], &second["unread"]), (&json!([3]), &json!(1)), "one event for each change");
    person.post("/api/notifications/read-all", json!({})).await.expect(200);
    let third = stream.expect_event("read", WAIT_TIMEOUT).await.json();
    assert_eq!((&third["ids"], &third["unread"]), (&json!([1]), &json!(0)));
    let versions = [&first.json()["version"], &second["version"], &third["version"]].map(Value::as_u64);
    assert!(versions[0] < versions[1] && versions[1] < versions[2], "{versions:?}");
}

#[tokio::test]
async fn muted_notifications_are_stored_and_counted_but_not_sent() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let person = api.person(7);
    let settings = async |body: &'static str| {
        person.call("PUT", "/api/notifications/settings", body).await.expect(200);
    };
    let mut stream = open(stream_request(&hub, 7)).await;
    settings(r#"{"types":{"POST_LIKE":false}}"#).await;
    notify(&api, &like_notification("off", &[7])).await.expect(202);
    let mut follow = like_notification("on", &[7]);
    follow["type"] = json!("FOLLOW");
    notify(&api, &follow).await.expect(202);
    assert_eq!(next(&mut stream, 1).await, [("2".to_owned(), json!("on"))]);
    assert_eq!(unread(&api, 7).await, 2);
    let mut back = open(stream_request(&hub, 7).last_event_id("0")).await;
    assert_eq!(next(&mut back, 1).await, [("2".to_owned(), json!("on"))], "it must not be replayed");
    settings(r#"{"enabled":false}"#).await;
    follow["eventId"] = json!("all-off");
    notify(&api, &follow).await.expect(202);
    settings(r#"{"enabled":true}"#).await;
    follow["eventId"] = json!("on-again");
    notify(&api, &follow).await.expect(202);
    assert_eq!(next(&mut stream, 1).await, [("4".to_owned(), json!("on-again"))]);
    assert_eq!(unread(&api, 7).await, 4);
}

#[tokio::test]
async fn a_fourth_device_replaces_the_oldest_which_does_not_reconnect() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut oldest = ResumingClient::new(stream_request(&hub, 7));
    notify(&api, &like_notification("e1", &[7])).await.expect(202);
    assert_eq!(oldest.next_event(WAIT_TIMEOUT).await.unwrap().event, "notification");
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(open(stream_request(&hub, 7)).await);
    }
    assert_eq!(oldest.next_event(WAIT_TIMEOUT).await.unwrap().event, "replaced");
    let close = oldest.next_event(WAIT_TIMEOUT).await.unwrap();
    assert_eq!((close.event.as_str(), close.json()["code"].clone()), ("system.close", json!(3500)));
    assert_eq!(close.own_id.as_deref(), Some("end.3500.1"));
    assert_eq!(oldest.next_event(WAIT_TIMEOUT).await, None);
    assert_eq!(oldest.stopped_by().unwrap().status, 204, "it must stay away after 204");
    notify(&api, &like_notification("e2", &[7])).await.expect(202);
    for stream in &mut others {
        stream.find_event("the entry of e2", WAIT_TIMEOUT, |event| is_entry_of(event, "e2")).await;
    }
}

#[tokio::test]
async fn a_socket_sends_pings_and_closes_at_its_maximum_age_or_token_expiry() {
    let hub = Hub::builder(BONGSU)
        .records()
        .movable_clock()
        .env("MEMBER_STREAM_PING_SECS", 1)
        .env("MEMBER_STREAM_LIFETIME_SECS", 600)
        .start()
        .await;
    let mut stream = open(stream_request(&hub, 7)).await;
    assert_eq!(stream.next_event(WAIT_TIMEOUT).await.unwrap().event, "ping");
    hub.move_clock(Duration::from_secs(600)).await;
    let close =
        stream.find_event("something else than pings", WAIT_TIMEOUT, |event| event.event != "ping").await;
    assert_eq!((close.event.as_str(), close.json()["code"].clone()), ("system.close", json!(3001)));
    let token = Claims::new(7).expires_in(1_000).sign();
    let mut short = open(Stream::request(&hub, STREAM_PATH).bearer(&token)).await;
    hub.move_clock(Duration::from_secs(400)).await;
    let close =
        short.find_event("the end of the token", WAIT_TIMEOUT, |event| event.event == "system.close").await;
    assert_eq!(close.json()["code"], 3502);
}

#[tokio::test]
async fn saved_notifications_are_delivered_although_the_caller_disconnected() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut stream = open(stream_request(&hub, 7)).await;
    let (mut rng, mut left) = (Rng::for_test("whoever_asked_went_away"), 0);
    // The client waits at most as long as the fastest request so far.
    let (mut usual, mut n) = (u64::MAX, 0);
    while left < tier::size(6, 100) {
        n += 1;
        assert!(n < 10_000, "only {left} of {n} requests ended without an answer");
        let event = format!("e{n}");
        // The first requests measure how long a request takes.
        let patience = if n > 3 { Duration::from_micros(rng.range(usual / 4..usual)) } else { WAIT_TIMEOUT };
        let begun = Instant::now();
        match tokio::time::timeout(patience, notify(&api, &like_notification(&event, &[7]))).await {
            Ok(answer) => {
                answer.expect(202);
                usual = usual.min(u64::try_from(begun.elapsed().as_micros()).unwrap());
            }
            Err(_) => left += 1,
        }
        let saved = async || {
            let listed = api.person(7).get("/api/notifications?limit=1").await.expect(200);
            listed.result()["items"][0]["eventId"] == event
        };
        // The request may never have arrived. If it did, its entry is sent, even if no event follows it.
        if wait::holds_within(Duration::from_millis(500), saved).await {
            // Only entries of requests that took longer than the client waited may come first.
            let what = format!("the entry of {event}");
            stream.find_event(&what, WAIT_TIMEOUT, |told| is_entry_of(told, &event)).await;
        }
    }
}

#[tokio::test]
async fn a_slow_device_receives_all_events_late() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let slow = open(stream_request(&hub, 7).receive_buffer(4 << 10)).await.stop_reading();
    let count = 400;
    for n in 1..=count {
        let mut notice = like_notification(&format!("e{n}"), &[7]);
        notice["payload"]["text"] = "x".repeat(6_000).into();
        notify(&api, &notice).await.expect(202);
    }
    let mut slow = slow.resume();
    let told: Vec<String> = next(&mut slow, count).await.into_iter().map(|(id, _)| id).collect();
    assert_eq!(
        told,
        (1..=count).map(|n| n.to_string()).collect::<Vec<_>>(),
        "a slow device must receive every entry"
    );
}
