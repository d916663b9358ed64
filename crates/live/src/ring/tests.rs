//! The ring beside a log of a few lines: nobody misses anything, nobody sees anything twice.

use bongsu_kernel::text::Language;
use proptest::prelude::*;

use super::*;
use crate::message::Data;

fn place(n: u64) -> Place {
    Place { id: StreamId::new(n, 0), number: Some(n) }
}

/// An entry whose message is its number.
fn frame(n: u64) -> RingEntry {
    RingEntry::new(Item::new(place(n), message(&n)), Instant::now())
}

fn record(n: u64, removes: Option<Removed>) -> RingEntry {
    RingEntry { removes, message: None, ..frame(n) }
}

fn message(data: &impl ToString) -> Message {
    Message::own("n", None, Data::Json(data.to_string().into()))
}

/// The data of the messages, each followed by a semicolon.
fn text(frames: &Frames) -> String {
    let Frames::Joined(bytes) = frames else { unreachable!("a stream of one subject") };
    let frames = String::from_utf8_lossy(bytes).into_owned();
    frames.lines().filter_map(|line| line.strip_prefix("data: ")).map(|data| format!("{data};")).collect()
}

fn sse() -> Encoder {
    Encoder::sse(Language::Korean)
}

fn ring(capacity: usize, limit: usize) -> Ring {
    Ring::new(capacity, Arc::new(Budget::new(limit)))
}

/// Where a reader stands that has had everything up to here, from the log.
fn at(n: u64) -> Cursor {
    Cursor { next: 0, place: place(n), here_since: 0 }
}

fn read(ring: &mut Ring, cursor: &mut Cursor) -> Option<String> {
    match ring.take(cursor, &nobody(), StreamId::START, &sse()) {
        Taken::Frames { frames, .. } => Some(text(&frames)),
        Taken::Level => Some(String::new()),
        Taken::Behind => None,
        Taken::Removed => Some("removed".to_owned()),
    }
}

fn nobody() -> Id {
    Id::new("nobody").unwrap_or_else(|_| unreachable!("an id"))
}

#[test]
fn a_reader_gets_what_came_after_it_began() {
    let mut ring = ring(4, 1_000);
    ring.begin_at(place(5));
    let mut cursor = ring.end();
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "");
    ring.push(place(5).id, frame(6));
    ring.push(place(6).id, frame(7));
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "6;7;");
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "");
    for n in 8..14 {
        ring.push(place(n - 1).id, frame(n));
    }
    assert_eq!(read(&mut ring, &mut cursor), None, "the ring has moved on");
    assert!(ring.resume(cursor).is_none());
    let mut back = ring.resume(at(10)).unwrap();
    assert_eq!(read(&mut ring, &mut back).unwrap(), "11;12;13;");
}

#[test]
fn what_the_log_showed_before_is_not_shown_again() {
    let mut ring = ring(4, 1_000);
    ring.begin_at(place(5));
    let mut cursor = ring.resume(at(7)).unwrap();
    for n in 6..9 {
        ring.push(place(n - 1).id, frame(n));
    }
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "8;");
}

#[test]
fn only_places_that_exist_are_found() {
    let mut ring = ring(3, 1_000);
    for n in [2, 4, 6, 8] {
        ring.push(place(n - 2).id, frame(n));
    }
    assert!(ring.find(place(2).id).is_some(), "the floor");
    assert!(ring.find(place(6).id).is_some());
    for missing in [0, 3, 7, 9] {
        assert!(ring.find(place(missing).id).is_none(), "{missing}");
    }
}

#[test]
fn a_gap_is_told_and_hides_nothing() {
    let mut ring = ring(8, 1_000);
    ring.begin_at(place(1));
    let mut cursor = ring.end();
    assert_eq!(ring.push(place(1).id, frame(2)), Pushed::Added);
    assert_eq!(ring.push(place(3).id, frame(4)), Pushed::Gap);
    assert_eq!(ring.push(place(1).id, frame(2)), Pushed::Known);
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "2;");
    assert_eq!(ring.push(place(2).id, frame(3)), Pushed::Added, "the log had it");
    assert_eq!(ring.push(place(3).id, frame(4)), Pushed::Added);
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "3;4;");
}

#[test]
fn a_restart_sends_every_reader_to_the_log() {
    let mut ring = ring(8, 1_000);
    ring.begin_at(place(1));
    let mut behind = ring.end();
    ring.push(place(1).id, frame(2));
    let mut level = ring.end();
    ring.restart_at(place(7));
    ring.push(place(7).id, frame(8));
    assert_eq!(read(&mut ring, &mut behind), None);
    assert_eq!(read(&mut ring, &mut level), None, "also one that had everything until now");
    assert!(ring.resume(at(2)).is_none());
    let mut repaired = ring.resume(at(7)).unwrap();
    assert_eq!(read(&mut ring, &mut repaired).unwrap(), "8;");
}

#[test]
fn passing_frames_are_for_those_who_are_here() {
    let mut ring = ring(8, 1_000);
    ring.begin_at(place(1));
    let pass = |ring: &mut Ring, text: &'static str| {
        ring.pass(message(&text), Instant::now());
    };
    let mut here = ring.end();
    ring.push(place(1).id, frame(2));
    pass(&mut ring, "a");
    let mut back = ring.find(place(2).id).unwrap();
    let mut late = ring.find(place(1).id).unwrap();
    ring.push(place(2).id, frame(3));
    pass(&mut ring, "b");
    assert_eq!(read(&mut ring, &mut here).unwrap(), "2;a;3;b;");
    assert_eq!(read(&mut ring, &mut back).unwrap(), "3;b;", "it may have had the first before");
    let mut from_the_log = ring.resume(Cursor { place: place(3), ..late }).unwrap();
    assert_eq!(read(&mut ring, &mut late).unwrap(), "2;");
    assert_eq!(read(&mut ring, &mut late).unwrap(), "3;b;");
    assert_eq!(read(&mut ring, &mut from_the_log).unwrap(), "b;");
    assert_eq!(from_the_log.place, place(3));
    let mut again = ring.resume(here).unwrap();
    assert_eq!(read(&mut ring, &mut again).unwrap(), "", "it has had all of them");
}

#[test]
fn held_messages_are_passed_on_later_in_order_and_are_bounded() {
    let mut ring = ring(128, 10_000);
    ring.begin_at(place(1));
    let mut here = ring.end();
    ring.hold(message(&"a"));
    ring.pass(message(&"b"), Instant::now());
    assert_eq!(read(&mut ring, &mut here).unwrap(), "", "the second waits behind the first");
    assert!(ring.pass_held());
    ring.pass(message(&"c"), Instant::now());
    assert_eq!(read(&mut ring, &mut here).unwrap(), "a;b;c;");
    assert!(!ring.pass_held());
    (0..=MAX_HELD).for_each(|number| ring.hold(message(&number)));
    ring.pass_held();
    let all: String = (1..=MAX_HELD).map(|number| format!("{number};")).collect();
    assert_eq!(read(&mut ring, &mut here).unwrap(), all, "the oldest is gone");
}

#[test]
fn a_record_ends_one_persons_reading_and_is_nothing_to_others() {
    let mut ring = ring(8, 1_000);
    ring.begin_at(place(1));
    let (anna, ben) = (Id::new("anna").unwrap(), Id::new("ben").unwrap());
    let removes = |person: &Id| serde_json::from_str(&format!("{{\"userId\":\"{person}\"}}")).ok();
    let (mut annas, mut bens) = (ring.end(), ring.end());
    ring.push(place(1).id, frame(2));
    ring.push(place(2).id, record(3, removes(&anna)));
    ring.push(place(3).id, frame(4));
    let mut take = |cursor: &mut Cursor, person: &Id, since: u64| match ring.take(
        cursor,
        person,
        place(since).id,
        &sse(),
    ) {
        Taken::Frames { frames, .. } => text(&frames),
        Taken::Removed => "removed".to_owned(),
        Taken::Level => "level".to_owned(),
        Taken::Behind => "behind".to_owned(),
    };
    let mut came_back = annas;
    assert_eq!(take(&mut annas, &anna, 1), "2;");
    assert_eq!(take(&mut annas, &anna, 1), "removed");
    assert_eq!(take(&mut annas, &anna, 1), "removed", "for good");
    assert_eq!(take(&mut bens, &ben, 1), "2;4;");
    assert_eq!(take(&mut came_back, &anna, 3), "2;4;", "who was let in again after it may read");
}

#[test]
fn the_end_of_everybodys_right_leaves_nothing_of_before() {
    let mut ring = ring(8, 1_000);
    ring.begin_at(place(0));
    let mut level = ring.end();
    ring.push(place(0).id, frame(1));
    ring.push(place(1).id, frame(2));
    assert_eq!(read(&mut ring, &mut level).as_deref(), Some("1;2;"));
    let removes = serde_json::from_str("{\"userId\":null}").ok();
    assert!(removes.is_some());
    ring.push(place(2).id, record(3, removes));
    assert_eq!(read(&mut ring, &mut level), None, "the log tells it");
    for old in 0..=2 {
        assert!(ring.find(place(old).id).is_none(), "{old} is the log's to judge");
    }
    ring.push(place(3).id, frame(4));
    let mut new = ring.find(place(3).id).expect("where it ended");
    assert_eq!(read(&mut ring, &mut new).as_deref(), Some("4;"));
}

#[test]
fn memory_is_bounded_over_all_rings() {
    let budget = Arc::new(Budget::new(10));
    let mut rings: Vec<Ring> = (0..5).map(|_| Ring::new(100, budget.clone())).collect();
    for n in 1..100 {
        for ring in &mut rings {
            ring.push(place(n - 1).id, frame(n));
        }
    }
    assert!(!budget.is_exceeded());
    drop(rings);
    budget.take(10);
    assert!(!budget.is_exceeded(), "everything was given back");
}

proptest! {
    /// Whatever the order of pushes and reads, a reader that goes to the log when it is behind sees 1..=n.
    #[test]
    fn no_reader_misses_or_repeats(
        steps in prop::collection::vec((any::<bool>(), 0_usize..3), 1..200),
        capacity in 1_usize..6,
        limit in 4_usize..40,
    ) {
        let mut ring = ring(capacity, limit);
        ring.begin_at(Place::START);
        let mut cursors = [ring.end(); 3];
        let mut seen = vec![Vec::new(); 3];
        let mut written = 0;
        let read_on = |ring: &mut Ring, cursor: &mut Cursor, seen: &mut Vec<u64>, written: u64| loop {
            match ring.take(cursor, &nobody(), StreamId::START, &sse()) {
                Taken::Frames { frames, .. } => {
                    seen.extend(text(&frames).split_terminator(';').map(|n| n.parse::<u64>().unwrap()));
                }
                Taken::Level | Taken::Removed => return,
                Taken::Behind => {
                    let id = cursor.place.id.ms + 1;
                    assert_ne!(id, written + 1, "behind although level");
                    seen.push(id);
                    cursor.place = place(id);
                    if let Some(resumed) = ring.resume(*cursor) {
                        *cursor = resumed;
                    }
                }
            }
        };
        for (push, reader) in steps {
            if push {
                written += 1;
                ring.push(StreamId::new(written - 1, 0), frame(written));
            } else {
                read_on(&mut ring, &mut cursors[reader], &mut seen[reader], written);
            }
        }
        for reader in 0..3 {
            read_on(&mut ring, &mut cursors[reader], &mut seen[reader], written);
            prop_assert_eq!(&seen[reader], &(1..=written).collect::<Vec<_>>());
        }
    }
}

#[test]
fn an_entry_is_encoded_once_for_all_readers_of_a_format() {
    let budget = Arc::new(Budget::new(1_000));
    let mut ring = Ring::new(4, budget.clone());
    ring.begin_at(place(0));
    let (first, second) = (ring.end(), ring.end());
    ring.push(place(0).id, frame(1));
    ring.push(place(1).id, frame(2));
    let mut take = |mut cursor: Cursor, encoder: &Encoder| match ring.take(
        &mut cursor,
        &nobody(),
        StreamId::START,
        encoder,
    ) {
        Taken::Frames { frames, .. } => frames,
        _ => unreachable!("there is something new"),
    };
    let room = crate::encode::Target::Room(Id::new("42").unwrap());
    let (socket, part) =
        (Encoder::websocket(&room, Language::Korean), Encoder::sse_part(&room, Language::Korean));
    for encoder in [&sse(), &socket] {
        let (Frames::Joined(one), Frames::Joined(other)) = (take(first, encoder), take(second, encoder))
        else {
            unreachable!("formats with ids of their own")
        };
        assert_eq!(one.as_ptr(), other.as_ptr(), "the bytes are shared");
    }
    let Frames::Separate(parts) = take(first, &part) else { unreachable!("a stream of several subjects") };
    let places: Vec<_> = parts.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, [Some(place(1).id), Some(place(2).id)]);
    let Frames::Separate(again) = take(second, &part) else { unreachable!("a stream of several subjects") };
    assert_eq!(parts[0].1.as_ptr(), again[0].1.as_ptr());
}
