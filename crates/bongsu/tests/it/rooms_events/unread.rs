//! Pages that clients read late or never: their memory, their effect on other clients, and their events.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

use bongsu_testkit::http2::Http2;
use bongsu_testkit::{Answer, Api, Hub, proof, raw, tier, tokens};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::{EVENT_TYPE, numbers};
use crate::BONGSU;

const WAIT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);
const PAGE_PATH: &str = "/api/v1/rooms/a/events?since=0-0&count=500";
/// These events together are about as large as one page.
const EVENT_COUNT: u64 = 40;
const TEXT_BYTES: usize = 50_000;
const WAITING_BYTES: usize = 4 << 20;

async fn publish(hub: &Hub, numbers: std::ops::RangeInclusive<u64>, bytes: usize) {
    let text = "x".repeat(bytes);
    let events: Vec<Value> = numbers
        .map(|n| json!({"roomId": "a", "eventType": EVENT_TYPE, "data": {"n": n, "text": text}}))
        .collect();
    for part in events.chunks(50) {
        Api::new(hub).publish_batch(part).await.expect(200);
    }
}

fn request(person: usize) -> Vec<u8> {
    let token = tokens::token(person);
    format!(
        "GET {PAGE_PATH} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    )
    .into_bytes()
}

/// Requests the page and reads only the first bytes of the head, so that the response has begun.
async fn begin_page(hub: &Hub, person: usize) -> (TcpStream, Vec<u8>) {
    let mut client = raw::send_without_reading(hub.addr(), &request(person)).await;
    let mut first = vec![0; 12];
    client.read_exact(&mut first).await.expect("a response");
    (client, first)
}

/// Reads the rest of a page.
async fn finish_page((mut client, mut received): (TcpStream, Vec<u8>)) -> Answer {
    let end = tokio::time::timeout(WAIT_TIMEOUT, client.read_to_end(&mut received)).await;
    end.expect("the end of the page").expect("a connection that is not cut off");
    raw::answers(&received).pop().expect("a complete answer").expect(200)
}

#[tokio::test]
async fn clients_that_read_nothing_cost_little_memory_and_delay_nobody() {
    let name = "clients_that_read_nothing_cost_little_memory_and_delay_nobody";
    let hub = Hub::builder(BONGSU).env("HTTP_WAITING_BYTES", WAITING_BYTES).start().await;
    publish(&hub, 1..=EVENT_COUNT, TEXT_BYTES).await;
    let api = Api::at(&hub.url(""));
    let whole = api.person("other").get(PAGE_PATH).await.expect(200);
    assert!(whole.bytes.len() > EVENT_COUNT as usize * TEXT_BYTES, "the page is not a large one");
    let before_kib = hub.rss_kib();

    let clients = tier::size(150, 1_500);
    let mut open = Vec::new();
    for client in 0..clients {
        // Ten clients per person.
        open.push(begin_page(&hub, client / 10).await.0);
    }
    let mut windows = Vec::new();
    for person in 0..clients / 50 {
        let bearer = format!("Bearer {}", tokens::token(format!("window{person}")));
        let mut client = Http2::connect(hub.addr(), 0).await;
        for _ in 0..20 {
            client.get(PAGE_PATH, &[("authorization", &bearer)]).await.expect("a connection");
        }
        client.next().await.expect("a response that begins");
        windows.push(client);
    }
    let answer = api.person("other").get(PAGE_PATH).await.expect(200);
    assert!(answer.bytes == whole.bytes, "the pages of two people differ");
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
    assert!(waiting > 0.0 && waiting <= WAITING_BYTES as f64, "{waiting} response bytes wait");
    assert!(evicted > 0.0, "no response was cut");
    // The pages alone would take 2 MiB each. Connections take some memory, and the allocator keeps freed memory.
    let allowed_kib = 60 * 1_024 + clients as u64 * 64;
    assert!(grown_kib < allowed_kib, "{grown_kib} KiB for {clients} clients");
}

#[tokio::test]
async fn a_person_with_too_many_requests_in_flight_gets_429() {
    let hub = Hub::builder(BONGSU).env("HTTP_MAX_REQUESTS_PER_USER", 4).records().start().await;
    publish(&hub, 1..=EVENT_COUNT, TEXT_BYTES).await;
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(begin_page(&hub, 7).await);
    }
    for api in [Api::at(&hub.url("")), Api::http2_at(&hub.url(""))] {
        for path in [PAGE_PATH, "/api/v1/rooms/b/presence", "/api/notifications"] {
            let refused = api.person(7).get(path).await;
            assert_eq!((refused.status, refused.code()), (429, "COMMON429"), "{path}");
            assert!(refused.header("retry-after").parse::<u32>().is_ok(), "{:?}", refused.headers);
            api.person(8).get(path).await.expect(200);
        }
        // The limit does not apply to services.
        api.publish_to("b", EVENT_TYPE, json!({})).await;
    }
    let stream = bongsu_testkit::sse::Stream::request(&hub, "/api/v1/rooms/a/stream").person(7);
    let mut stream =
        stream.header("accept", "text/event-stream").open().await.expect("a stream that is closed");
    assert_eq!(stream.expect_event("system.close", WAIT_TIMEOUT).await.json()["code"], 3004);
    // Reading one page to its end frees a request of the person.
    assert_eq!(numbers(&finish_page(open.remove(0)).await).len() as u64, EVENT_COUNT);
    bongsu_testkit::wait::until(WAIT_TIMEOUT, async || {
        Api::at(&hub.url("")).person(7).get("/api/v1/rooms/b/presence").await.status == 200
    })
    .await;
}

#[tokio::test]
async fn a_page_that_is_read_slowly_has_no_event_published_after_it_began() {
    let hub = Hub::builder(BONGSU).start().await;
    publish(&hub, 1..=EVENT_COUNT, TEXT_BYTES).await;
    let page = begin_page(&hub, 7).await;
    publish(&hub, EVENT_COUNT + 1..=EVENT_COUNT + 50, 10).await;
    let page = finish_page(page).await;
    assert_eq!(numbers(&page), (1..=EVENT_COUNT).collect::<Vec<_>>());
    let last = page.result()["lastId"].as_str().unwrap();
    assert_eq!(
        (last, true),
        (
            page.result()["events"][EVENT_COUNT as usize - 1]["id"].as_str().unwrap(),
            page.result()["hasMore"] == true
        )
    );
    let next =
        Api::new(&hub).person(7).get(&format!("/api/v1/rooms/a/events?since={last}")).await.expect(200);
    assert_eq!(numbers(&next), (EVENT_COUNT + 1..=EVENT_COUNT + 50).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_page_that_is_trimmed_while_it_is_read_ends_before_the_gap() {
    let hub = Hub::builder(BONGSU).env("STREAM_MAXLEN", EVENT_COUNT).start().await;
    publish(&hub, 1..=EVENT_COUNT, TEXT_BYTES).await;
    let page = begin_page(&hub, 7).await;
    publish(&hub, EVENT_COUNT + 1..=5 * EVENT_COUNT, 10).await;
    let page = finish_page(page).await;
    let seen = numbers(&page);
    assert!(
        !seen.is_empty() && (seen.len() as u64) < EVENT_COUNT,
        "{} events: the log was not trimmed in time",
        seen.len()
    );
    assert_eq!(seen, (1..=seen.len() as u64).collect::<Vec<_>>(), "events before the gap");
    assert_eq!(page.result()["hasMore"], true);
    let last = page.result()["lastId"].as_str().unwrap();
    assert_eq!(page.result()["events"][seen.len() - 1]["id"], last);
    // The request for the next page reports the gap.
    let next =
        Api::new(&hub).person(7).get(&format!("/api/v1/rooms/a/events?since={last}")).await.expect(200);
    assert_eq!(next.result()["trimmed"], true);
}
