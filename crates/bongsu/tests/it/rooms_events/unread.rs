//! Pages that their clients do not read, or read late: what they cost, what others notice, and what is on them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

use bongsu_testkit::http2::Http2;
use bongsu_testkit::{Answer, Api, Hub, proof, raw, tier, tokens};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::{KIND, numbers};
use crate::BONGSU;

const LONG: std::time::Duration = std::time::Duration::from_secs(60);
const PATH: &str = "/api/v1/rooms/a/events?since=0-0&count=500";
/// Together about as much as one page holds.
const EVENTS: u64 = 40;
const TEXT: usize = 50_000;
const WAITING_BYTES: usize = 4 << 20;

async fn publish(hub: &Hub, numbers: std::ops::RangeInclusive<u64>, bytes: usize) {
    let text = "x".repeat(bytes);
    let events: Vec<Value> =
        numbers.map(|n| json!({"roomId": "a", "eventType": KIND, "data": {"n": n, "text": text}})).collect();
    for part in events.chunks(50) {
        Api::new(hub).publish_batch(part).await.expect(200);
    }
}

fn request(person: usize) -> Vec<u8> {
    let token = tokens::token(person);
    format!(
        "GET {PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    )
    .into_bytes()
}

/// Asks for the page and takes only the beginning of the head, so that the response has begun.
async fn begun(hub: &Hub, person: usize) -> (TcpStream, Vec<u8>) {
    let mut client = raw::unread(hub.addr(), &request(person)).await;
    let mut first = vec![0; 12];
    client.read_exact(&mut first).await.expect("a response");
    (client, first)
}

/// The rest of a page of which only the beginning was taken.
async fn read_on((mut client, mut received): (TcpStream, Vec<u8>)) -> Answer {
    let end = tokio::time::timeout(LONG, client.read_to_end(&mut received)).await;
    end.expect("the end of the page").expect("a connection that is not cut off");
    raw::answers(&received).pop().expect("a whole answer").expect(200)
}

#[tokio::test]
async fn clients_that_read_nothing_cost_little_and_nobody_else_notices() {
    let name = "clients_that_read_nothing_cost_little_and_nobody_else_notices";
    let hub = Hub::builder(BONGSU).env("HTTP_WAITING_BYTES", WAITING_BYTES).start().await;
    publish(&hub, 1..=EVENTS, TEXT).await;
    let api = Api::at(&hub.url(""));
    let whole = api.person("other").get(PATH).await.expect(200);
    assert!(whole.bytes.len() > EVENTS as usize * TEXT, "the page is not a large one");
    let before_kib = hub.rss_kib();

    let clients = tier::size(150, 1_500);
    let mut open = Vec::new();
    for client in 0..clients {
        // Ten of each person.
        open.push(begun(&hub, client / 10).await.0);
    }
    let mut windows = Vec::new();
    for person in 0..clients / 50 {
        let bearer = format!("Bearer {}", tokens::token(format!("window{person}")));
        let mut client = Http2::connect(hub.addr(), 0).await;
        for _ in 0..20 {
            client.get(PATH, &[("authorization", &bearer)]).await.expect("a connection");
        }
        client.next().await.expect("a response that begins");
        windows.push(client);
    }
    let answer = api.person("other").get(PATH).await.expect(200);
    assert!(answer.bytes == whole.bytes, "another person's page is another one");
    let metrics = hub.metrics().await;
    let waiting = metrics.get("http_response_bytes_waiting", &[]);
    let evicted = metrics.get("http_responses_cut_total", &[("reason", "memory")]);
    let grown_kib = hub.peak_rss_kib().saturating_sub(before_kib);
    proof::record(
        "rooms",
        name,
        json!({"clients": clients, "http2Requests": windows.len() * 20, "waitingBytes": waiting, "evicted": evicted,
            "beforeKib": before_kib, "grownKib": grown_kib}),
    );
    assert!(waiting > 0.0 && waiting <= WAITING_BYTES as f64, "{waiting} bytes wait");
    assert!(evicted > 0.0, "too little waited to show anything");
    // Pages alone would be 2 MiB each. Connections cost some, and the allocator keeps what others gave back.
    let allowed_kib = 60 * 1_024 + clients as u64 * 64;
    assert!(grown_kib < allowed_kib, "{grown_kib} KiB for {clients} clients");
}

#[tokio::test]
async fn a_person_with_too_many_requests_in_flight_is_told_to_wait() {
    let hub = Hub::builder(BONGSU).env("HTTP_MAX_REQUESTS_PER_USER", 4).records().start().await;
    publish(&hub, 1..=EVENTS, TEXT).await;
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(begun(&hub, 7).await);
    }
    for api in [Api::at(&hub.url("")), Api::http2_at(&hub.url(""))] {
        for path in [PATH, "/api/v1/rooms/b/presence", "/api/notifications"] {
            let refused = api.person(7).get(path).await;
            assert_eq!((refused.status, refused.code()), (429, "COMMON429"), "{path}");
            assert!(refused.header("retry-after").parse::<u32>().is_ok(), "{:?}", refused.headers);
            api.person(8).get(path).await.expect(200);
        }
        // Services are not people.
        api.publish_to("b", KIND, json!({})).await;
    }
    let stream = bongsu_testkit::sse::Stream::request(&hub, "/api/v1/rooms/a/stream").person(7);
    let mut stream =
        stream.header("accept", "text/event-stream").open().await.expect("a stream that says it");
    assert_eq!(stream.expect_event("system.close", LONG).await.json()["code"], 3004);
    // Reading one to its end makes room.
    assert_eq!(numbers(&read_on(open.remove(0)).await).len() as u64, EVENTS);
    bongsu_testkit::wait::until(LONG, async || {
        Api::at(&hub.url("")).person(7).get("/api/v1/rooms/b/presence").await.status == 200
    })
    .await;
}

#[tokio::test]
async fn a_page_that_is_read_late_has_nothing_that_was_published_after_it_began() {
    let hub = Hub::builder(BONGSU).start().await;
    publish(&hub, 1..=EVENTS, TEXT).await;
    let page = begun(&hub, 7).await;
    publish(&hub, EVENTS + 1..=EVENTS + 50, 10).await;
    let page = read_on(page).await;
    assert_eq!(numbers(&page), (1..=EVENTS).collect::<Vec<_>>());
    let last = page.result()["lastId"].as_str().unwrap();
    assert_eq!(
        (last, true),
        (
            page.result()["events"][EVENTS as usize - 1]["id"].as_str().unwrap(),
            page.result()["hasMore"] == true
        )
    );
    let next =
        Api::new(&hub).person(7).get(&format!("/api/v1/rooms/a/events?since={last}")).await.expect(200);
    assert_eq!(numbers(&next), (EVENTS + 1..=EVENTS + 50).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_page_that_is_trimmed_while_it_is_read_ends_before_the_gap() {
    let hub = Hub::builder(BONGSU).env("STREAM_MAXLEN", EVENTS).start().await;
    publish(&hub, 1..=EVENTS, TEXT).await;
    let page = begun(&hub, 7).await;
    publish(&hub, EVENTS + 1..=5 * EVENTS, 10).await;
    let page = read_on(page).await;
    let seen = numbers(&page);
    assert!(
        !seen.is_empty() && (seen.len() as u64) < EVENTS,
        "{} events: nothing was trimmed in time",
        seen.len()
    );
    assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>(), "events without a hole");
    assert_eq!(page.result()["hasMore"], true);
    let last = page.result()["lastId"].as_str().unwrap();
    assert_eq!(page.result()["events"][seen.len() - 1]["id"], last);
    // Whoever asks on is told.
    let next =
        Api::new(&hub).person(7).get(&format!("/api/v1/rooms/a/events?since={last}")).await.expect(200);
    assert_eq!(next.result()["trimmed"], true);
}
