//! Clients that send their request slowly or never finish it: the hub closes their connections in time, and other
//! clients are not affected.

use std::time::Duration;

use bongsu_testkit::raw::{self, SlowExchange};
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, Hub, proof};
use futures_util::future::join_all;
use serde_json::json;

use super::{BATCH_PATH, KEY_HEADER, PUBLISH_PATH, WAIT_TIMEOUT, assert_unaffected, hub};

/// Time within which the hub has closed the connection of a client that never finishes its request.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(90);

/// Sends `at_once` in one write and then `rest` bytes slowly.
async fn send_slowly(hub: &Hub, at_once: &str, rest: usize) -> SlowExchange {
    let request = format!("{at_once}{}", "a".repeat(rest));
    let pause = if rest == 0 { Duration::ZERO } else { Duration::from_millis(700) };
    // The remaining pieces have the length of the first part, so that few bytes arrive at a time.
    raw::write_slowly(hub.addr(), request.as_bytes(), at_once.len().max(1), pause, CLOSE_TIMEOUT).await
}

#[tokio::test]
async fn an_endless_request_is_closed_and_delays_nobody() {
    let hub = hub().await;
    let post = |path: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{KEY_HEADER}\r\nContent-Length: 60000\r\n\r\n")
    };
    let callers = [
        ("nothing at all", String::new(), 0),
        ("one letter", "P".to_owned(), 0),
        ("the start of HTTP/2", "PRI".to_owned(), 0),
        ("half a preface", "PRI * HTTP/2.0\r\n\r\nS".to_owned(), 0),
        ("a preface and nothing more", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 0),
        ("half a head", "GET /health HTTP/1.1\r\nHost: localhost\r\n".to_owned(), 0),
        ("a head without end", "GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ".to_owned(), 4_000),
        ("a body without end", post(PUBLISH_PATH), 50_000),
        ("a batch without end", post(BATCH_PATH), 50_000),
        ("a body that never comes", post(PUBLISH_PATH), 0),
        ("a request and nothing more", "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 0),
    ];
    // Forty connections of each kind, so that the test would notice if they used up a resource that other clients
    // need.
    let attacks = join_all(callers.iter().map(async |(what, at_once, rest)| {
        let all = join_all((0..40).map(|_| send_slowly(&hub, at_once, *rest))).await;
        (*what, all)
    }));
    let stop = tokio::sync::Notify::new();
    let others = async {
        let api = Api::new(&hub);
        let mut stream =
            Stream::request(&hub, "/api/v1/rooms/busy/stream").person(7).open().await.ok().unwrap();
        let mut slowest = Duration::ZERO;
        loop {
            let started = tokio::time::Instant::now();
            api.publish(json!({"roomId": "busy", "eventType": "system.refused", "data": {}}))
                .await
                .expect(400);
            api.get("/health").await.expect(200);
            slowest = slowest.max(started.elapsed());
            if tokio::time::timeout(Duration::from_millis(300), stop.notified()).await.is_ok() {
                return slowest;
            }
            assert!(stream.try_next_event(Duration::from_millis(1)).await.is_err());
        }
    };
    let attacks = async {
        let attacks = attacks.await;
        stop.notify_one();
        attacks
    };
    let (attacks, slowest) = tokio::join!(attacks, others);
    assert!(slowest < WAIT_TIMEOUT, "other clients waited {slowest:?}");
    let longest = attacks.iter().flat_map(|(_, all)| all).map(|dripped| dripped.took).max();
    proof::record(
        "http",
        "slow-callers",
        json!({"callers": attacks.iter().map(|(_, all)| all.len()).sum::<usize>(), "longestSecs": longest.map(|took| took.as_secs()),
        "othersWaitedMs": slowest.as_millis() as u64, "peakKiB": hub.peak_rss_kib()}),
    );
    let mut stayed = Vec::new();
    for (what, all) in &attacks {
        if all.iter().any(|dripped| !dripped.closed) {
            stayed.push(*what);
        }
        if what.contains("body") || what.contains("batch") {
            for dripped in all {
                let answers = raw::answers(&dripped.received);
                let told: Vec<_> = answers.iter().map(|answer| (answer.status, answer.code())).collect();
                assert!(told.is_empty() || told == [(408, "COMMON408")], "{what}: {told:?}");
            }
        }
    }
    assert!(stayed.is_empty(), "still connected after {CLOSE_TIMEOUT:?}: {stayed:?}");
    bongsu_testkit::wait::until(WAIT_TIMEOUT, async || hub.open_files() < 100).await;
    assert_unaffected(&hub).await;
}
