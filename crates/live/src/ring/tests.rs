//! Tests of the ring buffer, some of them with a model of the log: no reader misses an entry or gets one twice.

use bongsu_kernel::text::Language;
use proptest::prelude::*;

use super::*;
use crate::message::Data;

fn position(n: u64) -> LogPosition {
    LogPosition { id: StreamId::new(n, 0), number: Some(n) }
}

/// An entry whose message contains its number.
fn frame(n: u64) -> RingEntry {
    RingEntry::new(Item::new(position(n), message(&n)), Instant::now())
}

fn removal_record(n: u64, removal: Option<Removal>) -> RingEntry {
    RingEntry { removal, message: None, ..frame(n) }
}

fn message(data: &impl ToString) -> Message {
    Message::built_in("n", None, Data::Json(data.to_string().into()))
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

/// The cursor of a reader that has read the log up to entry `n`.
fn at(n: u64) -> Cursor {
    Cursor { next: 0, position: position(n), ephemeral_from: 0 }
}

fn read(ring: &mut Ring, cursor: &mut Cursor) -> Option<String> {
    match ring.take(cursor, &person(), StreamId::START, &sse()) {
        TakeOutcome::Frames { frames, .. } => Some(text(&frames)),
        TakeOutcome::UpToDate => Some(String::new()),
        TakeOutcome::Behind => None,
        TakeOutcome::Removed => Some("removed".to_owned()),
    }
}

fn person() -> Id {
    Id::new("1").unwrap_or_else(|_| unreachable!("an id"))
}

#[test]
fn a_reader_gets_the_entries_after_its_cursor() {
    let mut ring = ring(4, 1_000);
    ring.initialize_at(position(5));
    let mut cursor = ring.end();
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "");
    ring.push(position(5).id, frame(6));
    ring.push(position(6).id, frame(7));
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "6;7;");
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "");
    for n in 8..14 {
        ring.push(position(n - 1).id, frame(n));
    }
    assert_eq!(read(&mut ring, &mut cursor), None, "the ring buffer no longer has the next entry");
    assert!(ring.resume(cursor).is_none());
    let mut back = ring.resume(at(10)).unwrap();
    assert_eq!(read(&mut ring, &mut back).unwrap(), "11;12;13;");
}

#[test]
fn entries_read_from_the_log_are_not_returned_again() {
    let mut ring = ring(4, 1_000);
    ring.initialize_at(position(5));
    let mut cursor = ring.resume(at(7)).unwrap();
    for n in 6..9 {
        ring.push(position(n - 1).id, frame(n));
    }
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "8;");
}

#[test]
fn only_positions_in_the_ring_buffer_are_found() {
    let mut ring = ring(3, 1_000);
    for n in [2, 4, 6, 8] {
        ring.push(position(n - 2).id, frame(n));
    }
    assert!(ring.find(position(2).id).is_some(), "the floor");
    assert!(ring.find(position(6).id).is_some());
    for missing in [0, 3, 7, 9] {
        assert!(ring.find(position(missing).id).is_none(), "{missing}");
    }
}

#[test]
fn a_gap_is_reported_and_can_be_filled() {
    let mut ring = ring(8, 1_000);
    ring.initialize_at(position(1));
    let mut cursor = ring.end();
    assert_eq!(ring.push(position(1).id, frame(2)), PushOutcome::Added);
    assert_eq!(ring.push(position(3).id, frame(4)), PushOutcome::Gap);
    assert_eq!(ring.push(position(1).id, frame(2)), PushOutcome::AlreadyKnown);
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "2;");
    assert_eq!(
        ring.push(position(2).id, frame(3)),
        PushOutcome::Added,
        "the missing entry, read from the log"
    );
    assert_eq!(ring.push(position(3).id, frame(4)), PushOutcome::Added);
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "3;4;");
}

#[test]
fn a_restart_sends_every_reader_to_the_log() {
    let mut ring = ring(8, 1_000);
    ring.initialize_at(position(1));
    let mut behind = ring.end();
    ring.push(position(1).id, frame(2));
    let mut up_to_date = ring.end();
    ring.restart_at(position(7));
    ring.push(position(7).id, frame(8));
    assert_eq!(read(&mut ring, &mut behind), None);
    assert_eq!(read(&mut ring, &mut up_to_date), None, "also a reader that was up to date");
    assert!(ring.resume(at(2)).is_none());
    let mut repaired = ring.resume(at(7)).unwrap();
    assert_eq!(read(&mut ring, &mut repaired).unwrap(), "8;");
}

#[test]
fn an_ephemeral_message_that_overtakes_an_entry_reaches_a_reader_of_the_log() {
    let mut ring = ring(8, usize::MAX);
    ring.push(StreamId::new(0, 0), frame(1));
    // The reader subscribes and reads the log, which holds entry 2 already. The bus delivers the ephemeral message
    // first, so its position in the ring buffer is before the reader's.
    let subscribed = ring.end();
    ring.push_ephemeral(message(&"read"), Instant::now());
    ring.push(position(1).id, frame(2));
    let mut reader = ring.resume(Cursor { position: position(2), ..subscribed }).unwrap();
    assert_eq!(read(&mut ring, &mut reader).as_deref(), Some("read;"));
    assert_eq!(read(&mut ring, &mut reader).as_deref(), Some(""), "entry 2 was read from the log");
    ring.push(position(2).id, frame(3));
    assert_eq!(read(&mut ring, &mut reader).as_deref(), Some("3;"));
}

#[test]
fn ephemeral_messages_are_sent_to_current_subscribers_only() {
    let mut ring = ring(8, 1_000);
    ring.initialize_at(position(1));
    let push_ephemeral = |ring: &mut Ring, text: &'static str| {
        ring.push_ephemeral(message(&text), Instant::now());
    };
    let mut subscribed = ring.end();
    ring.push(position(1).id, frame(2));
    push_ephemeral(&mut ring, "a");
    let mut reconnected = ring.find(position(2).id).unwrap();
    let mut late = ring.find(position(1).id).unwrap();
    ring.push(position(2).id, frame(3));
    push_ephemeral(&mut ring, "b");
    assert_eq!(read(&mut ring, &mut subscribed).unwrap(), "2;a;3;b;");
    assert_eq!(
        read(&mut ring, &mut reconnected).unwrap(),
        "3;b;",
        "it may have received the first before it reconnected"
    );
    let mut from_the_log = ring.resume(Cursor { position: position(3), ..late }).unwrap();
    assert_eq!(read(&mut ring, &mut late).unwrap(), "2;");
    assert_eq!(read(&mut ring, &mut late).unwrap(), "3;b;");
    assert_eq!(read(&mut ring, &mut from_the_log).unwrap(), "b;");
    assert_eq!(from_the_log.position, position(3));
    let mut again = ring.resume(subscribed).unwrap();
    assert_eq!(read(&mut ring, &mut again).unwrap(), "", "all of them were sent before");
}

#[test]
fn held_messages_are_delivered_later_in_order_and_are_bounded() {
    let mut ring = ring(128, 10_000);
    ring.initialize_at(position(1));
    let mut cursor = ring.end();
    ring.hold(message(&"a"));
    ring.push_ephemeral(message(&"b"), Instant::now());
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "", "the second message waits behind the first");
    assert!(ring.release_held());
    ring.push_ephemeral(message(&"c"), Instant::now());
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), "a;b;c;");
    assert!(!ring.release_held());
    (0..=MAX_HELD_MESSAGES).for_each(|number| ring.hold(message(&number)));
    ring.release_held();
    let all: String = (1..=MAX_HELD_MESSAGES).map(|number| format!("{number};")).collect();
    assert_eq!(read(&mut ring, &mut cursor).unwrap(), all, "the oldest message was dropped");
}

#[test]
fn a_removal_record_ends_the_access_of_one_person_only() {
    let mut ring = ring(8, 1_000);
    ring.initialize_at(position(1));
    let (anna, ben) = (Id::new("anna").unwrap(), Id::new("ben").unwrap());
    let removal = |person: &Id| serde_json::from_str(&format!("{{\"userId\":\"{person}\"}}")).ok();
    let (mut annas, mut bens) = (ring.end(), ring.end());
    ring.push(position(1).id, frame(2));
    ring.push(position(2).id, removal_record(3, removal(&anna)));
    ring.push(position(3).id, frame(4));
    let mut take = |cursor: &mut Cursor, person: &Id, access_checked_at: u64| match ring.take(
        cursor,
        person,
        position(access_checked_at).id,
        &sse(),
    ) {
        TakeOutcome::Frames { frames, .. } => text(&frames),
        TakeOutcome::Removed => "removed".to_owned(),
        TakeOutcome::UpToDate => "up to date".to_owned(),
        TakeOutcome::Behind => "behind".to_owned(),
    };
    let mut readmitted = annas;
    assert_eq!(take(&mut annas, &anna, 1), "2;");
    assert_eq!(take(&mut annas, &anna, 1), "removed");
    assert_eq!(take(&mut annas, &anna, 1), "removed", "and stays removed");
    assert_eq!(take(&mut bens, &ben, 1), "2;4;");
    assert_eq!(take(&mut readmitted, &anna, 3), "2;4;", "access was checked after the removal");
}

#[test]
fn a_record_that_removes_everyone_clears_the_entries_before_it() {
    let mut ring = ring(8, 1_000);
    ring.initialize_at(position(0));
    let mut cursor = ring.end();
    ring.push(position(0).id, frame(1));
    ring.push(position(1).id, frame(2));
    assert_eq!(read(&mut ring, &mut cursor).as_deref(), Some("1;2;"));
    let removal = serde_json::from_str("{\"userId\":null}").ok();
    assert!(removal.is_some());
    ring.push(position(2).id, removal_record(3, removal));
    assert_eq!(read(&mut ring, &mut cursor), None, "the reader finds the record in the log");
    for old in 0..=2 {
        assert!(ring.find(position(old).id).is_none(), "{old} has to be looked up in the log");
    }
    ring.push(position(3).id, frame(4));
    let mut new = ring.find(position(3).id).expect("the position of the record");
    assert_eq!(read(&mut ring, &mut new).as_deref(), Some("4;"));
}

#[test]
fn memory_is_bounded_over_all_rings() {
    let budget = Arc::new(Budget::new(10));
    let mut rings: Vec<Ring> = (0..5).map(|_| Ring::new(100, budget.clone())).collect();
    for n in 1..100 {
        for ring in &mut rings {
            ring.push(position(n - 1).id, frame(n));
        }
    }
    assert!(!budget.is_exceeded());
    drop(rings);
    budget.reserve(10);
    assert!(!budget.is_exceeded(), "dropped ring buffers release their bytes");
}

proptest! {
    /// Whatever the order of pushes and reads, a reader that reads the log when it is behind gets 1..=n.
    #[test]
    fn no_reader_misses_or_repeats(
        steps in prop::collection::vec((any::<bool>(), 0_usize..3), 1..200),
        capacity in 1_usize..6,
        limit in 4_usize..40,
    ) {
        let mut ring = ring(capacity, limit);
        ring.initialize_at(LogPosition::START);
        let mut cursors = [ring.end(); 3];
        let mut seen = vec![Vec::new(); 3];
        let mut written = 0;
        let read_all = |ring: &mut Ring, cursor: &mut Cursor, seen: &mut Vec<u64>, written: u64| loop {
            match ring.take(cursor, &person(), StreamId::START, &sse()) {
                TakeOutcome::Frames { frames, .. } => {
                    seen.extend(text(&frames).split_terminator(';').map(|n| n.parse::<u64>().unwrap()));
                }
                TakeOutcome::UpToDate | TakeOutcome::Removed => return,
                TakeOutcome::Behind => {
                    let id = cursor.position.id.ms + 1;
                    assert_ne!(id, written + 1, "the reader is behind although it has every entry");
                    seen.push(id);
                    cursor.position = position(id);
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
                read_all(&mut ring, &mut cursors[reader], &mut seen[reader], written);
            }
        }
        for reader in 0..3 {
            read_all(&mut ring, &mut cursors[reader], &mut seen[reader], written);
            prop_assert_eq!(&seen[reader], &(1..=written).collect::<Vec<_>>());
        }
    }
}

#[test]
fn an_entry_is_encoded_once_for_all_readers_of_a_format() {
    let budget = Arc::new(Budget::new(1_000));
    let mut ring = Ring::new(4, budget.clone());
    ring.initialize_at(position(0));
    let (first, second) = (ring.end(), ring.end());
    ring.push(position(0).id, frame(1));
    ring.push(position(1).id, frame(2));
    let mut take = |mut cursor: Cursor, encoder: &Encoder| match ring.take(
        &mut cursor,
        &person(),
        StreamId::START,
        encoder,
    ) {
        TakeOutcome::Frames { frames, .. } => frames,
        _ => unreachable!("the reader has two new entries"),
    };
    let room = crate::encode::Target::Room(Id::new("42").unwrap());
    let (socket, part) =
        (Encoder::websocket(&room, Language::Korean), Encoder::sse_part(&room, Language::Korean));
    for encoder in [&sse(), &socket] {
        let (Frames::Joined(one), Frames::Joined(other)) = (take(first, encoder), take(second, encoder))
        else {
            unreachable!("formats that write the message id themselves")
        };
        assert_eq!(one.as_ptr(), other.as_ptr(), "the bytes are shared");
    }
    let Frames::Separate(parts) = take(first, &part) else { unreachable!("a stream of several subjects") };
    let positions: Vec<_> = parts.iter().map(|(position, _)| *position).collect();
    assert_eq!(positions, [Some(position(1).id), Some(position(2).id)]);
    let Frames::Separate(again) = take(second, &part) else { unreachable!("a stream of several subjects") };
    assert_eq!(parts[0].1.as_ptr(), again[0].1.as_ptr());
}
