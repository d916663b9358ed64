//! Pages of events after a position, without a stream.

mod unread;

use bongsu_testkit::{Answer, Api, Hub};
use serde_json::{Value, json};

use crate::BONGSU;

const EVENT_TYPE: &str = "comment.created";

async fn hub_with(count: u64) -> (Hub, Api) {
    let hub = Hub::builder(BONGSU).start().await;
    let service = Api::new(&hub);
    for from in (0..count).step_by(500) {
        let numbers = from + 1..=(from + 500).min(count);
        let events: Vec<Value> =
            numbers.map(|n| json!({"roomId": "a", "eventType": EVENT_TYPE, "data": {"n": n}})).collect();
        service.publish_batch(&events).await.expect(200);
    }
    let person = service.person(7).with_header("accept-language", "en");
    (hub, person)
}

async fn get_page(person: &Api, query: &str) -> Answer {
    person.get(&format!("/api/v1/rooms/a/events?{query}")).await
}

fn numbers(page: &Answer) -> Vec<u64> {
    let events = page.result()["events"].as_array().cloned().unwrap_or_default();
    events.iter().filter_map(|event| event["data"]["n"].as_u64()).collect()
}

/// Requests all pages; returns the numbers of the events, and how many events each page has.
async fn all_pages(person: &Api, count: &str) -> (Vec<u64>, Vec<usize>) {
    let (mut since, mut all, mut sizes) = ("0-0".to_owned(), Vec::new(), Vec::new());
    loop {
        let page = get_page(person, &format!("since={since}{count}")).await.expect(200);
        all.extend(numbers(&page));
        sizes.push(page.result()["events"].as_array().map_or(0, Vec::len));
        page.result()["lastId"].as_str().unwrap_or_default().clone_into(&mut since);
        if page.result()["hasMore"] != true {
            return (all, sizes);
        }
        assert!(sizes.len() < 1_000, "pages without end");
    }
}

#[tokio::test]
async fn an_event_has_its_id_type_data_publisher_and_time() {
    let (hub, person) = hub_with(0).await;
    let service = Api::new(&hub);
    let publish = async |publisher: Value| {
        let event = json!({"roomId": "a", "eventType": EVENT_TYPE, "data": {"text": "좋아요", "timestamp": 1}, "publisherId": publisher});
        service.publish(event).await.expect(200).result()["streamId"].clone()
    };
    let publishers =
        [json!(42), json!("42"), json!("anna"), json!("007"), json!("9007199254740992"), Value::Null];
    let told = [json!(42), json!(42), json!("anna"), json!("007"), json!("9007199254740992"), Value::Null];
    let mut ids = Vec::new();
    for publisher in publishers {
        ids.push(publish(publisher).await);
    }
    let page = get_page(&person, "since=0-0").await.expect(200);
    assert_eq!((&page.result()["lastId"], &page.result()["hasMore"]), (&ids[5], &json!(false)));
    let result = page.result().as_object().unwrap();
    assert!(
        !result.contains_key("trimmed")
            && !result.contains_key("oldestId")
            && !result.contains_key("unknown")
    );
    for ((event, id), publisher) in result["events"].as_array().unwrap().iter().zip(&ids).zip(&told) {
        let members: Vec<_> = event.as_object().unwrap().keys().collect();
        assert_eq!(members, ["data", "eventType", "id", "publisherId", "timestamp"]);
        assert_eq!(
            (&event["id"], &event["eventType"], &event["publisherId"]),
            (id, &json!(EVENT_TYPE), publisher)
        );
        assert_eq!(event["data"]["text"], "좋아요");
        assert!(event["timestamp"].as_str().unwrap().ends_with('Z'));
    }
    // The stream sends the same timestamps.
    let request = bongsu_testkit::sse::Stream::request(&hub, "/api/v1/rooms/a/stream").person(7);
    let mut stream = request.last_event_id("0-0").open().await.ok().unwrap();
    let seen = stream.expect_event(EVENT_TYPE, std::time::Duration::from_secs(20)).await;
    assert_eq!(seen.json()["timestamp"], result["events"][0]["timestamp"]);
}

#[tokio::test]
async fn consecutive_pages_have_no_gap() {
    let (_hub, person) = hub_with(1_050).await;
    let all: Vec<u64> = (1..=1_050).collect();
    for (count, first, pages) in
        [("", 100, 11), ("&count=500", 500, 3), ("&count=499", 499, 3), ("&count=350", 350, 3)]
    {
        let (seen, sizes) = all_pages(&person, count).await;
        assert_eq!((seen == all, sizes[0], sizes.len()), (true, first, pages), "{count}: {sizes:?}");
    }
    let one = get_page(&person, "since=0-0&count=1").await.expect(200);
    assert_eq!((numbers(&one), &one.result()["hasMore"]), (vec![1], &json!(true)));
    assert_eq!(one.result()["lastId"], one.result()["events"][0]["id"]);
}

#[tokio::test]
async fn a_page_at_the_end_is_empty_and_keeps_the_position() {
    let (_hub, person) = hub_with(3).await;
    let last =
        get_page(&person, "since=0-0").await.expect(200).result()["lastId"].as_str().unwrap().to_owned();
    let page = get_page(&person, &format!("since={last}")).await.expect(200);
    assert_eq!(page.result(), &json!({"events": [], "lastId": last, "hasMore": false}));
    let empty = person.get("/api/v1/rooms/never-used/events?since=0-0").await.expect(200);
    assert_eq!(empty.result(), &json!({"events": [], "lastId": "0-0", "hasMore": false}));
}

#[tokio::test]
async fn missing_and_out_of_range_fields_are_named() {
    let (_hub, person) = hub_with(1).await;
    let refused = async |query: &str, field: &str| {
        let answer = get_page(&person, query).await.expect_error(400, "COMMON400");
        assert!(answer.message().starts_with(&format!("{field}: ")), "{query}: {}", answer.message());
    };
    for query in ["", "count=5", "since=", "Since=0-0"] {
        refused(query, "since").await;
    }
    for since in [
        "x",
        "0",
        "1-",
        "-1",
        "01-0",
        "1-0-0",
        "%200-0",
        "18446744073709551616-0",
        "end.3502.1-0",
        "%ff",
        "%0a",
    ] {
        refused(&format!("since={since}"), "since").await;
    }
    for count in ["0", "501", "-1", "1.5", "x", "", "%2B5", "99999999999999999999", "%ff", "1e2"] {
        refused(&format!("since=0-0&count={count}"), "count").await;
    }
    for room in ["a%20b", "%ff", "%00", "a%2Fb", "%0a", &"x".repeat(129)] {
        let answer = person.get(&format!("/api/v1/rooms/{room}/events?since=0-0")).await;
        let answer = answer.expect_error(400, "COMMON400");
        assert!(answer.message().starts_with("roomId: "), "{}", answer.message());
    }
}

#[tokio::test]
async fn a_position_older_than_the_log_is_answered_with_a_reset_and_the_rest_of_the_log() {
    let hub = Hub::builder(BONGSU).env("STREAM_MAXLEN", 10).start().await;
    let (service, person) = (Api::new(&hub), Api::new(&hub).person(7));
    let mut ids = Vec::new();
    for n in 1..=50 {
        ids.push(service.publish_to("a", EVENT_TYPE, json!({ "n": n })).await);
    }
    let page = get_page(&person, &format!("since={}", ids[0])).await.expect(200);
    let seen = numbers(&page);
    assert_eq!(page.result()["trimmed"], true);
    assert_eq!(page.result()["oldestId"], page.result()["events"][0]["id"]);
    assert_eq!(seen, (seen[0]..=50).collect::<Vec<_>>());
    assert!((10..=30).contains(&seen.len()), "{seen:?}");
    // The next page after the last id is not marked as trimmed.
    let last = page.result()["lastId"].as_str().unwrap();
    assert_eq!(last, ids[49]);
    let next = get_page(&person, &format!("since={last}")).await.expect(200);
    assert!(next.result().get("trimmed").is_none());
    // Position `0-0` means the oldest event that is left.
    assert_eq!(numbers(&get_page(&person, "since=0-0").await.expect(200)), seen);
}

#[tokio::test]
async fn an_unknown_position_is_answered_with_a_reset_and_the_newest_id() {
    let (_hub, person) = hub_with(3).await;
    let newest = get_page(&person, "since=0-0").await.expect(200).result()["lastId"].clone();
    for since in ["9999999999999-0", "9223372036854775808-1", "18446744073709551615-18446744073709551615"] {
        let page = get_page(&person, &format!("since={since}")).await.expect(200);
        let told = (&page.result()["unknown"], &page.result()["lastId"], &page.result()["hasMore"]);
        assert_eq!(told, (&json!(true), &newest, &json!(false)), "{since}");
        assert_eq!(page.result()["events"], json!([]));
    }
    let empty = person.get("/api/v1/rooms/never-used/events?since=5-0").await.expect(200);
    assert_eq!((&empty.result()["unknown"], &empty.result()["lastId"]), (&json!(true), &json!("0-0")));
}

#[tokio::test]
async fn a_page_of_large_events_is_bounded_and_has_more() {
    let (hub, person) = hub_with(0).await;
    let service = Api::new(&hub);
    let text = "x".repeat(60_000);
    for part in 0..4_u64 {
        let event = |n: u64| json!({"roomId": "a", "eventType": EVENT_TYPE, "data": {"n": n, "text": text}});
        let events: Vec<Value> = (1..=50).map(|n| event(part * 50 + n)).collect();
        service.publish_batch(&events).await.expect(200);
    }
    let page = get_page(&person, "since=0-0&count=500").await.expect(200);
    assert_eq!(page.result()["hasMore"], true);
    assert!(page.bytes.len() < 4 << 20, "{} bytes in one page", page.bytes.len());
    let (seen, sizes) = all_pages(&person, "&count=500").await;
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
    assert!(sizes.len() >= 4, "{sizes:?}");
}

#[tokio::test]
async fn only_an_authenticated_person_has_access() {
    let (hub, person) = hub_with(1).await;
    let path = "/api/v1/rooms/a/events?since=0-0";
    person.anonymous().get(path).await.expect_error(401, "AUTH4001");
    Api::new(&hub).get(path).await.expect_error(401, "AUTH4001");
    let token = bongsu_testkit::tokens::token(7);
    let by_query = format!("{path}&token={token}");
    person.anonymous().get(&by_query).await.expect_error(401, "AUTH4001");
    Api::http2(&hub).person(7).get(path).await.expect(200);
}
