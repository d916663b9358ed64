//! Where a stream begins: after a position that is known, trimmed away, or was never given out.

use bongsu_testkit::sse::{ResumingClient, Stream};
use bongsu_testkit::{Api, Hub};

use super::{
    EVENT_TYPE, WAIT_TIMEOUT, hub, numbers, open, over_both_protocols, path, publish, stream_request,
};
use crate::BONGSU;

#[tokio::test]
async fn a_client_catches_up_by_header_or_by_query() {
    let hub = hub().await;
    let ids = publish(&Api::new(&hub), "a", 1..=4).await;
    for request in over_both_protocols(stream_request(&hub, "a").last_event_id(&ids[1])) {
        assert_eq!(numbers(&mut open(request).await, 2).await, [3, 4]);
    }
    let asked =
        bongsu_testkit::sse::Request::new(hub.addr(), &format!("{}?lastEventId={}", path("a"), ids[2]));
    for request in over_both_protocols(asked.person(7)) {
        assert_eq!(numbers(&mut open(request).await, 1).await, [4]);
    }
}

#[tokio::test]
async fn the_header_wins_over_the_query() {
    let hub = hub().await;
    let ids = publish(&Api::new(&hub), "a", 1..=4).await;
    let asked =
        bongsu_testkit::sse::Request::new(hub.addr(), &format!("{}?lastEventId={}", path("a"), ids[0]));
    let mut stream = open(asked.person(7).last_event_id(&ids[2])).await;
    assert_eq!(numbers(&mut stream, 1).await, [4]);
}

#[tokio::test]
async fn zero_means_from_the_beginning_and_then_live() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut empty = open(stream_request(&hub, "empty").last_event_id("0-0")).await;
    publish(&api, "empty", 1..=1).await;
    assert_eq!(numbers(&mut empty, 1).await, [1]);
    publish(&api, "a", 1..=2).await;
    let mut stream = open(stream_request(&hub, "a").last_event_id("0-0")).await;
    publish(&api, "a", 3..=3).await;
    assert_eq!(numbers(&mut stream, 3).await, [1, 2, 3]);
}

/// The fields of the next `count` frames, as they were sent.
async fn frames(stream: &mut Stream, count: usize) -> Vec<(String, Option<String>, String)> {
    let events = stream.take_events(count, WAIT_TIMEOUT).await;
    events.into_iter().map(|event| (event.event, event.own_id, event.data)).collect()
}

#[tokio::test]
async fn events_read_by_catch_up_equal_live_events() {
    // The ring buffer holds the newest few events only; all events before them must be read from the log.
    let hub = Hub::builder(BONGSU).env("SSE_CHANNEL_CAPACITY", 4).start().await;
    let api = Api::new(&hub);
    let mut live = Vec::new();
    for request in over_both_protocols(stream_request(&hub, "a")) {
        live.push(open(request).await);
    }
    let count = 30;
    for n in 0..count {
        // The body is text, because everything that a JSON writer would write differently must stay as the publisher
        // wrote it.
        let body = format!(
            r#"{{"roomId": "a", "eventType": "{EVENT_TYPE}{}", "publisherId": {n}, "data": {{ "z": {n}, "n": 1.50, "e": 1E2,
            "text": "\u0041\n봉수 \"{n}\"\u2028", "nested": {{"timestamp": "kept", "b": [ ], "a": null}}, "timestamp": 0}}}}"#,
            if n % 2 == 0 { "" } else { ".v2" },
        );
        api.call("POST", "/api/v1/notifications/publish", body).await.expect(200);
    }
    let sent_live = frames(&mut live[0], count).await;
    assert!(sent_live.iter().all(|(_, id, _)| id.is_some()), "{sent_live:?}");
    assert_eq!(frames(&mut live[1], count).await, sent_live, "live over HTTP/2");
    for request in over_both_protocols(stream_request(&hub, "a").last_event_id("0-0")) {
        assert_eq!(
            frames(&mut open(request).await, count).await,
            sent_live,
            "from the log and the ring buffer"
        );
    }
    // A new process has empty ring buffers: these events come from the log alone.
    hub.restart().await;
    for request in over_both_protocols(stream_request(&hub, "a").last_event_id("0-0")) {
        assert_eq!(frames(&mut open(request).await, count).await, sent_live, "from the log alone");
    }
}

#[tokio::test]
async fn a_malformed_position_is_refused_by_name_before_the_stream_starts() {
    let hub = hub().await;
    let api = Api::new(&hub).person(7);
    let bad = [
        "x",
        "1",
        "1-",
        "-1",
        "1-1-1",
        "01-0",
        "1-00",
        "+1-0",
        "0x1-0",
        "18446744073709551616-0",
        "END.1",
        "$",
    ];
    for position in bad {
        for request in over_both_protocols(stream_request(&hub, "a").last_event_id(position)) {
            let refused = request.open().await.err().unwrap_or_else(|| panic!("{position:?} was accepted"));
            let refused = refused.expect_error(400, "COMMON400");
            assert!(refused.message().starts_with("Last-Event-ID: "), "{}", refused.message());
        }
        let asked = format!("{}?lastEventId={}", path("a"), position.replace('+', "%2B"));
        let refused = api.get(&asked).await.expect_error(400, "COMMON400");
        assert!(refused.message().starts_with("lastEventId: "), "{}", refused.message());
    }
    assert_eq!(hub.metrics().await.get("sse_active_connections", &[]), 0.0);
}

/// A hub whose rooms keep ten events, and the ids of fifty events that were published to a room.
async fn trimmed_room() -> (Hub, Vec<String>) {
    let hub = Hub::builder(BONGSU).env("STREAM_MAXLEN", 10).start().await;
    let ids = publish(&Api::new(&hub), "a", 1..=50).await;
    (hub, ids)
}

#[tokio::test]
async fn a_trimmed_position_resets_the_stream_which_continues_with_the_rest_of_the_log() {
    let (hub, ids) = trimmed_room().await;
    for request in over_both_protocols(stream_request(&hub, "a").last_event_id(&ids[0])) {
        let mut stream = open(request).await;
        let reset = stream.expect_event("system.reset", WAIT_TIMEOUT).await;
        assert_eq!(reset.json()["reason"], "trimmed");
        let oldest = reset.json()["oldestId"].as_str().unwrap().to_owned();
        let first = stream.next_event(WAIT_TIMEOUT).await.unwrap();
        assert_eq!(first.own_id.as_deref(), Some(oldest.as_str()), "the oldest event must come first");
        let n = first.json()["n"].as_u64().unwrap();
        assert!((21..=41).contains(&n), "the room must keep 10 to 30 events: the oldest is {n}");
        assert_eq!(oldest, ids[usize::try_from(n).unwrap() - 1]);
        let left: Vec<u64> = (n + 1..=50).collect();
        assert_eq!(numbers(&mut stream, left.len()).await, left);
    }
}

#[tokio::test]
async fn a_client_that_drops_right_after_a_trimmed_reset_still_gets_all_that_is_left() {
    let (hub, ids) = trimmed_room().await;
    let mut client = ResumingClient::new(stream_request(&hub, "a")).starting_after(&ids[3]);
    assert_eq!(client.next_event(WAIT_TIMEOUT).await.unwrap().event, "system.reset");
    client.break_connection();
    let mut events = Vec::new();
    while events.last() != Some(&50) {
        let event = client.next_event(WAIT_TIMEOUT).await.unwrap();
        if event.event == EVENT_TYPE {
            events.push(event.json()["n"].as_u64().unwrap());
        }
    }
    let all: Vec<u64> = (events[0]..=50).collect();
    assert!(events.len() >= 10, "{events:?}");
    assert_eq!(events, all);
}

#[tokio::test]
async fn an_unknown_position_resets_the_stream_which_continues_with_new_events() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let ids = publish(&api, "a", 1..=3).await;
    let (ms, seq) = ids[1].split_once('-').unwrap();
    let between = format!("{ms}-{}", seq.parse::<u64>().unwrap() + 7);
    let made_up = [
        between.as_str(),
        "9999999999999-0",
        "9223372036854775807-9223372036854775807",
        "9223372036854775808-0",
        "18446744073709551615-18446744073709551615",
    ];
    let mut next = 4;
    for position in made_up {
        for request in over_both_protocols(stream_request(&hub, "a").last_event_id(position)) {
            let mut stream = open(request).await;
            let reset = stream.expect_event("system.reset", WAIT_TIMEOUT).await;
            assert_eq!(reset.json()["reason"], "unknown", "{position}");
            publish(&api, "a", next..=next).await;
            assert_eq!(numbers(&mut stream, 1).await, [next], "{position}");
            next += 1;
        }
    }
}

#[tokio::test]
async fn any_position_in_a_room_without_events_is_unknown() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let ids = publish(&api, "other", 1..=1).await;
    for (room, position) in [("one", ids[0].as_str()), ("two", "5-0")] {
        let mut stream = open(stream_request(&hub, room).last_event_id(position)).await;
        assert_eq!(stream.expect_event("system.reset", WAIT_TIMEOUT).await.json()["reason"], "unknown");
        publish(&api, room, 1..=1).await;
        assert_eq!(numbers(&mut stream, 1).await, [1]);
    }
}

#[tokio::test]
async fn a_client_that_drops_right_after_an_unknown_reset_misses_nothing_that_came_after_it() {
    let hub = hub().await;
    let api = Api::new(&hub);
    publish(&api, "a", 1..=3).await;
    let mut client = ResumingClient::new(stream_request(&hub, "a")).starting_after("9999999999999-0");
    assert_eq!(client.next_event(WAIT_TIMEOUT).await.unwrap().event, "system.reset");
    client.break_connection();
    publish(&api, "a", 4..=5).await;
    for n in [4, 5] {
        let event = client.next_event(WAIT_TIMEOUT).await.unwrap();
        assert_eq!((event.event.as_str(), event.json()["n"].as_u64()), (EVENT_TYPE, Some(n)));
    }
}

#[tokio::test]
async fn streams_are_reset_after_the_log_was_wiped_and_miss_no_new_event() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let ids = publish(&api, "a", 1..=3).await;
    let other = tempfile::tempdir().unwrap();
    let folder = other.path().join("data");
    hub.terminate().await;
    // Another data folder or, on a shared engine, another key prefix that no other test uses.
    let prefix = format!("{}:", other.path().file_name().unwrap().to_str().unwrap());
    hub.restart_with(&[("DATA_DIR", folder.to_str().unwrap()), ("REDIS_KEY_PREFIX", &prefix)]).await;
    let api = Api::new(&hub);
    let mut client = ResumingClient::new(stream_request(&hub, "a")).starting_after(&ids[2]);
    let reset = client.next_event(WAIT_TIMEOUT).await.unwrap();
    assert_eq!((reset.event.as_str(), &reset.json()["reason"]), ("system.reset", &"unknown".into()));
    client.break_connection();
    publish(&api, "a", 10..=11).await;
    for n in [10, 11] {
        let event = client.next_event(WAIT_TIMEOUT).await.unwrap();
        assert_eq!((event.event.as_str(), event.json()["n"].as_u64()), (EVENT_TYPE, Some(n)));
    }
    // Once there are newer events, an old position is older than the log, which also leads to a reset.
    let mut late = open(stream_request(&hub, "a").last_event_id(&ids[2])).await;
    let reset = late.expect_event("system.reset", WAIT_TIMEOUT).await.json();
    assert!(reset["reason"] == "unknown" || reset["reason"] == "trimmed", "{reset}");
}
