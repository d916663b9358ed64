//! Readers that read nothing for a while: they cost a bounded amount of memory, slow down no other reader, and
//! receive everything in the end.

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::{Event, Item, Stream};
use bongsu_testkit::{Hub, proof, tier};
use futures_util::future::join_all;
use serde_json::json;

use super::fleet::{FLEET_TIMEOUT, Fleet};
use super::follower::{LAST_NUMBER, row_of};
use super::{open, rows, stream_request};

const EVENT_ID: &str = "42";
/// A small receive buffer, so that the kernel buffers little for a client that does not read.
const RECEIVE_BUFFER_BYTES: u32 = 4_096;
/// The memory that a reader that reads nothing may cost: a page and the connection's buffers.
const MAX_KIB_PER_SILENT_READER: u64 = 96;
/// The memory that the hub may use for a while whatever the readers do: the rows that the tail reads at once,
/// and the page cache of an embedded database.
const MAX_KIB_OF_TAIL: u64 = 16 << 10;
const MAX_KIB_OF_PAGES: u64 = 5 * (16 << 10);
/// The length of a row's text: all rows together exceed the kernel's buffers for a client that does not read.
const ROW_TEXT_BYTES: usize = 2_000;

/// Opens a stream that begins with the next row.
async fn open_stream(hub: &Hub) -> Stream {
    let mut stream = open(stream_request(hub, EVENT_ID, 7).receive_buffer(RECEIVE_BUFFER_BYTES)).await;
    assert_eq!(stream.next(FLEET_TIMEOUT).await, Some(Item::Retry(5_000)));
    stream
}

/// Reads to the last row without a gap, resuming after every end of the stream. Returns how often the stream ended.
async fn read_to_last(hub: &Hub, mut stream: Stream) -> usize {
    let (mut expected, mut ends, mut expected_at_end) = (1, 0, 0);
    loop {
        match stream.next_event(FLEET_TIMEOUT).await {
            Some(Event { event, .. }) if event == "system.close" => {}
            Some(event) => match row_of(&event).1 {
                LAST_NUMBER => return ends,
                number => {
                    assert_eq!(number, expected, "after {ends} ends");
                    expected += 1;
                }
            },
            None => {
                assert!(expected > expected_at_end, "it ended twice at row {expected}");
                (ends, expected_at_end) = (ends + 1, expected);
                let last = stream.last_event_id().to_owned();
                stream = open(stream_request(hub, EVENT_ID, 7).last_event_id(&last)).await;
            }
        }
    }
}

/// Some readers read nothing while more rows are written than a ring buffer holds. Returns the memory that the hubs
/// took in KiB, the allowed KiB, and how many of these readers were closed.
pub(super) async fn silent_readers(fleet: &Fleet, silent: usize, events: u64) -> (u64, u64, usize) {
    fleet.accept(EVENT_ID, &[7]);
    let (mut held, mut quick) = (Vec::new(), Vec::new());
    for hub in &fleet.hubs {
        for _ in 0..silent {
            held.push((hub, open_stream(hub).await.stop_reading()));
        }
        quick.push((hub, open_stream(hub).await));
    }
    let idle: u64 = fleet.hubs.iter().map(Hub::rss_kib).sum();
    let writing = async {
        fleet.write_large(EVENT_ID, 1..=events, ROW_TEXT_BYTES).await;
        fleet.sql(&rows(EVENT_ID, [LAST_NUMBER]));
    };
    let reading = join_all(quick.into_iter().map(|(hub, stream)| read_to_last(hub, stream)));
    let ((), ends) = tokio::join!(writing, reading);
    assert!(ends.iter().all(|ends| *ends == 0), "a reader that reads was closed");
    let peak: u64 = fleet.hubs.iter().map(Hub::peak_rss_kib).sum();
    let hubs = fleet.hubs.len() as u64;
    let own = MAX_KIB_OF_TAIL + if fleet.database.is_none() { MAX_KIB_OF_PAGES } else { 0 };
    let bound = idle + hubs * (own + silent as u64 * MAX_KIB_PER_SILENT_READER);
    assert!(peak <= bound, "{peak} KiB at most, {idle} KiB before, {bound} KiB allowed");
    // In the end all silent readers read, and receive everything.
    let ends = join_all(held.into_iter().map(|(hub, held)| read_to_last(hub, held.resume()))).await;
    (peak - idle, bound - idle, ends.iter().filter(|ends| **ends > 0).count())
}

async fn a_silent_reader_slows_nobody_and_gets_everything(flavour: Option<Flavour>) {
    let with = |builder: bongsu_testkit::hub::Builder| {
        // The test reads and writes on one thread; the stall limit must outlast the time that writing takes.
        builder.env("SSE_CHANNEL_CAPACITY", 64).env("SSE_STALL_SECS", 30).env("OUTBOX_PING_SECS", 1)
    };
    let Some(fleet) = Fleet::start_with(flavour, None, with).await else { return };
    // There are so many readers that a hub that buffered the unread rows of each would exceed the bound.
    let silent = tier::size(if flavour.is_none() { 24 } else { 8 }, 100);
    // Far more rows than a ring buffer holds or the kernel buffers.
    let events = 4_000;
    let (took, may_take, ended) = silent_readers(&fleet, silent, events).await;
    let name = format!("a_silent_reader_slows_nobody_and_gets_everything_on_{}", fleet.name());
    let facts = json!({"hubs": fleet.hubs.len(), "silentReadersEach": silent, "events": fleet.row_order(EVENT_ID).len(), "kib": took,
        "kibAllowed": may_take, "endedAndCameBack": ended});
    proof::record("outbox", &name, facts);
}

#[tokio::test]
async fn a_silent_reader_slows_nobody_and_gets_everything_on_postgres() {
    a_silent_reader_slows_nobody_and_gets_everything(Some(Flavour::Postgres)).await;
}

#[tokio::test]
async fn a_silent_reader_slows_nobody_and_gets_everything_on_mariadb() {
    a_silent_reader_slows_nobody_and_gets_everything(Some(Flavour::MariaDb)).await;
}

#[tokio::test]
async fn a_silent_reader_slows_nobody_and_gets_everything_on_the_embedded_file() {
    a_silent_reader_slows_nobody_and_gets_everything(None).await;
}
