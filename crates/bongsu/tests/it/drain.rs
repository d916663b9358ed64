//! A hub that receives SIGTERM closes its streams with 3000, finishes the requests in progress, still serves new
//! connections meanwhile, and exits in time. Clients that reconnect to the next hub miss no event.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bongsu_testkit::hub::Signal;
use bongsu_testkit::sse::{End, Item, Stream};
use bongsu_testkit::{Api, Hub, api, proof, wait};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

const ROOM: &str = "drain";
const STREAM_PATH: &str = "/api/v1/rooms/drain/stream";
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// The contract allows 10 s from the signal to the exit on an idle machine; this bound allows for a busy one.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(40);

#[tokio::test]
async fn a_stopping_hub_loses_no_event_and_its_streams_continue_on_another_hub() {
    let hub = Hub::builder(crate::BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 0).start().await;
    let api = Api::new(&hub);
    let mut streams = join_all((0..200).map(|reader| open(&hub, reader, None))).await;
    let before = api.publish_to(ROOM, "a.b", json!({"n": "before"})).await;
    // The signal arrives while these requests wait for the second half of their body.
    let mut halves = Vec::new();
    for n in 0..5 {
        halves.push(HalfSentPublish::send(&hub, n).await);
    }
    let mut unfinished = TcpStream::connect(hub.addr()).await.unwrap();
    unfinished.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
    // These publishers send to this hub, which keeps running until the half-sent requests are finished. A
    // twin has no such requests and would end earlier.
    let (streams_ended, own) = (AtomicBool::new(false), Api::at(&hub.url("")));
    let publishing = join_all((0..8).map(|publisher| publish_until(&streams_ended, &own, publisher)));

    let stopping = async {
        wait::until(WAIT_TIMEOUT, async || hub.metrics().await.get("events_published_total", &[]) > 50.0)
            .await;
        hub.send_signal(Signal::TERM);
        Instant::now()
    };
    let reading = async {
        let seen = join_all(streams.iter_mut().map(read_to_close)).await;
        streams_ended.store(true, Ordering::SeqCst);
        seen
    };
    let (told_at, answered, mut seen) = tokio::join!(stopping, publishing, reading);

    // The hub waits for the requests in progress. A stream that is opened now is closed like the others.
    let mut late = open(&hub, 1_000, None).await;
    assert_eq!(read_to_close(&mut late).await, Vec::<String>::new());
    unfinished.write_all(b"\r\n").await.unwrap();
    let mut ready = String::new();
    unfinished.read_to_string(&mut ready).await.unwrap();
    assert!(ready.starts_with("HTTP/1.1 503 "), "{ready}");
    let mut in_flight = Vec::new();
    for half in halves {
        in_flight.push(half.finish().await);
    }
    let finished = in_flight.len();
    let status = hub.wait_exit(DRAIN_TIMEOUT.saturating_sub(told_at.elapsed())).await;
    assert_eq!(status.expect("an exit in time").code(), Some(0));

    hub.restart().await;
    let end = api.publish_to(ROOM, "a.end", json!({})).await;
    let stored = api.stored_ids(ROOM).await;
    let acknowledged: Vec<String> = answered.into_iter().flatten().chain(in_flight).chain([before]).collect();
    let missing: Vec<&String> = acknowledged.iter().filter(|id| !stored.contains(id)).collect();
    assert!(missing.is_empty(), "acknowledged events are missing: {missing:?}");
    let unanswered = stored.iter().filter(|id| **id != end && !acknowledged.contains(id));
    assert_eq!(unanswered.count(), 0, "stored events without an acknowledgement");
    assert_eq!(stored.last(), Some(&end));
    // Every stream resumes at its last id.
    join_all(seen.iter_mut().enumerate().map(|(reader, seen)| read_on(&hub, reader, seen))).await;
    let (mut unseen, mut repeated) = (0, 0);
    for (reader, seen) in seen.iter().enumerate() {
        let distinct: HashSet<&String> = seen.iter().collect();
        unseen += stored.iter().filter(|id| !distinct.contains(id)).count();
        repeated += seen.len() - distinct.len();
        assert!(*seen == stored, "reader {reader} missed an event or saw one twice");
    }
    proof::record(
        "rooms",
        "a_stopping_hub_loses_no_event_and_its_streams_continue_on_another_hub",
        json!({
            "streams": seen.len(), "acknowledged": acknowledged.len(), "finishedAfterTheSignal": finished,
            "delivered": seen.iter().map(Vec::len).sum::<usize>(), "missing": missing.len() + unseen,
            "repeated": repeated,
        }),
    );
}

#[tokio::test]
async fn a_stalled_reader_with_a_full_buffer_does_not_delay_shutdown() {
    let hub = Hub::builder(crate::BONGSU).start().await;
    let api = Api::new(&hub);
    let request = Stream::request(&hub, STREAM_PATH).person("silent").receive_buffer(4_096);
    let silent = request.open().await.expect("a stream").stop_reading();
    let http2 = Stream::request(&hub, STREAM_PATH).person("silent").http2();
    let silent_http2 = http2.open().await.expect("a stream").stop_reading();
    let mut quick = open(&hub, 1, None).await;
    let event = json!({"roomId": ROOM, "eventType": "a.b", "data": {"text": "x".repeat(5_000)}});
    for _ in 0..20 {
        api.publish_batch(&vec![event.clone(); 100]).await.expect(200);
    }
    let told_at = Instant::now();
    hub.send_signal(Signal::TERM);
    // Readers that read are closed at once, whatever other readers do.
    read_to_close(&mut quick).await;
    let status = hub.wait_exit(DRAIN_TIMEOUT.saturating_sub(told_at.elapsed())).await;
    assert_eq!(status.expect("an exit in time").code(), Some(0));
    drop((silent, silent_http2));
}

#[tokio::test]
async fn an_idle_hub_stops_at_once_and_its_file_is_intact() {
    if !bongsu_testkit::engine::needs_embedded("it looks into the file") {
        return;
    }
    let hub = Hub::builder(crate::BONGSU).start().await;
    let api = Api::new(&hub);
    let id = api.publish_to(ROOM, "a.b", json!({})).await;
    // One kept-alive connection, and one that never sends anything.
    let mut kept = TcpStream::connect(hub.addr()).await.unwrap();
    kept.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut first = [0; 13];
    kept.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200 ");
    let _quiet = TcpStream::connect(hub.addr()).await.unwrap();
    hub.send_signal(Signal::TERM);
    let status = hub.wait_exit(DRAIN_TIMEOUT).await;
    assert_eq!(status.expect("an exit in time").code(), Some(0));
    let database = rusqlite::Connection::open(hub.data_dir().join("bongsu.db")).unwrap();
    let entries: i64 = database.query_row("SELECT count(*) FROM entries", [], |row| row.get(0)).unwrap();
    assert_eq!(entries, 1);
    drop(database);
    hub.restart().await;
    assert_eq!(api.stored_ids(ROOM).await, [id]);
}

/// Every tenth reader uses HTTP/2.
async fn open(hub: &Hub, reader: usize, position: Option<&str>) -> Stream {
    let request =
        Stream::request(hub, STREAM_PATH).person(reader).last_event_id(position.unwrap_or_default());
    let request = if reader % 10 == 3 { request.http2() } else { request };
    request.open().await.expect("a stream")
}

/// Reads until the stream ends, checks that it was closed as draining requires, and returns the ids of the events.
async fn read_to_close(stream: &mut Stream) -> Vec<String> {
    let items = stream.read_to_end(WAIT_TIMEOUT).await;
    assert_eq!(stream.end(), Some(End::Proper), "the stream was cut off");
    let mut ids = Vec::new();
    let (mut retries, mut close) = (Vec::new(), None);
    for item in items {
        assert_eq!(close, None, "an item follows `system.close`");
        match item {
            Item::Event(event) if event.event == "system.close" => close = Some(event.json()),
            Item::Event(event) => ids.push(event.own_id.expect("an id")),
            Item::Retry(ms) => retries.push(ms),
            Item::Comment(_) => {}
        }
    }
    let close = close.expect("a `system.close` event");
    assert_eq!((&close["code"], &close["reconnect"]), (&json!(3000), &json!(true)), "{close}");
    assert_eq!(close["retryMs"].as_u64(), retries.last().copied(), "retryMs and the retry field differ");
    assert_eq!(retries.len(), 2, "retry fields: first and last");
    ids
}

/// Reconnects after the last id and appends the ids of the following events, up to the last event.
async fn read_on(hub: &Hub, reader: usize, seen: &mut Vec<String>) {
    let mut stream = open(hub, reader, seen.last().map(String::as_str)).await;
    loop {
        let event = stream.next_event(WAIT_TIMEOUT).await.expect("an open stream");
        seen.push(event.own_id.clone().expect("an id"));
        if event.event == "a.end" {
            return;
        }
        assert_eq!(event.event, "a.b");
    }
}

/// Publishes one event after another, each of which must be acknowledged; returns their ids.
async fn publish_until(stop: &AtomicBool, api: &Api, publisher: usize) -> Vec<String> {
    let mut ids = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        ids.push(api.publish_to(ROOM, "a.b", json!({"publisher": publisher, "n": ids.len()})).await);
    }
    ids
}

/// A publish request of which the hub has received the head and half of the body.
struct HalfSentPublish {
    socket: TcpStream,
    rest: String,
}

impl HalfSentPublish {
    async fn send(hub: &Hub, n: u64) -> Self {
        let body = json!({"roomId": ROOM, "eventType": "a.b", "data": {"half": n}}).to_string();
        let (first, rest) = body.split_at(body.len() / 2);
        let mut socket = TcpStream::connect(hub.addr()).await.unwrap();
        let head = format!(
            "POST /api/v1/notifications/publish HTTP/1.1\r\nHost: localhost\r\nX-Internal-Key: {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
            api::INTERNAL_KEY,
            body.len()
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        // The hub sends `100 Continue`: the request is in progress.
        let mut interim = [0; 25];
        socket.read_exact(&mut interim).await.unwrap();
        assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
        socket.write_all(first.as_bytes()).await.unwrap();
        Self { socket, rest: rest.to_owned() }
    }

    /// Sends the second half of the body; returns the id of the event.
    async fn finish(mut self) -> String {
        self.socket.write_all(self.rest.as_bytes()).await.unwrap();
        let mut answer = String::new();
        self.socket.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
        let body: Value = serde_json::from_str(body).expect("JSON");
        body["result"]["streamId"].as_str().expect("an id").to_owned()
    }
}
