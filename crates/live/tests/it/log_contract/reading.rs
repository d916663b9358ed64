//! Reading: what a position turns out to be, how much a page holds, and that nothing was changed on the way.

use bongsu_kernel::{Id, StreamId};
use bongsu_live::log::Most;
use bongsu_live::{Place, Start};

use super::Adapter;
use super::support::{ALL, Event, NOW, Stage, appended};

async fn fill<A: Adapter>(stage: &Stage<A>, room: &str, count: u64, keep: u32) -> Vec<StreamId> {
    let mut ids = Vec::new();
    for number in 0..count {
        stage.clock.set(NOW + number);
        ids.push(stage.append_one(&Event::of(room).number(number).keep(keep)).await.id);
    }
    ids
}

pub(crate) async fn an_empty_subject_has_a_beginning_and_nothing_else<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    stage.append_one(&Event::of("other")).await;
    assert_eq!(stage.head("42").await, Place::START);
    for (after, start) in [
        (StreamId::START, Start::Known),
        (StreamId::EMPTY, Start::Known),
        (StreamId::new(0, 2), Start::Unknown),
        (StreamId::new(NOW, 0), Start::Unknown),
    ] {
        let page = stage.read("42", after, ALL).await;
        assert_eq!((page.start, page.entries.len(), page.more, page.head), (start, 0, false, Place::START));
    }
}

pub(crate) async fn reading_goes_on_after_a_position<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let ids = fill(&stage, "42", 10, 100).await;
    for (at, id) in ids.iter().enumerate() {
        let page = stage.read("42", *id, ALL).await;
        assert_eq!((page.start, page.more, page.head.id), (Start::Known, false, ids[9]));
        let read: Vec<StreamId> = page.entries.iter().map(|entry| entry.place.id).collect();
        assert_eq!(read, ids[at + 1..]);
    }
    let page = stage.read("42", StreamId::START, ALL).await;
    assert_eq!((page.start, page.entries.len()), (Start::Known, 10));
}

pub(crate) async fn a_position_from_nowhere_is_unknown<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let ids = fill(&stage, "42", 3, 100).await;
    fill(&stage, "43", 3, 100).await;
    let newest = ids[2];
    let nowhere = [
        StreamId::new(newest.ms, newest.seq + 1),
        StreamId::new(newest.ms + 1, 0),
        // Between two events, where nothing ever was.
        StreamId::new(ids[0].ms, ids[0].seq + 1),
    ];
    for position in nowhere {
        let page = stage.read("42", position, ALL).await;
        assert_eq!((page.start, page.entries.len(), page.more), (Start::Unknown, 0, false), "{position}");
        // From there one can go on.
        assert_eq!(page.head.id, newest);
    }
}

pub(crate) async fn a_position_older_than_the_log_is_told_with_the_oldest<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let ids = fill(&stage, "42", 400, 5).await;
    let kept = stage.entries("42").await;
    let oldest = kept[0].place;
    assert!(oldest.id > ids[0], "something was to be trimmed");
    for position in [ids[0], StreamId::new(1, 0), StreamId::new(oldest.id.ms - 1, 9)] {
        let page = stage.read("42", position, ALL).await;
        assert_eq!(page.start, Start::Trimmed { oldest }, "{position}");
        assert_eq!(page.entries, kept);
        let first = stage.read("42", position, Most { entries: 1, bytes: 1 }).await;
        assert_eq!(
            (first.start, &first.entries[..], first.more),
            (Start::Trimmed { oldest }, &kept[..1], true)
        );
    }
    // The beginning is no position that could be lost, but the hub's own name for it is.
    assert_eq!(stage.read("42", StreamId::START, ALL).await.start, Start::Known);
    assert!(matches!(stage.read("42", StreamId::EMPTY, ALL).await.start, Start::Trimmed { .. }));
    assert_eq!(stage.read("42", oldest.id, ALL).await.start, Start::Known);
}

pub(crate) async fn positions_at_the_limits_of_numbers_do_no_harm<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let ids = fill(&stage, "42", 3, 100).await;
    let half = i64::MAX as u64;
    for ms in [NOW, half, half + 1, u64::MAX] {
        for seq in [half, half + 1, u64::MAX] {
            let page = stage.read("42", StreamId::new(ms, seq), ALL).await;
            assert_eq!((page.start, page.entries.len()), (Start::Unknown, 0), "{ms}-{seq}");
        }
    }
    for seq in [2, half, half + 1, u64::MAX] {
        let page = stage.read("42", StreamId::new(0, seq), ALL).await;
        assert!(matches!(page.start, Start::Trimmed { oldest } if oldest.id == ids[0]), "0-{seq}");
        assert_eq!(page.entries.len(), 3);
    }
}

pub(crate) async fn the_beginning_of_an_empty_subject_is_known_while_nothing_is_trimmed<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    fill(&stage, "42", 3, 100).await;
    let page = stage.read("42", StreamId::EMPTY, ALL).await;
    assert_eq!((page.start, page.entries.len()), (Start::Known, 3));
}

pub(crate) async fn a_reader_that_sets_no_bound_gets_everything<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    fill(&stage, "42", 3, 100).await;
    let page = stage.read("42", StreamId::START, Most { entries: usize::MAX, bytes: usize::MAX }).await;
    assert_eq!((page.entries.len(), page.more), (3, false));
}

pub(crate) async fn pages_are_bounded_in_entries<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let ids = fill(&stage, "42", 10, 100).await;
    for (most, pages) in [(1, 10), (3, 4), (5, 2), (9, 2), (10, 1), (11, 1)] {
        let (mut at, mut read, mut asked) = (StreamId::START, Vec::new(), 0);
        loop {
            let page = stage.read("42", at, Most { entries: most, bytes: usize::MAX }).await;
            asked += 1;
            assert!(page.entries.len() <= most);
            read.extend(page.entries.iter().map(|entry| entry.place.id));
            at = *read.last().unwrap();
            // `more` is exact: no page is asked for in vain.
            assert_eq!(page.more, at != ids[9]);
            if !page.more {
                break;
            }
        }
        assert_eq!((read, asked), (ids.clone(), pages), "pages of {most}");
    }
}

pub(crate) async fn pages_are_bounded_in_bytes_and_never_empty<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let text = "x".repeat(1_000);
    let events = vec![Event::of("42").data(&format!("{{\"text\":\"{text}\"}}")); 10];
    stage.append(events).await;
    let read = async |bytes| stage.read("42", StreamId::START, Most { entries: 100, bytes }).await;
    for tiny in [0, 1, 999] {
        let page = read(tiny).await;
        assert_eq!((page.entries.len(), page.more), (1, true), "{tiny} bytes");
    }
    let page = read(5_000).await;
    assert!((2..=6).contains(&page.entries.len()) && page.more, "{} entries", page.entries.len());
    let page = read(50_000).await;
    assert_eq!((page.entries.len(), page.more), (10, false));
}

pub(crate) async fn the_head_is_the_newest_event<A: Adapter>() {
    let mut stage = Stage::<A>::mortal().await;
    for round in 0..3 {
        let newest = fill(&stage, "42", 5, 1).await[4];
        assert_eq!(stage.head("42").await.id, newest);
        assert_eq!(stage.read("42", newest, ALL).await.head.id, newest);
        if round == 0 {
            stage.reopen().await;
        } else {
            stage.kill_and_reopen().await;
        }
        assert_eq!(stage.head("42").await.id, newest);
    }
}

pub(crate) async fn everything_that_was_appended_is_read_back<A: Adapter>() {
    let mut stage = Stage::<A>::empty().await;
    let long = format!("{{\"text\":\"{}\"}}", "가".repeat(20_000));
    let data =
        ["{}", "{\"a\":[1,2.50,-0,1e400,null,true,{\"\":\"\"}]}", "{\"n\":9007199254740993}", long.as_str()];
    let kinds = ["a.b", "retrospect.submitted", "comment.created.v2", "like.toggled"];
    let people = [None, Some("1"), Some("user:1@x.y_z-"), Some("007")];
    let events: Vec<Event> = (0..4)
        .map(|at| {
            let event = Event::of("42").data(data[at]).kind(kinds[at]);
            people[at].map_or(event.clone(), |id| event.publisher(id))
        })
        .collect();
    let outcomes = stage.append(events).await;
    stage.reopen().await;
    let entries = stage.entries("42").await;
    assert_eq!(entries.len(), 4);
    for (at, entry) in entries.iter().enumerate() {
        assert_eq!(entry.data.as_str(), data[at]);
        assert_eq!(entry.event_type.as_str(), kinds[at]);
        assert_eq!(entry.publisher.as_ref().map(Id::as_str), people[at]);
        assert_eq!((entry.place.id, entry.at), (appended(&outcomes[at]).id, NOW));
    }
}
