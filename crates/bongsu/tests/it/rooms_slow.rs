//! Slow and silent readers: they cost a bounded amount of memory and slow down no other reader. A slow reader
//! receives everything, a reader that reads nothing is closed, and a reader that comes too late for the log is sent
//! the number of missed events.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bongsu_testkit::sse::{End, Event, Item, PausedStream, Stream};
use bongsu_testkit::{Api, Hub, proof, tier, wait};
use futures_util::future::join_all;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;

const ROOM: &str = "busy";
const EVENT_TYPE: &str = "busy.counted";
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
/// A small receive buffer, so that the kernel buffers little for a client that does not read.
const RECEIVE_BUFFER_BYTES: u32 = 4_096;
/// The memory that a reader that reads nothing may cost: one write of 64 KiB and the connection's buffers.
const MAX_KIB_PER_SILENT_READER: u64 = 80;
/// The memory that the database may use whatever the readers do: five connections with a page cache of 16 MiB each.
const MAX_KIB_OF_PAGES: u64 = 5 * (16 << 10);

/// Opens a stream of the room that begins with the next event.
async fn open(hub: &Hub, person: impl std::fmt::Display) -> Stream {
    let request = Stream::request(hub, &format!("/api/v1/rooms/{ROOM}/stream")).person(person);
    let mut stream = request.receive_buffer(RECEIVE_BUFFER_BYTES).open().await.expect("a stream");
    assert!(matches!(stream.next(WAIT_TIMEOUT).await, Some(Item::Retry(_))));
    stream
}

/// Publishes events `from..=to` of about 300 bytes in batches. Returns how many were acknowledged.
async fn publish(api: &Api, from: u64, to: u64) -> usize {
    let mut acknowledged = 0;
    let numbers: Vec<u64> = (from..=to).collect();
    for batch in numbers.chunks(200) {
        let text = "x".repeat(250);
        let event =
            |n: &u64| json!({"roomId": ROOM, "eventType": EVENT_TYPE, "data": {"n": n, "text": text}});
        let answer = api.publish_batch(&batch.iter().map(event).collect::<Vec<_>>()).await.expect(200);
        let results = answer.result()["results"].as_array().expect("a list").clone();
        assert!(results.iter().all(|result| result["streamId"].is_string()), "{}", answer.text());
        acknowledged += results.len();
    }
    acknowledged
}

fn number_of(event: &Event) -> u64 {
    assert_eq!(event.event, EVENT_TYPE, "{event:?}");
    event.json()["n"].as_u64().expect("a number")
}

/// Reads `1..=events` without a gap.
async fn read_all(stream: &mut Stream, events: u64) {
    for expected in 1..=events {
        let event = stream.next_event(WAIT_TIMEOUT).await.expect("an open stream");
        assert_eq!(number_of(&event), expected);
    }
}

async fn closed_as_too_slow(hub: &Hub) -> u64 {
    hub.metrics().await.get("sse_closed_total", &[("code", "3002")]) as u64
}

/// Lets a silent reader read in the end: it must find events without a gap and then the reason why it was closed.
/// Returns the number of events.
async fn read_backlog(silent: PausedStream) -> u64 {
    let mut stream = silent.resume();
    let mut items = stream.read_to_end(WAIT_TIMEOUT).await;
    assert_eq!(stream.end(), Some(End::Proper), "the end was cut off after {} items", items.len());
    let Some(Item::Event(close)) = items.pop() else { panic!("no event at the end") };
    assert_eq!(close.event, "system.close", "{close:?}");
    let told = close.json();
    assert_eq!((&told["code"], &told["reconnect"]), (&json!(3002), &json!(true)), "{told}");
    assert!(told["retryMs"].as_u64().is_some(), "{told}");
    let mut seen = 0;
    for item in items {
        if let Item::Event(event) = item {
            assert_eq!(number_of(&event), seen + 1);
            seen += 1;
        }
    }
    seen
}

#[tokio::test]
async fn stalled_readers_are_closed_with_3002_and_delay_nobody() {
    let name = "stalled_readers_are_closed_with_3002_and_delay_nobody";
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: limit.maximum, ..limit }).unwrap();
    let (silent_readers, events) = (1_000_usize, 10_000_u64);
    // Within the stall limit the slow reader reads about 30 KiB, as a reader of 1 KiB/s does with the default limit.
    let (stall, pace) = (tier::size(10, 30), tier::size(3 << 10, 1 << 10) as u64);
    let hub = Hub::builder(crate::BONGSU).env("SSE_STALL_SECS", stall).env("SSE_KEEPALIVE_SECS", 1);
    let hub = hub.env("SSE_MAX_CONNECTIONS_PER_USER", 0);
    let hub = hub.env("STREAM_MAXLEN", 20_000).start().await;
    let api = Api::new(&hub);

    let mut silent = Vec::new();
    while silent.len() < silent_readers {
        let opened = join_all((0..100).map(|reader| open(&hub, format!("silent-{reader}")))).await;
        silent.extend(opened.into_iter().map(Stream::stop_reading));
    }
    let mut slow = open(&hub, "slow").await;
    slow.read_slowly(pace);
    let mut quick = [
        open(&hub, "quick-1").await,
        open(&hub, "quick-2").await,
        Stream::request(&hub, &format!("/api/v1/rooms/{ROOM}/stream"))
            .person("q3")
            .http2()
            .open()
            .await
            .unwrap(),
    ];
    let idle_kib = hub.rss_kib();

    let gone = AtomicBool::new(false);
    let slowly_taken = AtomicU64::new(0);
    let reading_slowly = async {
        let mut got = 0_u64;
        for expected in 1..=events {
            let event = slow.next_event(WAIT_TIMEOUT).await.expect("a slow reader is not closed");
            assert_eq!(number_of(&event), expected, "to the slow reader");
            got += 1;
            if !gone.load(Ordering::SeqCst) {
                slowly_taken.store(expected, Ordering::SeqCst);
            } else {
                slow.read_slowly(u64::MAX);
            }
        }
        got
    };
    let others = async {
        let quick = join_all(quick.iter_mut().map(|one| read_all(one, events)));
        let (acknowledged, _) = tokio::join!(publish(&api, 1, events), quick);
        wait::until(WAIT_TIMEOUT, async || closed_as_too_slow(&hub).await >= silent_readers as u64).await;
        gone.store(true, Ordering::SeqCst);
        acknowledged
    };
    let (slow_reader_got, acknowledged) = tokio::join!(reading_slowly, others);

    let peak_kib = hub.peak_rss_kib();
    let bound_kib = idle_kib + MAX_KIB_OF_PAGES + silent_readers as u64 * MAX_KIB_PER_SILENT_READER;
    let slowly_taken = slowly_taken.into_inner();
    proof::record(
        "rooms",
        name,
        json!({
            "silentReaders": silent.len(), "events": acknowledged, "idleKib": idle_kib, "peakKib": peak_kib,
            "boundKib": bound_kib, "slowReaderBytesPerSecond": pace, "slowlyTaken": slowly_taken,
            "slowReaderGot": slow_reader_got, "endedWith3002": closed_as_too_slow(&hub).await,
        }),
    );
    assert!(slowly_taken > 0 && slowly_taken < events, "the slow reader was not slow: {slowly_taken}");
    assert!(peak_kib <= bound_kib, "{peak_kib} KiB at most, {idle_kib} KiB before, {bound_kib} KiB allowed");
    let found = join_all(silent.into_iter().map(read_backlog)).await;
    assert!(
        found.iter().all(|found| *found < events / 2),
        "a silent reader received too many events: {found:?}"
    );
    assert_eq!(closed_as_too_slow(&hub).await, silent_readers as u64, "readers closed with 3002");
    wait::until(WAIT_TIMEOUT, async || hub.metrics().await.get("sse_active_connections", &[]) <= 4.0).await;
}

#[tokio::test]
async fn a_reader_that_takes_a_little_at_a_time_stays_and_gets_everything() {
    // Enough data at once for a large write, at a pace that needs twice the stall limit for it. The shorter limit is
    // still longer than a busy machine holds up this reader.
    let (stall, pace, events) = (tier::size(6, 30), tier::size(5 << 10, 1 << 10) as u64, 200);
    let hub = Hub::builder(crate::BONGSU).env("SSE_STALL_SECS", stall).env("SSE_KEEPALIVE_SECS", 1);
    let hub = hub.start().await;
    let mut slow = open(&hub, "slow").await;
    slow.read_slowly(pace);
    publish(&Api::new(&hub), 1, events).await;
    read_all(&mut slow, events).await;
    assert_eq!(closed_as_too_slow(&hub).await, 0);
}

#[tokio::test]
async fn a_stalled_reader_is_closed_in_time_even_with_rare_keepalives() {
    let hub = Hub::builder(crate::BONGSU).env("SSE_STALL_SECS", 1).env("SSE_KEEPALIVE_SECS", 3_600);
    let hub = hub.start().await;
    let silent = open(&hub, "silent").await.stop_reading();
    publish(&Api::new(&hub), 1, 2_000).await;
    wait::until(WAIT_TIMEOUT, async || closed_as_too_slow(&hub).await == 1).await;
    read_backlog(silent).await;
}

#[tokio::test]
async fn a_stalled_reader_over_http2_is_closed_and_its_memory_is_freed() {
    let hub = Hub::builder(crate::BONGSU).env("SSE_STALL_SECS", 1).env("SSE_KEEPALIVE_SECS", 1);
    let hub = hub.env("STREAM_MAXLEN", 40_000).start().await;
    let request = Stream::request(&hub, &format!("/api/v1/rooms/{ROOM}/stream")).person("silent").http2();
    let silent = request.open().await.expect("a stream").stop_reading();
    // The window of an HTTP/2 client is larger than a small socket buffer.
    publish(&Api::new(&hub), 1, 30_000).await;
    let open = async || hub.metrics().await.get("sse_active_connections", &[]);
    wait::until(WAIT_TIMEOUT, async || open().await == 0.0).await;
    wait::until(WAIT_TIMEOUT, async || closed_as_too_slow(&hub).await == 1).await;
    drop(silent);
}

#[tokio::test]
async fn a_reader_that_comes_too_late_for_the_log_is_told_exactly_how_many_events_it_missed() {
    let (events, kept) = (5_000, 50);
    let hub = Hub::builder(crate::BONGSU).env("STREAM_MAXLEN", kept).env("SSE_CHANNEL_CAPACITY", 8);
    let hub = hub.start().await;
    let silent = open(&hub, "late").await.stop_reading();
    let acknowledged = publish(&Api::new(&hub), 1, events).await;
    let mut late = silent.resume();
    let (mut last, mut told, mut taken, mut reports) = (0, 0, 0, 0);
    while last < events {
        let event = late.next_event(WAIT_TIMEOUT).await.expect("an open stream");
        if event.event == "system.lagged" {
            assert_eq!(event.own_id, None, "a report has no id: the position stays that of the last event");
            let missed = event.json()["missed"].as_u64().expect("a number");
            assert!(missed > 0);
            last += missed;
            told += missed;
            reports += 1;
        } else {
            assert_eq!(number_of(&event), last + 1, "after {reports} reports of {told} missed events");
            last += 1;
            taken += 1;
        }
    }
    assert!(reports >= 1, "no event was missed");
    assert_eq!(last, events);
    assert_eq!(hub.metrics().await.get("events_lagged_total", &[]), told as f64);
    // The newest events were still in the log.
    let page =
        Api::new(&hub).person(1).get(&format!("/api/v1/rooms/{ROOM}/events?since=0-0&count=500")).await;
    let still_there = page.expect(200).result()["events"].as_array().map_or(0, Vec::len);
    proof::record(
        "rooms",
        "a_reader_that_comes_too_late_for_the_log_is_told_exactly_how_many_events_it_missed",
        json!({"events": acknowledged, "kept": still_there, "missed": told, "reports": reports, "taken": taken}),
    );
    assert!(still_there >= kept, "too much was trimmed");
}
