//! Entries that other programs append to `room:events:*`.

use bongsu_kernel::StreamId;
use bongsu_live::log::ReadLimits;
use bongsu_testkit::redis::Redis as Server;

use super::RedisAdapter;
use crate::log_contract::Adapter;
use crate::log_contract::support::{ALL, Event, LogFixture};

/// Appends an entry to the log of a room as another program would.
async fn add(fixture: &LogFixture<RedisAdapter<Server>>, room: &str, id: &str, fields: &[&[u8]]) {
    let key = format!("{}room:events:{room}", fixture.adapter().prefix);
    let mut words: Vec<&[u8]> = vec![b"XADD", key.as_bytes(), id.as_bytes()];
    words.extend(fields);
    assert_eq!(fixture.adapter().command(&words).await.error(), None);
}

fn fields<'a>(payload: &'a [u8], time: &'a str) -> [&'a [u8]; 8] {
    [b"type", b"a.stored", b"payload", payload, b"publisher_id", b"7", b"timestamp", time.as_bytes()]
}

#[tokio::test]
async fn entries_of_other_programs_are_read_with_times_in_rfc_3339() {
    if !RedisAdapter::<Server>::is_available() {
        return;
    }
    let fixture = LogFixture::<RedisAdapter<Server>>::empty().await;
    for (id, time) in
        [("1-0", "2026-02-16T10:30:00Z"), ("2-0", "2026-02-16T19:30:00.042+09:00"), ("3-0", "1771237800043")]
    {
        let payload = "{ \"by\": \"another\",\n  \"timestamp\": \"2020-01-01T00:00:00Z\" }";
        add(&fixture, "42", id, &fields(payload.as_bytes(), time)).await;
    }
    let entries = fixture.entries("42").await;
    let times: Vec<u64> = entries.iter().map(|entry| entry.at).collect();
    assert_eq!(times, [1_771_237_800_000, 1_771_237_800_042, 1_771_237_800_043]);
    for entry in &entries {
        assert_eq!(entry.data.as_str(), "{\"by\":\"another\"}", "compact JSON without its timestamp member");
        assert_eq!(entry.publisher.as_ref().map(bongsu_kernel::Id::as_str), Some("7"));
    }
}

#[tokio::test]
async fn malformed_entries_are_skipped_and_block_no_reader() {
    if !RedisAdapter::<Server>::is_available() {
        return;
    }
    let fixture = LogFixture::<RedisAdapter<Server>>::empty().await;
    let time = "2026-02-16T10:30:00Z";
    let malformed: [&[&[u8]]; 5] = [
        &fields(b"{}", "yesterday"),
        &fields(b"[1]", time),
        &fields(b"{no JSON}", time),
        &fields(b"{\"text\":\"\xFF\"}", time),
        &[b"colour", b"red"],
    ];
    // Malformed entries before and after the own entry: a page of one entry has to skip several of them.
    for (at, fields) in malformed.iter().enumerate() {
        add(&fixture, "42", &format!("1-{}", at + 1), fields).await;
    }
    let own = fixture.append_one(&Event::of("42").number(1)).await.id;
    let last = StreamId::new(own.ms + 1, 0);
    add(&fixture, "42", &last.to_string(), malformed[3]).await;
    let page = fixture.read("42", StreamId::START, ReadLimits { entries: 1, bytes: 1 }).await;
    let ids: Vec<StreamId> = page.entries.iter().map(|entry| entry.position.id).collect();
    assert_eq!((ids, page.head.id), (vec![own], last));
    let rest = fixture.read("42", own, ALL).await;
    assert_eq!((rest.entries.len(), rest.more, rest.head.id), (0, false, last));
}
