//! Golden files: a database that version 1 wrote can be opened, read and appended to.
//!
//! `BONGSU_WRITE_GOLDEN=1 cargo test -p bongsu-live golden` overwrites `golden/log.v1.db`, which is allowed only until
//! version 1 is released.

use std::path::{Path, PathBuf};

use bongsu_kernel::StreamId;
use bongsu_live::log::FollowUp;
use bongsu_live::{AppendError, StartPosition};

use crate::embedded::EmbeddedAdapter;
use crate::log_contract::Adapter;
use crate::log_contract::support::{ALL, Event, LogFixture, NOW};

fn golden_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/log.v1.db")
}

/// The events that were appended to the golden file at [`NOW`]: a room with keys and recipients, and a trimmed room.
fn events() -> Vec<Event> {
    let text = "{\"userName\":\"김철수\",\"n\":1.50}";
    let first = Event::of("42").data(text).kind("retrospect.submitted").publisher("1").audience(3);
    let mut events = vec![first.key("first").recipients(&["2", "kim"]), Event::of("42").number(2)];
    events.extend((0..20).map(|number| Event::of("trimmed").number(number).keep(4)));
    events
}

#[tokio::test]
async fn a_file_of_version_1_can_be_read_and_appended_to() {
    if std::env::var_os("BONGSU_WRITE_GOLDEN").is_some() {
        let mut fixture = LogFixture::<EmbeddedAdapter>::empty().await;
        fixture.append(events()).await;
        fixture.close().await;
        std::fs::copy(fixture.adapter().folder().join("bongsu.db"), golden_path()).unwrap();
    }
    let adapter = EmbeddedAdapter::empty().await;
    std::fs::copy(golden_path(), adapter.folder().join("bongsu.db")).unwrap();
    let fixture = LogFixture::at(adapter).await;

    let entries = fixture.entries("42").await;
    let ids: Vec<StreamId> = entries.iter().map(|entry| entry.position.id).collect();
    assert_eq!(ids, [StreamId::new(NOW, 0), StreamId::new(NOW, 1)]);
    assert_eq!(entries[0].data.as_str(), "{\"userName\":\"김철수\",\"n\":1.50}");
    assert_eq!(entries[0].event_type.as_str(), "retrospect.submitted");
    assert_eq!((entries[0].publisher.as_ref().unwrap().as_str(), entries[0].at), ("1", NOW));

    // A trimmed room reports that it was trimmed, and counts all entries that it ever had.
    let page = fixture.read("trimmed", StreamId::new(NOW, 0), ALL).await;
    assert!(matches!(page.start, StartPosition::Trimmed { .. }), "{page:?}");
    assert_eq!((page.head.id, page.head.number), (StreamId::new(NOW, 19), Some(20)));

    // The idempotency keys and the follow-up record are still stored.
    let again = fixture.append_one(&events()[0]).await;
    assert_eq!((again.duplicate, again.id, again.audience), (true, ids[0], 3));
    assert_eq!(fixture.append(vec![events()[1].clone().key("first")]).await, [Err(AppendError::Conflict)]);
    let records = fixture.adapter().stored_follow_ups().await;
    let record: FollowUp = serde_json::from_str(&records[0]).unwrap();
    assert_eq!(
        (records.len(), record.v, record.recipients.map(|recipients| recipients.len())),
        (1, 1, Some(2))
    );

    // Ids continue after the last one, also if the clock is behind.
    fixture.clock.set(NOW - 1);
    assert_eq!(fixture.append_one(&Event::of("42")).await.id, StreamId::new(NOW, 2));
    assert_eq!(fixture.sink.of("42")[0].previous, ids[1]);
}
