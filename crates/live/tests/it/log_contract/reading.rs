//! Reading: how positions are classified, how large pages are, and that entries are read back unchanged.

use bongsu_kernel::{Id, StreamId};
use bongsu_live::log::ReadLimits;
use bongsu_live::{LogPosition, StartPosition};

use super::Adapter;
use super::support::{ALL, Event, LogFixture, NOW, appended};

async fn fill<A: Adapter>(fixture: &LogFixture<A>, room: &str, count: u64, keep: u32) -> Vec<StreamId> {
    let mut ids = Vec::new();
    for number in 0..count {
        fixture.clock.set(NOW + number);
        ids.push(fixture.append_one(&Event::of(room).number(number).keep(keep)).await.id);
    }
    ids
}

pub(crate) async fn an_empty_subject_knows_only_its_beginning<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    fixture.append_one(&Event::of("other")).await;
    assert_eq!(fixture.head("42").await, LogPosition::START);
    for (after, start) in [
        (StreamId::START, StartPosition::Known),
        (StreamId::EMPTY_SUBJECT, StartPosition::Known),
        (StreamId::new(0, 2), StartPosition::Unknown),
        (StreamId::new(NOW, 0), StartPosition::Unknown),
    ] {
        let page = fixture.read("42", after, ALL).await;
        assert_eq!(
            (page.start, page.entries.len(), page.more, page.head),
            (start, 0, false, LogPosition::START)
        );
    }
}

pub(crate) async fn a_page_begins_after_its_position<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let ids = fill(&fixture, "42", 10, 100).await;
    for (at, id) in ids.iter().enumerate() {
        let page = fixture.read("42", *id, ALL).await;
        assert_eq!((page.start, page.more, page.head.id), (StartPosition::Known, false, ids[9]));
        let read: Vec<StreamId> = page.entries.iter().map(|entry| entry.position.id).collect();
        assert_eq!(read, ids[at + 1..]);
    }
    let page = fixture.read("42", StreamId::START, ALL).await;
    assert_eq!((page.start, page.entries.len()), (StartPosition::Known, 10));
}

pub(crate) async fn a_position_that_never_existed_is_unknown<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let ids = fill(&fixture, "42", 3, 100).await;
    fill(&fixture, "43", 3, 100).await;
    let newest = ids[2];
    let unknown_positions = [
        StreamId::new(newest.ms, newest.seq + 1),
        StreamId::new(newest.ms + 1, 0),
        // Between two events.
        StreamId::new(ids[0].ms, ids[0].seq + 1),
    ];
    for position in unknown_positions {
        let page = fixture.read("42", position, ALL).await;
        assert_eq!(
            (page.start, page.entries.len(), page.more),
            (StartPosition::Unknown, 0, false),
            "{position}"
        );
        // The stream continues after the head.
        assert_eq!(page.head.id, newest);
    }
}

pub(crate) async fn a_position_older_than_the_log_is_reported_as_trimmed<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let ids = fill(&fixture, "42", 400, 5).await;
    let kept = fixture.entries("42").await;
    let oldest = kept[0].position;
    assert!(oldest.id > ids[0], "no entry was trimmed");
    for position in [ids[0], StreamId::new(1, 0), StreamId::new(oldest.id.ms - 1, 9)] {
        let page = fixture.read("42", position, ALL).await;
        assert_eq!(page.start, StartPosition::Trimmed { oldest }, "{position}");
        assert_eq!(page.entries, kept);
        let first = fixture.read("42", position, ReadLimits { entries: 1, bytes: 1 }).await;
        assert_eq!(
            (first.start, &first.entries[..], first.more),
            (StartPosition::Trimmed { oldest }, &kept[..1], true)
        );
    }
    // `0-0` always means the beginning. `0-1`, the position of an empty subject, can be trimmed.
    assert_eq!(fixture.read("42", StreamId::START, ALL).await.start, StartPosition::Known);
    assert!(matches!(
        fixture.read("42", StreamId::EMPTY_SUBJECT, ALL).await.start,
        StartPosition::Trimmed { .. }
    ));
    assert_eq!(fixture.read("42", oldest.id, ALL).await.start, StartPosition::Known);
}

pub(crate) async fn positions_with_the_largest_numbers_are_handled<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let ids = fill(&fixture, "42", 3, 100).await;
    let half = i64::MAX as u64;
    for ms in [NOW, half, half + 1, u64::MAX] {
        for seq in [half, half + 1, u64::MAX] {
            let page = fixture.read("42", StreamId::new(ms, seq), ALL).await;
            assert_eq!((page.start, page.entries.len()), (StartPosition::Unknown, 0), "{ms}-{seq}");
        }
    }
    for seq in [2, half, half + 1, u64::MAX] {
        let page = fixture.read("42", StreamId::new(0, seq), ALL).await;
        assert!(matches!(page.start, StartPosition::Trimmed { oldest } if oldest.id == ids[0]), "0-{seq}");
        assert_eq!(page.entries.len(), 3);
    }
}

pub(crate) async fn the_beginning_of_an_empty_subject_is_known_while_nothing_is_trimmed<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    fill(&fixture, "42", 3, 100).await;
    let page = fixture.read("42", StreamId::EMPTY_SUBJECT, ALL).await;
    assert_eq!((page.start, page.entries.len()), (StartPosition::Known, 3));
}

pub(crate) async fn a_read_without_limits_returns_every_entry<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    fill(&fixture, "42", 3, 100).await;
    let page =
        fixture.read("42", StreamId::START, ReadLimits { entries: usize::MAX, bytes: usize::MAX }).await;
    assert_eq!((page.entries.len(), page.more), (3, false));
}

pub(crate) async fn pages_are_bounded_in_entries<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let ids = fill(&fixture, "42", 10, 100).await;
    for (page_size, pages) in [(1, 10), (3, 4), (5, 2), (9, 2), (10, 1), (11, 1)] {
        let (mut at, mut read, mut page_count) = (StreamId::START, Vec::new(), 0);
        loop {
            let page = fixture.read("42", at, ReadLimits { entries: page_size, bytes: usize::MAX }).await;
            page_count += 1;
            assert!(page.entries.len() <= page_size);
            read.extend(page.entries.iter().map(|entry| entry.position.id));
            at = *read.last().unwrap();
            // `more` is exact, so that no empty page has to be read at the end.
            assert_eq!(page.more, at != ids[9]);
            if !page.more {
                break;
            }
        }
        assert_eq!((read, page_count), (ids.clone(), pages), "pages of {page_size} entries");
    }
}

pub(crate) async fn pages_are_bounded_in_bytes_and_never_empty<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let text = "x".repeat(1_000);
    let events = vec![Event::of("42").data(&format!("{{\"text\":\"{text}\"}}")); 10];
    fixture.append(events).await;
    let read = async |bytes| fixture.read("42", StreamId::START, ReadLimits { entries: 100, bytes }).await;
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
    let mut fixture = LogFixture::<A>::killable().await;
    for round in 0..3 {
        let newest = fill(&fixture, "42", 5, 1).await[4];
        assert_eq!(fixture.head("42").await.id, newest);
        assert_eq!(fixture.read("42", newest, ALL).await.head.id, newest);
        if round == 0 {
            fixture.reopen().await;
        } else {
            fixture.kill_and_reopen().await;
        }
        assert_eq!(fixture.head("42").await.id, newest);
    }
}

pub(crate) async fn appended_events_are_read_back_unchanged<A: Adapter>() {
    let mut fixture = LogFixture::<A>::empty().await;
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
    let outcomes = fixture.append(events).await;
    fixture.reopen().await;
    let entries = fixture.entries("42").await;
    assert_eq!(entries.len(), 4);
    for (at, entry) in entries.iter().enumerate() {
        assert_eq!(entry.data.as_str(), data[at]);
        assert_eq!(entry.event_type.as_str(), kinds[at]);
        assert_eq!(entry.publisher.as_ref().map(Id::as_str), people[at]);
        assert_eq!((entry.position.id, entry.at), (appended(&outcomes[at]).id, NOW));
    }
}
