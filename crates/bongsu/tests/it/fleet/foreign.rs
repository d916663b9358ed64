//! Messages that other programs PUBLISH directly to `room:42`: the hub passes valid ones on to open streams without
//! an id; malformed ones change nothing.

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::tokens::token;
use bongsu_testkit::{Browser, Hub, tier, wait};
use serde_json::json;

use super::{Fleet, WAIT_TIMEOUT};

const CHANNEL: &str = "room:42";
const STREAM_PATH: &str = "/api/v1/rooms/42/stream";
const VALID_MESSAGE: &str = r#"{"eventType":"comment.created","roomId":"42","data":{"content":"안녕"},"timestamp":"2026-02-16T10:30:00Z"}"#;

#[tokio::test]
async fn messages_of_another_program_reach_streams_live_without_an_id() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let api = &fleet.apis()[0];
    let before = api.publish_to(42, "a.b", json!({"n": 1})).await;
    let mut streams = open_on_both(&fleet).await;
    let heard = || redis.cli(&["PUBSUB", "NUMSUB", CHANNEL]);
    wait::until(WAIT_TIMEOUT, async || heard().ends_with('2')).await;
    redis.cli(&["PUBLISH", CHANNEL, VALID_MESSAGE]);
    let after = api.publish_to(42, "a.b", json!({"n": 2})).await;
    for stream in &mut streams {
        let event = stream.expect_event("comment.created", WAIT_TIMEOUT).await;
        assert_eq!((event.own_id, &event.id), (None, &before), "the position must not move");
        let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(data["content"], "안녕");
        assert_ne!(data["timestamp"], "2026-02-16T10:30:00Z", "the hub must set the timestamp");
        assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.own_id.as_ref(), Some(&after));
    }
    // No log holds the message of the other program.
    assert_eq!(api.stored_ids(42).await, [before.clone(), after.clone()]);
    let request = Stream::request(&fleet.hubs[1], STREAM_PATH).person(7).last_event_id(&before);
    let mut back = request.open().await.expect("a stream");
    assert_eq!(back.expect_event("a.b", WAIT_TIMEOUT).await.own_id, Some(after));
}

#[tokio::test]
async fn malformed_and_forged_messages_change_nothing_and_are_counted() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let api = &fleet.apis()[0];
    let mut streams = open_on_both(&fleet).await;
    let mut ids = vec![api.publish_to(42, "a.b", json!({"n": 0})).await];
    let long = format!(r#"{{"eventType":"a.b","roomId":42,"data":{{"text":"{}"}}}}"#, "x".repeat(100 << 10));
    let wrong: Vec<Vec<u8>> = [
        "",
        "not JSON",
        "[]",
        "{}",
        r#"{"eventType":"a.b","roomId":42}"#,
        r#"{"eventType":"a.b","roomId":42,"data":"text"}"#,
        r#"{"eventType":"No Type","roomId":42,"data":{}}"#,
        r#"{"eventType":"system.close","roomId":42,"data":{"code":3500}}"#,
        r#"{"eventType":"system.reset","roomId":42,"data":{"reason":"unknown"}}"#,
        r#"{"eventType":"presence.update","roomId":42,"data":{}}"#,
        r#"{"eventType":"a.b","roomId":43,"data":{}}"#,
        "{\"eventType\":\"a.b\\nid: 9-9\",\"roomId\":42,\"data\":{}}",
        long.as_str(),
    ]
    .map(|text| text.as_bytes().to_vec())
    .into_iter()
    .chain([b"{\"eventType\":\"a.b\",\"data\":{\"text\":\"\xFF\"}}".to_vec()])
    .collect();
    for (n, message) in wrong.iter().enumerate() {
        redis.command(&[b"PUBLISH", CHANNEL.as_bytes(), message.as_slice()]).await.expect_ok();
        // Real events continue between the malformed messages.
        ids.push(api.publish_to(42, "a.b", json!({"n": n + 1})).await);
    }
    // Forged messages on the hubs' own bus channel hide no real event either.
    for forged in ["nonsense", "1 99999999999999-0 0-0 7 1 a.b \n{}", "2 1-0 0-0 1 1 a.b \n{}"] {
        redis.command(&["SPUBLISH", "{room:events:42}:bus", forged]).await.expect_ok();
        ids.push(api.publish_to(42, "a.b", json!({"forged": forged})).await);
    }
    for stream in &mut streams {
        for id in &ids {
            assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.own_id.as_ref(), Some(id));
        }
    }
    for hub in &fleet.hubs {
        let counted = wait::value_within(WAIT_TIMEOUT, || async {
            let counted = malformed(hub).await;
            (counted >= wrong.len() + 2).then_some(counted)
        });
        assert_eq!(counted.await, Some(wrong.len() + 2), "messages counted as malformed");
    }
    assert_eq!(api.stored_ids(42).await, ids);
}

#[tokio::test]
async fn a_stream_id_in_a_message_only_makes_the_hub_read_the_log() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let api = &fleet.apis()[0];
    let mut streams = open_on_both(&fleet).await;
    let mut ids = vec![api.publish_to(42, "a.b", json!({})).await];
    for id in ["99999999999999-0", "1-1", "nonsense"] {
        let forged = json!({"eventType": "a.forged", "roomId": 42, "data": {}, "streamId": id}).to_string();
        redis.cli(&["PUBLISH", CHANNEL, &forged]);
        ids.push(api.publish_to(42, "a.b", json!({})).await);
    }
    // An entry that another program stored without a message on the bus is found when such a hint arrives.
    let id = format!("{}-7", number(&ids) + 1);
    let fields =
        ["type", "a.stored", "payload", "{\"by\":\"another\"}", "publisher_id", "", "timestamp", "1"];
    let words: Vec<&str> = ["XADD", "room:events:42", &id].into_iter().chain(fields).collect();
    redis.command(&words).await.expect_ok();
    let hint = json!({"eventType": "a.stored", "roomId": 42, "data": {}, "streamId": id}).to_string();
    redis.cli(&["PUBLISH", CHANNEL, &hint]);
    for stream in &mut streams {
        for id in &ids {
            assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.own_id.as_ref(), Some(id));
        }
        let stored = stream.expect_event("a.stored", WAIT_TIMEOUT).await;
        assert_eq!((stored.own_id.as_ref(), &stored.json()["by"]), (Some(&id), &json!("another")));
    }
    for hub in &fleet.hubs {
        assert_eq!(malformed(hub).await, 0);
    }
}

#[tokio::test]
async fn pages_full_of_entries_of_other_programs_delay_nobody() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let api = &fleet.apis()[0];
    let mut ids = vec![api.publish_to(42, "a.b", json!({"n": 1})).await];
    // Each entry is larger than one read of a stream or a page, and none is an event.
    let payload = "x".repeat(50_000);
    for _ in 0..3 {
        redis.command(&["XADD", "room:events:42", "*", "payload", &payload]).await.expect_ok();
    }
    ids.push(api.publish_to(42, "a.b", json!({"n": 2})).await);
    assert_eq!(api.stored_ids(42).await, ids);
    let request = Stream::request(&fleet.hubs[0], STREAM_PATH).person(7).last_event_id("0-0");
    let mut stream = request.open().await.expect("a stream");
    for id in &ids {
        assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.own_id.as_ref(), Some(id));
    }
}

#[tokio::test]
async fn a_log_entry_of_another_program_reaches_streams_and_requests() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let mut streams = open_on_both(&fleet).await;
    let fields = [
        ["type", "a.stored"],
        ["payload", "{ \"by\": \"another\" }"],
        ["publisher_id", "1"],
        ["timestamp", "2026-02-16T19:30:00+09:00"],
    ];
    let words: Vec<&str> = ["XADD", "room:events:42", "*"].into_iter().chain(fields.concat()).collect();
    let id = redis.command(&words).await.text().to_owned();
    let (data, time) = (json!({"by": "another"}), "2026-02-16T10:30:00.000Z");
    for stream in &mut streams {
        let event = stream.expect_event("a.stored", WAIT_TIMEOUT).await;
        let told = json!({"by": "another", "timestamp": time});
        assert_eq!((event.own_id.as_ref(), event.json()), (Some(&id), told));
    }
    let answer = fleet.apis()[1].person(1).get("/api/v1/rooms/42/events?since=0-0").await.expect(200);
    let stored =
        json!([{"id": id, "eventType": "a.stored", "data": data, "publisherId": 1, "timestamp": time}]);
    assert_eq!(answer.result()["events"], stored);
}

#[tokio::test]
async fn an_event_source_receives_events_of_other_programs_and_keeps_its_position() {
    if !tier::needs_engine("redis") {
        return;
    }
    let Some(browser) = Browser::start().await else { return };
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let [one, other] = &fleet.hubs;
    browser.goto(&one.url("/docs")).await;
    browser.set_cookie("access_token", &token(7)).await;
    let follow = format!(
        "(() => {{
            window.seen = [];
            const source = new EventSource('{STREAM_PATH}');
            source.onopen = () => window.opened = (window.opened || 0) + 1;
            for (const type of ['comment.created', 'a.b'])
                source.addEventListener(type, e => seen.push([type, e.lastEventId, JSON.parse(e.data).content]));
        }})()"
    );
    browser.eval(&follow).await;
    browser.wait_for("window.opened === 1", WAIT_TIMEOUT).await;
    // One event from the other hub, one message of another program, and one more event from the other hub.
    let publish = async |content: &str| {
        bongsu_testkit::Api::new(other).publish_to(42, "a.b", json!({ "content": content })).await
    };
    let first = publish("first").await;
    browser.wait_for("seen.length === 1", WAIT_TIMEOUT).await;
    redis.cli(&["PUBLISH", CHANNEL, VALID_MESSAGE]);
    browser.wait_for("seen.length === 2", WAIT_TIMEOUT).await;
    let last = publish("last").await;
    browser.wait_for("seen.length === 3", WAIT_TIMEOUT).await;
    let seen = json!([["a.b", first, "first"], ["comment.created", first, "안녕"], ["a.b", last, "last"]]);
    assert_eq!(browser.eval("seen").await, seen);

    // The EventSource reconnects, receives the event that was stored meanwhile, and misses the message of the
    // other program, which no log holds.
    one.kill9().await;
    redis.cli(&["PUBLISH", CHANNEL, VALID_MESSAGE]);
    let meanwhile = publish("meanwhile").await;
    one.restart().await;
    browser.wait_for("seen.length === 4", WAIT_TIMEOUT).await;
    assert_eq!(browser.eval("seen[3]").await, json!(["a.b", meanwhile, "meanwhile"]));
    assert_eq!(browser.eval("window.opened > 1").await, true, "it did not reconnect");
}

async fn open_on_both(fleet: &Fleet) -> Vec<Stream> {
    let mut streams = Vec::new();
    for hub in &fleet.hubs {
        streams.push(Stream::request(hub, STREAM_PATH).person(7).open().await.expect("a stream"));
    }
    streams
}

async fn malformed(hub: &Hub) -> usize {
    hub.metrics().await.get("bus_malformed_total", &[]) as usize
}

fn number(ids: &[String]) -> u64 {
    super::load::number(ids.last().expect("an id")).0
}
