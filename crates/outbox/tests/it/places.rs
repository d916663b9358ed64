//! Where streams begin, and where rights end.

use std::time::Duration;

use bongsu_kernel::settings::{Input, load};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, StreamId};
use bongsu_live::log::Most;
use bongsu_live::{Hub, Item, Page, Source, Start, SubjectName};
use bongsu_outbox::{Options, Outbox, OutboxSource, Relay, RightError, Waited, subject};
use bongsu_sql::Records;
use bongsu_testkit::wait;

use crate::database::Database;
use crate::held::sequence_all;

const MOST: Most = Most { entries: 256, bytes: 16 << 10 };

pub(crate) async fn source(records: &Records) -> (OutboxSource, Outbox) {
    source_at(records, Clock::system()).await
}

pub(crate) async fn source_at(records: &Records, clock: Clock) -> (OutboxSource, Outbox) {
    source_with(records, clock, |options| options).await
}

pub(crate) async fn source_with(
    records: &Records,
    clock: Clock,
    with: impl FnOnce(Options) -> Options,
) -> (OutboxSource, Outbox) {
    let live = bongsu_live::Options {
        ring_frames: 16,
        ring_bytes: 1 << 20,
        keepalive: Duration::from_secs(15),
        stall: Duration::from_secs(30),
        lifetime: None,
        per_person: 0,
        most: 10,
    };
    let (ping, keeps) = (live.keepalive, Duration::from_secs(7 * 86_400));
    let options = Options {
        ping,
        keeps,
        waited: Waited::Every,
        relay: Relay::default(),
        has_membership_query: false,
        usual: live.manner(),
    };
    let hub = Hub::new(live, 1, clock.clone());
    let outbox = Outbox::start(records.clone(), hub, with(options), clock, &Supervisor::new()).await.unwrap();
    (OutboxSource(outbox.clone()), outbox)
}

fn ids(page: &Page<Item>) -> Vec<u64> {
    page.entries.iter().map(|entry| entry.place.id.seq).collect()
}

pub(crate) async fn insert(database: &Database, target: &str, count: usize) {
    let row = format!("('test.row.v1', '{{}}', '{target}')");
    let rows = vec![row; count].join(", ");
    database
        .execute(&format!("INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES {rows}"))
        .await;
}

/// Gives all rows their positions, and returns when streams are told up to one of them.
async fn sequence_up_to(source: &OutboxSource, records: &Records, event: &SubjectName, position: u64) {
    sequence_all(records).await;
    let is_there = async || {
        let heads = source.heads(std::slice::from_ref(event)).await;
        heads[0].clone().unwrap().id.ms == position
    };
    wait::until(Duration::from_secs(60), is_there).await;
}

pub(crate) async fn a_page_begins_where_it_should(database: Database) {
    let records = database.records().await;
    let (source, _) = source(&records).await;
    let event = subject(&Id::new("a").unwrap());
    let read = async |after| source.read(&event, after, MOST).await.unwrap();
    let empty = read(StreamId::EMPTY).await;
    assert_eq!((empty.start, empty.entries.len(), empty.head.id), (Start::Known, 0, StreamId::START));
    insert(&database, "a", 120).await;
    insert(&database, "b", 3).await;
    sequence_up_to(&source, &records, &event, 120).await;
    let first = read(StreamId::EMPTY).await;
    assert_eq!((first.start, first.entries.len(), first.more), (Start::Known, 100, true));
    let second = read(first.entries[99].place.id).await;
    assert_eq!((second.start, second.entries.len(), second.more), (Start::Known, 20, false));
    assert_eq!((ids(&second)[0], ids(&second)[19]), (101, 120));
    assert_eq!(second.head, second.entries[19].place);
    assert_eq!(source.name(second.head.id).to_string(), "120");
    let heads = source.heads(&[event.clone(), subject(&Id::new("none").unwrap())]).await;
    assert_eq!(heads[0].clone().unwrap(), second.head);
    assert_eq!(heads[1].clone().unwrap().id, StreamId::START);
    // A position that another row has now.
    let other = read(StreamId::new(5, 77)).await;
    assert_eq!((other.start, ids(&other)[0]), (Start::Unknown, 1), "all that is left");
    // What was too old is gone, up to the third row.
    database
        .execute("DELETE FROM outbox_events WHERE id <= 3; INSERT INTO bongsu_outbox_gone VALUES ('a', 3, 3)")
        .await;
    let gone = read(StreamId::new(2, 2)).await;
    assert_eq!(ids(&gone)[0], 4);
    assert!(matches!(gone.start, Start::Trimmed { oldest } if oldest.id == StreamId::new(4, 4)));
    let nothing_lost = read(StreamId::new(3, 3)).await;
    assert_eq!((nothing_lost.start, ids(&nothing_lost)[0]), (Start::Known, 4));
    assert!(matches!(read(StreamId::EMPTY).await.start, Start::Trimmed { .. }));
    // Everything is: its end is known all the same.
    database
        .execute("DELETE FROM outbox_events; UPDATE bongsu_outbox_gone SET position = 120, id = 120")
        .await;
    let end = read(StreamId::new(120, 120)).await;
    assert_eq!((end.start, end.entries.len(), end.head.id), (Start::Known, 0, StreamId::new(120, 120)));
}

pub(crate) async fn a_withdrawal_takes_its_place_whoever_makes_it(database: Database) {
    let records = database.records().await;
    let (source, outbox) = source(&records).await;
    let (event, person) = (Id::new("a").unwrap(), |n: u64| Id::new(&n.to_string()).unwrap());
    assert!(matches!(outbox.may_follow(&event, &person(1)).await, Err(RightError::NoEvent)));
    database
        .execute(
            "INSERT INTO memberships VALUES ('a', '1', 'ACCEPTED'), ('a', '2', 'ACCEPTED'), ('a', '3', 'ACCEPTED'), \
             ('a', '4', 'ACCEPTED')",
        )
        .await;
    insert(&database, "a", 1).await;
    outbox.may_follow(&event, &person(1)).await.unwrap();
    assert!(matches!(outbox.may_follow(&event, &person(9)).await, Err(RightError::Stranger)));
    database.execute("UPDATE memberships SET status = 'REJECTED' WHERE user_id = '1'").await;
    database.execute("UPDATE memberships SET status = 'ACCEPTED' WHERE user_id = '2'").await;
    insert(&database, "a", 1).await;
    database.execute("DELETE FROM memberships WHERE user_id = '2'").await;
    if database.name() != "postgres" {
        database.execute("REPLACE INTO memberships VALUES ('a', '3', 'PENDING')").await;
    } else {
        database.execute("UPDATE memberships SET user_id = '5' WHERE user_id = '3'").await;
    }
    sequence_up_to(&source, &records, &subject(&event), 5).await;
    for (number, may) in [(1, false), (2, false), (3, false), (4, true)] {
        assert_eq!(outbox.may_follow(&event, &person(number)).await.is_ok(), may, "{number}");
    }
    let page = source.read(&subject(&event), StreamId::EMPTY, MOST).await.unwrap();
    let ended = |item: &Item| (1..=5).find(|number| item.ends_right_of(&person(*number)));
    let rows: Vec<_> = page.entries.iter().map(|item| (item.message.is_some(), ended(item))).collect();
    assert_eq!(
        rows,
        [(true, None), (false, Some(1)), (true, None), (false, Some(2)), (false, Some(3))],
        "rows that end a right are for the hub alone"
    );
}

pub(crate) async fn rows_that_no_worker_claims_go_when_they_are_old(database: Database) {
    const NOW: u64 = 1_800_000_000_000;
    let (records, clock) = (database.records().await, Clock::manual(NOW));
    // As the settings have it when nobody says anything about workers but this.
    let environment = [("OUTBOX_RELAY".to_owned(), "worked.on.v1=room".to_owned())].into();
    let settings = [bongsu_outbox::SETTINGS, bongsu_live::SETTINGS].concat();
    let values = load(&settings, &Input { environment, ..Input::default() }).unwrap();
    let with = |options: Options| Options::from_settings(&values, options.usual).unwrap();
    let (source, outbox) = source_with(&records, clock.clone(), with).await;
    let event = subject(&Id::new("a").unwrap());
    insert(&database, "a", 3).await;
    let worked_on =
        "INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES ('worked.on.v1', '{}', 'a')";
    database.execute(worked_on).await;
    sequence_up_to(&source, &records, &event, 4).await;
    // One that is not sequenced is nobody's to remove.
    insert(&database, "a", 1).await;
    assert_eq!(outbox.forget_old().await.unwrap(), 0);
    clock.set(NOW + 8 * 24 * 60 * 60 * 1_000);
    assert_eq!(outbox.forget_old().await.unwrap(), 3);
    sequence_up_to(&source, &records, &event, 5).await;
    let left = source.read(&event, StreamId::START, MOST).await.unwrap();
    assert_eq!(ids(&left), [4, 5], "what the relay still has to do, and what streams have not had");
}

pub(crate) async fn what_is_too_old_goes_unless_somebody_needs_it(database: Database) {
    const DAY: u64 = 24 * 60 * 60 * 1_000;
    const NOW: u64 = 1_800_000_000_000;
    let (records, clock) = (database.records().await, Clock::manual(NOW));
    let (source, outbox) = source_at(&records, clock.clone()).await;
    let event = subject(&Id::new("a").unwrap());
    let sequence = async |position| sequence_up_to(&source, &records, &event, position).await;
    insert(&database, "a", 450).await;
    sequence(450).await;
    // As old as they say they are, streams have had them for a moment only.
    database.execute("UPDATE outbox_events SET status = 'DONE', created_at = 1").await;
    database.execute("UPDATE outbox_events SET status = 'PENDING' WHERE id = 5").await;
    database.execute("UPDATE outbox_events SET status = 'FAILED' WHERE id = 6").await;
    // Marked by somebody else after it had been given up and tried again: what was noted of it is of no use any more.
    let notes = "INSERT INTO bongsu_outbox_failures (id, reason) VALUES (7, ''); \
        INSERT INTO bongsu_outbox_redriven (id) VALUES (7)";
    database.execute(notes).await;
    assert_eq!(outbox.forget_old().await.unwrap(), 0);
    clock.set(NOW + 6 * DAY);
    insert(&database, "a", 2).await;
    sequence(452).await;
    database.execute("UPDATE outbox_events SET status = 'DONE' WHERE id > 450").await;
    assert_eq!(outbox.forget_old().await.unwrap(), 0);
    // One that nobody has seen yet.
    insert(&database, "a", 1).await;
    database.execute("UPDATE outbox_events SET status = 'DONE', created_at = 1 WHERE id > 452").await;
    clock.set(NOW + 7 * DAY);
    assert_eq!(outbox.forget_old().await.unwrap(), 448);
    // The keys are free again, or this fails.
    database.execute(notes).await;
    sequence(453).await;
    let left = source.read(&event, StreamId::START, MOST).await.unwrap();
    assert_eq!(ids(&left), [5, 6, 451, 452, 453], "unprocessed, failed, young, unseen");
    let back = source.read(&event, StreamId::new(5, 5), MOST).await.unwrap();
    assert!(matches!(back.start, Start::Trimmed { .. }), "there was more after it");
    let last = source.read(&event, StreamId::new(450, 450), MOST).await.unwrap();
    assert_eq!((last.start, ids(&last)), (Start::Known, vec![451, 452, 453]), "it had everything that went");
    clock.set(NOW + 30 * DAY);
    assert_eq!(outbox.forget_old().await.unwrap(), 2, "noted when there was no newer one");
}
