//! Readers that take nothing for a while: they cost a bounded amount of memory, slow nobody, and get everything in the end.

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::{Event, Item, Stream};
use bongsu_testkit::{Hub, proof, tier};
use futures_util::future::join_all;
use serde_json::json;

use super::fleet::{Fleet, LONG};
use super::follower::{LAST, read};
use super::{follow, open, rows};

const EVENT: &str = "42";
/// A small receive buffer, so that the kernel takes little in place of a client that does not read.
const BUFFER: u32 = 4_096;
/// What a reader that takes nothing may cost: a page and the connection's buffers.
const KIB_PER_SILENT_READER: u64 = 96;
/// What the hub may take for a while whoever reads: what the tail reads at once, and the pages of a database in the process.
const KIB_OF_ITS_OWN: u64 = 16 << 10;
const KIB_OF_PAGES: u64 = 5 * (16 << 10);
/// Of a row: all of them are more than the kernel keeps on the way to somebody who does not read.
const BYTES: usize = 2_000;

/// A stream that begins now.
async fn begin(hub: &Hub) -> Stream {
    let mut stream = open(follow(hub, EVENT, 7).receive_buffer(BUFFER)).await;
    assert_eq!(stream.next(LONG).await, Some(Item::Retry(5_000)));
    stream
}

/// Reads `from..` to the last row without a hole; a stream that ends says that its reader may come back. Gives how often it
/// did.
async fn read_on(hub: &Hub, mut stream: Stream) -> usize {
    let (mut expected, mut ends, mut expected_at_end) = (1, 0, 0);
    loop {
        match stream.next_event(LONG).await {
            Some(Event { event, .. }) if event == "system.close" => {}
            Some(event) => match read(&event).1 {
                LAST => return ends,
                number => {
                    assert_eq!(number, expected, "after {ends} ends");
                    expected += 1;
                }
            },
            None => {
                assert!(expected > expected_at_end, "it was ended twice at {expected}");
                (ends, expected_at_end) = (ends + 1, expected);
                let last = stream.last_event_id().to_owned();
                stream = open(follow(hub, EVENT, 7).last_event_id(&last)).await;
            }
        }
    }
}

/// Some take nothing while rows come, more than a ring holds. What the hubs took in KiB, what they may, and how many
/// readers were ended.
pub(super) async fn silent_readers(fleet: &Fleet, silent: usize, events: u64) -> (u64, u64, usize) {
    fleet.accept(EVENT, &[7]);
    let (mut held, mut quick) = (Vec::new(), Vec::new());
    for hub in &fleet.hubs {
        for _ in 0..silent {
            held.push((hub, begin(hub).await.stop_reading()));
        }
        quick.push((hub, begin(hub).await));
    }
    let idle: u64 = fleet.hubs.iter().map(Hub::rss_kib).sum();
    let writing = async {
        fleet.write_large(EVENT, 1..=events, BYTES).await;
        fleet.sql(&rows(EVENT, [LAST]));
    };
    let reading = join_all(quick.into_iter().map(|(hub, stream)| read_on(hub, stream)));
    let ((), ends) = tokio::join!(writing, reading);
    assert!(ends.iter().all(|ends| *ends == 0), "somebody who reads was ended");
    let peak: u64 = fleet.hubs.iter().map(Hub::peak_rss_kib).sum();
    let hubs = fleet.hubs.len() as u64;
    let own = KIB_OF_ITS_OWN + if fleet.database.is_none() { KIB_OF_PAGES } else { 0 };
    let bound = idle + hubs * (own + silent as u64 * KIB_PER_SILENT_READER);
    assert!(peak <= bound, "{peak} KiB at most, {idle} KiB before, {bound} KiB allowed");
    // All of them look at last, and get everything.
    let ends = join_all(held.into_iter().map(|(hub, held)| read_on(hub, held.resume()))).await;
    (peak - idle, bound - idle, ends.iter().filter(|ends| **ends > 0).count())
}

async fn a_silent_reader_slows_nobody_and_gets_everything(flavour: Option<Flavour>) {
    let with = |builder: bongsu_testkit::hub::Builder| {
        // The test reads and writes on one thread; the stall limit must outlast the time that writing takes.
        builder.env("SSE_CHANNEL_CAPACITY", 64).env("SSE_STALL_SECS", 30).env("OUTBOX_PING_SECS", 1)
    };
    let Some(fleet) = Fleet::start_with(flavour, None, with).await else { return };
    // Enough that keeping for each what it has not taken would show.
    let silent = tier::size(if flavour.is_none() { 24 } else { 8 }, 100);
    // Far more than a ring holds, and than the kernel keeps on the way.
    let events = 4_000;
    let (took, may_take, ended) = silent_readers(&fleet, silent, events).await;
    let name = format!("a_silent_reader_slows_nobody_and_gets_everything_on_{}", fleet.name());
    let facts = json!({"hubs": fleet.hubs.len(), "silentReadersEach": silent, "events": fleet.order(EVENT).len(), "kib": took,
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
