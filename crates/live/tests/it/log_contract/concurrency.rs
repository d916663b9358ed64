//! Many at once: whoever comes first, a subject has one order, and all who look at it see the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bongsu_kernel::StreamId;
use bongsu_live::log::Most;
use bongsu_live::{Log, Start};

use super::Adapter;
use super::support::{Event, NOW, Stage, grow, subject};

const ROOMS: [&str; 4] = ["1", "2", "3", "4"];

pub(crate) async fn many_appenders_are_told_and_read_in_the_order_of_ids<A: Adapter>() {
    const APPENDERS: u64 = 32;
    const EACH: u64 = 40;
    let stage = Stage::<A>::empty().await;
    stage.listen(&ROOMS.map(subject)).await;
    let (turns, mut appending) = (Arc::new(AtomicU64::new(0)), tokio::task::JoinSet::new());
    for appender in 0..APPENDERS {
        let (log, clock, turns) = (stage.log(), stage.clock.clone(), turns.clone());
        appending.spawn(async move {
            let mut given = Vec::new();
            for number in 0..EACH {
                // The clock runs, stands and goes back while they are at it.
                let turn = turns.fetch_add(1, Ordering::Relaxed);
                clock.set(NOW + turn / 10 - turn % 3);
                let room = ROOMS[((appender + number) % 4) as usize];
                let batch =
                    (0..1 + turn % 3).map(|_| Event::of(room).number(number).append().clone()).collect();
                let outcomes: Vec<_> = log.append(batch).await.unwrap();
                given.extend(outcomes.into_iter().map(|outcome| (room, outcome.unwrap().id)));
            }
            given
        });
    }
    let mut acknowledged: BTreeMap<&str, BTreeSet<StreamId>> = BTreeMap::new();
    let mut count = 0;
    for given in appending.join_all().await {
        // One who waits for its answer is answered in the order of its subject.
        for room in ROOMS {
            let own: Vec<StreamId> = given.iter().filter(|(of, _)| *of == room).map(|(_, id)| *id).collect();
            assert!(grow(&own), "{own:?}");
        }
        count += given.len();
        given.into_iter().for_each(|(room, id)| _ = acknowledged.entry(room).or_default().insert(id));
    }
    assert_eq!(acknowledged.values().map(BTreeSet::len).sum::<usize>(), count, "an id was given twice");
    for room in ROOMS {
        stage.sink.wait_for(&subject(room), *acknowledged[room].last().unwrap()).await;
        let told: Vec<StreamId> = stage.sink.of(room).iter().map(|told| told.entry.place.id).collect();
        assert!(grow(&told), "the sink was told out of order");
        assert_eq!(told, acknowledged[room].iter().copied().collect::<Vec<_>>());
        assert_eq!(stage.ids(room).await, told);
        let previous: Vec<StreamId> = stage.sink.of(room).iter().map(|told| told.previous).collect();
        assert_eq!((previous[0], &previous[1..]), (StreamId::START, &told[..told.len() - 1]));
    }
}

pub(crate) async fn readers_beside_appenders_see_no_gap<A: Adapter>() {
    const EVENTS: u64 = 600;
    let stage = Stage::<A>::empty().await;
    let reading: Vec<_> = (1..=4).map(|most| read_on(stage.log(), most * 3)).collect();
    let writing = async {
        for number in 0..EVENTS {
            stage.append_one(&Event::of("42").number(number)).await;
        }
    };
    let mut readers = tokio::task::JoinSet::new();
    reading.into_iter().for_each(|reader| _ = readers.spawn(reader));
    writing.await;
    let all = stage.ids("42").await;
    for read in readers.join_all().await {
        assert_eq!(read, all);
    }

    async fn read_on(log: Arc<dyn Log>, most: usize) -> Vec<StreamId> {
        let (subject, mut at, mut read) = (subject("42"), StreamId::START, Vec::new());
        while (read.len() as u64) < EVENTS {
            let page = log.read(&subject, at, Most { entries: most, bytes: usize::MAX }).await.unwrap();
            assert_eq!(page.start, Start::Known, "{at} was read a moment ago");
            read.extend(page.entries.iter().map(|entry| entry.place.id));
            at = read.last().copied().unwrap_or_default();
            assert!(page.head.id >= at);
            tokio::task::yield_now().await;
        }
        read
    }
}
