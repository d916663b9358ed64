//! Files of earlier versions: a database that version 1 wrote still opens, reads and goes on.
//!
//! `BONGSU_WRITE_GOLDEN=1 cargo test -p bongsu-live golden` writes `golden/log.v1.db` anew; that is right only when
//! version 1 has not been released yet.

use std::path::{Path, PathBuf};

use bongsu_kernel::StreamId;
use bongsu_live::log::FollowUp;
use bongsu_live::{AppendError, Start};

use crate::embedded::EmbeddedAdapter;
use crate::log_contract::Adapter;
use crate::log_contract::support::{ALL, Event, NOW, Stage};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/log.v1.db")
}

/// What was appended to the golden file, at [`NOW`]: a room with keys and recipients, and one that was trimmed.
fn events() -> Vec<Event> {
    let text = "{\"userName\":\"김철수\",\"n\":1.50}";
    let first = Event::of("42").data(text).kind("retrospect.submitted").publisher("1").audience(3);
    let mut events = vec![first.key("first").recipients(&["2", "kim"]), Event::of("42").number(2)];
    events.extend((0..20).map(|number| Event::of("trimmed").number(number).keep(4)));
    events
}

#[tokio::test]
async fn a_file_of_version_1_opens_reads_and_goes_on() {
    if std::env::var_os("BONGSU_WRITE_GOLDEN").is_some() {
        let mut stage = Stage::<EmbeddedAdapter>::empty().await;
        stage.append(events()).await;
        stage.close().await;
        std::fs::copy(stage.adapter().folder().join("bongsu.db"), golden()).unwrap();
    }
    let adapter = EmbeddedAdapter::empty().await;
    std::fs::copy(golden(), adapter.folder().join("bongsu.db")).unwrap();
    let stage = Stage::at(adapter).await;

    let entries = stage.entries("42").await;
    let ids: Vec<StreamId> = entries.iter().map(|entry| entry.place.id).collect();
    assert_eq!(ids, [StreamId::new(NOW, 0), StreamId::new(NOW, 1)]);
    assert_eq!(entries[0].data.as_str(), "{\"userName\":\"김철수\",\"n\":1.50}");
    assert_eq!(entries[0].event_type.as_str(), "retrospect.submitted");
    assert_eq!((entries[0].publisher.as_ref().unwrap().as_str(), entries[0].at), ("1", NOW));

    // A trimmed room knows what it lost and how many there were.
    let page = stage.read("trimmed", StreamId::new(NOW, 0), ALL).await;
    assert!(matches!(page.start, Start::Trimmed { .. }), "{page:?}");
    assert_eq!((page.head.id, page.head.number), (StreamId::new(NOW, 19), Some(20)));

    // Keys are still kept, and what was to be done for people is still to be done.
    let again = stage.append_one(&events()[0]).await;
    assert_eq!((again.duplicate, again.id, again.audience), (true, ids[0], 3));
    assert_eq!(stage.append(vec![events()[1].clone().key("first")]).await, [Err(AppendError::Conflict)]);
    let records = stage.adapter().follow_ups().await;
    let record: FollowUp = serde_json::from_str(&records[0]).unwrap();
    assert_eq!((records.len(), record.v, record.recipients.map(|named| named.len())), (1, 1, Some(2)));

    // Ids go on from where they were, also when the clock is behind.
    stage.clock.set(NOW - 1);
    assert_eq!(stage.append_one(&Event::of("42")).await.id, StreamId::new(NOW, 2));
    assert_eq!(stage.sink.of("42")[0].previous, ids[1]);
}
