//! Concurrency: a subject has one order, which deliveries and all readers agree on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bongsu_kernel::StreamId;
use bongsu_live::log::ReadLimits;
use bongsu_live::{Log, StartPosition};

use super::Adapter;
use super::support::{Event, LogFixture, NOW, is_strictly_increasing, subject};

const ROOMS: [&str; 4] = ["1", "2", "3", "4"];

pub(crate) async fn concurrent_appends_are_delivered_and_read_in_the_order_of_ids<A: Adapter>() {
    const APPENDERS: u64 = 32;
    const EACH: u64 = 40;
    let fixture = LogFixture::<A>::empty().await;
    fixture.subscribe(&ROOMS.map(subject)).await;
    let (batches, mut appending) = (Arc::new(AtomicU64::new(0)), tokio::task::JoinSet::new());
    for appender in 0..APPENDERS {
        let (log, clock, batches) = (fixture.log(), fixture.clock.clone(), batches.clone());
        appending.spawn(async move {
            let mut appended = Vec::new();
            for number in 0..EACH {
                // Meanwhile the clock advances, stands still and goes back.
                let batch_number = batches.fetch_add(1, Ordering::Relaxed);
                clock.set(NOW + batch_number / 10 - batch_number % 3);
                let room = ROOMS[((appender + number) % 4) as usize];
                let batch = (0..1 + batch_number % 3)
                    .map(|_| Event::of(room).number(number).append().clone())
                    .collect();
                let outcomes: Vec<_> = log.append(batch).await.unwrap();
                appended.extend(outcomes.into_iter().map(|outcome| (room, outcome.unwrap().id)));
            }
            appended
        });
    }
    let mut acknowledged: BTreeMap<&str, BTreeSet<StreamId>> = BTreeMap::new();
    let mut count = 0;
    for appended in appending.join_all().await {
        // The ids of one appender grow within a room, because it waits for each answer.
        for room in ROOMS {
            let own: Vec<StreamId> =
                appended.iter().filter(|(of, _)| *of == room).map(|(_, id)| *id).collect();
            assert!(is_strictly_increasing(&own), "{own:?}");
        }
        count += appended.len();
        appended.into_iter().for_each(|(room, id)| _ = acknowledged.entry(room).or_default().insert(id));
    }
    assert_eq!(acknowledged.values().map(BTreeSet::len).sum::<usize>(), count, "an id was used twice");
    for room in ROOMS {
        fixture.sink.wait_for(&subject(room), *acknowledged[room].last().unwrap()).await;
        let deliveries = fixture.sink.of(room);
        let delivered: Vec<StreamId> = deliveries.iter().map(|delivery| delivery.entry.position.id).collect();
        assert!(is_strictly_increasing(&delivered), "deliveries are out of order");
        assert_eq!(delivered, acknowledged[room].iter().copied().collect::<Vec<_>>());
        assert_eq!(fixture.ids(room).await, delivered);
        let previous: Vec<StreamId> = deliveries.iter().map(|delivery| delivery.previous).collect();
        assert_eq!((previous[0], &previous[1..]), (StreamId::START, &delivered[..delivered.len() - 1]));
    }
}

pub(crate) async fn readers_beside_appenders_see_no_gap<A: Adapter>() {
    const EVENTS: u64 = 600;
    let fixture = LogFixture::<A>::empty().await;
    let reading: Vec<_> = (1..=4).map(|reader| read_all(fixture.log(), reader * 3)).collect();
    let writing = async {
        for number in 0..EVENTS {
            fixture.append_one(&Event::of("42").number(number)).await;
        }
    };
    let mut readers = tokio::task::JoinSet::new();
    reading.into_iter().for_each(|reader| _ = readers.spawn(reader));
    writing.await;
    let all = fixture.ids("42").await;
    for read in readers.join_all().await {
        assert_eq!(read, all);
    }

    async fn read_all(log: Arc<dyn Log>, page_size: usize) -> Vec<StreamId> {
        let (subject, mut at, mut read) = (subject("42"), StreamId::START, Vec::new());
        while (read.len() as u64) < EVENTS {
            let page =
                log.read(&subject, at, ReadLimits { entries: page_size, bytes: usize::MAX }).await.unwrap();
            assert_eq!(page.start, StartPosition::Known, "{at} was in the previous page");
            read.extend(page.entries.iter().map(|entry| entry.position.id));
            at = read.last().copied().unwrap_or_default();
            assert!(page.head.id >= at);
            tokio::task::yield_now().await;
        }
        read
    }
}
