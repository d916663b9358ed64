//! The positions at which streams begin, the rows of ended memberships, and retention.

use std::time::Duration;

use bongsu_kernel::settings::{Input, load};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id, StreamId};
use bongsu_live::log::ReadLimits;
use bongsu_live::{Hub, Item, Page, Source, StartPosition, SubjectName};
use bongsu_outbox::{MembershipError, Options, Outbox, OutboxSource, Relay, RetainUntilDone, subject};
use bongsu_sql::Records;
use bongsu_testkit::wait;

use crate::database::Database;
use crate::locked_rows::sequence_all;

const READ_LIMITS: ReadLimits = ReadLimits { entries: 256, bytes: 16 << 10 };

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
        max_streams_per_person: 0,
        max_streams: 10,
    };
    let (keepalive, retention) = (live.keepalive, Duration::from_secs(7 * 86_400));
    let options = Options {
        keepalive,
        retention,
        retain_until_done: RetainUntilDone::All,
        relay: Relay::default(),
        has_membership_query: false,
        room_streams: live.stream_config(),
    };
    let hub = Hub::new(live, 1, clock.clone());
    let outbox = Outbox::start(records.clone(), hub, with(options), clock, &Supervisor::new()).await.unwrap();
    (OutboxSource(outbox.clone()), outbox)
}

fn ids(page: &Page<Item>) -> Vec<u64> {
    page.entries.iter().map(|entry| entry.position.id.seq).collect()
}

pub(crate) async fn insert(database: &Database, target: &str, count: usize) {
    let row = format!("('test.row.v1', '{{}}', '{target}')");
    let rows = vec![row; count].join(", ");
    database
        .execute(&format!("INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES {rows}"))
        .await;
}

/// Runs the sequencer, and waits until the tail has delivered rows up to a position of the event.
async fn sequence_up_to(source: &OutboxSource, records: &Records, event: &SubjectName, position: u64) {
    sequence_all(records).await;
    let is_reached = async || {
        let heads = source.heads(std::slice::from_ref(event)).await;
        heads[0].clone().unwrap().id.ms == position
    };
    wait::until(Duration::from_secs(60), is_reached).await;
}

pub(crate) async fn a_page_starts_at_the_requested_position(database: Database) {
    let records = database.records().await;
    let (source, _) = source(&records).await;
    let event = subject(&Id::new("a").unwrap());
    let read = async |after| source.read(&event, after, READ_LIMITS).await.unwrap();
    let empty = read(StreamId::EMPTY_SUBJECT).await;
    assert_eq!((empty.start, empty.entries.len(), empty.head.id), (StartPosition::Known, 0, StreamId::START));
    insert(&database, "a", 120).await;
    insert(&database, "b", 3).await;
    sequence_up_to(&source, &records, &event, 120).await;
    let first = read(StreamId::EMPTY_SUBJECT).await;
    assert_eq!((first.start, first.entries.len(), first.more), (StartPosition::Known, 100, true));
    let second = read(first.entries[99].position.id).await;
    assert_eq!((second.start, second.entries.len(), second.more), (StartPosition::Known, 20, false));
    assert_eq!((ids(&second)[0], ids(&second)[19]), (101, 120));
    assert_eq!(second.head, second.entries[19].position);
    assert_eq!(source.message_id(second.head.id).to_string(), "120");
    let heads = source.heads(&[event.clone(), subject(&Id::new("none").unwrap())]).await;
    assert_eq!(heads[0].clone().unwrap(), second.head);
    assert_eq!(heads[1].clone().unwrap().id, StreamId::START);
    // The position exists, but belongs to another row.
    let other = read(StreamId::new(5, 77)).await;
    assert_eq!((other.start, ids(&other)[0]), (StartPosition::Unknown, 1), "from the first row");
    // The state after retention has removed the first three rows.
    database
        .execute("DELETE FROM outbox_events WHERE id <= 3; INSERT INTO bongsu_outbox_gone VALUES ('a', 3, 3)")
        .await;
    let trimmed = read(StreamId::new(2, 2)).await;
    assert_eq!(ids(&trimmed)[0], 4);
    assert!(matches!(trimmed.start, StartPosition::Trimmed { oldest } if oldest.id == StreamId::new(4, 4)));
    let complete = read(StreamId::new(3, 3)).await;
    assert_eq!((complete.start, ids(&complete)[0]), (StartPosition::Known, 4));
    assert!(matches!(read(StreamId::EMPTY_SUBJECT).await.start, StartPosition::Trimmed { .. }));
    // The state after retention has removed all rows: the last position is still known.
    database
        .execute("DELETE FROM outbox_events; UPDATE bongsu_outbox_gone SET position = 120, id = 120")
        .await;
    let end = read(StreamId::new(120, 120)).await;
    assert_eq!(
        (end.start, end.entries.len(), end.head.id),
        (StartPosition::Known, 0, StreamId::new(120, 120))
    );
}

pub(crate) async fn every_removal_of_a_membership_writes_a_row_in_order(database: Database) {
    let records = database.records().await;
    let (source, outbox) = source(&records).await;
    let (event, person) = (Id::new("a").unwrap(), |n: u64| Id::new(&n.to_string()).unwrap());
    assert!(matches!(outbox.check_membership(&event, &person(1)).await, Err(MembershipError::UnknownEvent)));
    database
        .execute(
            "INSERT INTO memberships VALUES ('a', '1', 'ACCEPTED'), ('a', '2', 'ACCEPTED'), ('a', '3', 'ACCEPTED'), \
             ('a', '4', 'ACCEPTED')",
        )
        .await;
    insert(&database, "a", 1).await;
    outbox.check_membership(&event, &person(1)).await.unwrap();
    assert!(matches!(outbox.check_membership(&event, &person(9)).await, Err(MembershipError::NotAMember)));
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
    for (number, is_member) in [(1, false), (2, false), (3, false), (4, true)] {
        assert_eq!(outbox.check_membership(&event, &person(number)).await.is_ok(), is_member, "{number}");
    }
    let page = source.read(&subject(&event), StreamId::EMPTY_SUBJECT, READ_LIMITS).await.unwrap();
    let removed = |item: &Item| (1..=5).find(|number| item.removes(&person(*number)));
    let rows: Vec<_> = page.entries.iter().map(|item| (item.message.is_some(), removed(item))).collect();
    assert_eq!(
        rows,
        [(true, None), (false, Some(1)), (true, None), (false, Some(2)), (false, Some(3))],
        "removal rows have no message for clients"
    );
}

pub(crate) async fn expired_rows_without_a_worker_are_removed(database: Database) {
    const NOW: u64 = 1_800_000_000_000;
    let (records, clock) = (database.records().await, Clock::manual(NOW));
    // The only setting about workers is the relay, so only rows of its type wait for a worker.
    let environment = [("OUTBOX_RELAY".to_owned(), "worked.on.v1=room".to_owned())].into();
    let settings = [bongsu_outbox::SETTINGS, bongsu_live::SETTINGS].concat();
    let values = load(&settings, &Input { environment, ..Input::default() }).unwrap();
    let with = |options: Options| Options::from_settings(&values, options.room_streams).unwrap();
    let (source, outbox) = source_with(&records, clock.clone(), with).await;
    let event = subject(&Id::new("a").unwrap());
    insert(&database, "a", 3).await;
    let worked_on =
        "INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES ('worked.on.v1', '{}', 'a')";
    database.execute(worked_on).await;
    sequence_up_to(&source, &records, &event, 4).await;
    // A row without a position is not removed.
    insert(&database, "a", 1).await;
    assert_eq!(outbox.remove_expired().await.unwrap(), 0);
    clock.set(NOW + 8 * 24 * 60 * 60 * 1_000);
    assert_eq!(outbox.remove_expired().await.unwrap(), 3);
    sequence_up_to(&source, &records, &event, 5).await;
    let left = source.read(&event, StreamId::START, READ_LIMITS).await.unwrap();
    assert_eq!(ids(&left), [4, 5], "the row that the relay has not handled, and the row that was new");
}

pub(crate) async fn expired_rows_are_removed_unless_a_worker_or_stream_needs_them(database: Database) {
    const DAY: u64 = 24 * 60 * 60 * 1_000;
    const NOW: u64 = 1_800_000_000_000;
    let (records, clock) = (database.records().await, Clock::manual(NOW));
    let (source, outbox) = source_at(&records, clock.clone()).await;
    let event = subject(&Id::new("a").unwrap());
    let sequence = async |position| sequence_up_to(&source, &records, &event, position).await;
    insert(&database, "a", 450).await;
    sequence(450).await;
    // `created_at` is old, but the rows got their positions just now.
    database.execute("UPDATE outbox_events SET status = 'DONE', created_at = 1").await;
    database.execute("UPDATE outbox_events SET status = 'PENDING' WHERE id = 5").await;
    database.execute("UPDATE outbox_events SET status = 'FAILED' WHERE id = 6").await;
    // Another program has marked row 7 as done after the row had failed and was redriven: the failure and the
    // redrive of row 7 are removed with the row.
    let leftovers = "INSERT INTO bongsu_outbox_failures (id, reason) VALUES (7, ''); \
        INSERT INTO bongsu_outbox_redriven (id) VALUES (7)";
    database.execute(leftovers).await;
    assert_eq!(outbox.remove_expired().await.unwrap(), 0);
    clock.set(NOW + 6 * DAY);
    insert(&database, "a", 2).await;
    sequence(452).await;
    database.execute("UPDATE outbox_events SET status = 'DONE' WHERE id > 450").await;
    assert_eq!(outbox.remove_expired().await.unwrap(), 0);
    // A row that has no position yet.
    insert(&database, "a", 1).await;
    database.execute("UPDATE outbox_events SET status = 'DONE', created_at = 1 WHERE id > 452").await;
    clock.set(NOW + 7 * DAY);
    assert_eq!(outbox.remove_expired().await.unwrap(), 448);
    // The insert fails unless the rows about row 7 were removed.
    database.execute(leftovers).await;
    sequence(453).await;
    let left = source.read(&event, StreamId::START, READ_LIMITS).await.unwrap();
    assert_eq!(ids(&left), [5, 6, 451, 452, 453], "pending, failed, young, and without a position until now");
    let earlier = source.read(&event, StreamId::new(5, 5), READ_LIMITS).await.unwrap();
    assert!(matches!(earlier.start, StartPosition::Trimmed { .. }), "rows after it were removed");
    let last = source.read(&event, StreamId::new(450, 450), READ_LIMITS).await.unwrap();
    assert_eq!(
        (last.start, ids(&last)),
        (StartPosition::Known, vec![451, 452, 453]),
        "it is after all removed rows"
    );
    clock.set(NOW + 30 * DAY);
    assert_eq!(outbox.remove_expired().await.unwrap(), 2, "rows 451 and 452");
}
