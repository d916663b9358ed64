//! The examples and edge cases of the standard, and properties over random streams that are split at random bytes.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Vec<Item> {
    Parser::new().feed(text.as_bytes())
}

fn event(event: &str, id: &str, own_id: Option<&str>, data: &str) -> Item {
    let own_id = own_id.map(str::to_owned);
    Item::Event(Event { event: event.to_owned(), id: id.to_owned(), own_id, data: data.to_owned() })
}

fn message(data: &str) -> Item {
    event("message", "", None, data)
}

#[test]
fn the_examples_of_the_standard() {
    assert_eq!(parse("data: YHOO\ndata: +2\ndata: 10\n\n"), [message("YHOO\n+2\n10")]);
    let text = ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n";
    assert_eq!(
        parse(text),
        [
            Item::Comment(" test stream".to_owned()),
            event("message", "1", Some("1"), "first event"),
            event("message", "", Some(""), "second event"),
            message(" third event"),
        ]
    );
    assert_eq!(parse("data\n\ndata\ndata\n\ndata:"), [message(""), message("\n")]);
    assert_eq!(parse("data:test\n\ndata: test\n\n"), [message("test"), message("test")]);
}

#[test]
fn line_ends_may_be_mixed() {
    assert_eq!(
        parse("data: a\r\rdata: b\r\n\r\ndata: c\n\ndata: d\r\n\n"),
        ["a", "b", "c", "d"].map(message)
    );
    assert_eq!(parse("data: a\r\ndata: b\rdata: c\n\r"), [message("a\nb\nc")]);
    // A lone CR ends a line immediately: the event is not held back until the next byte.
    assert_eq!(parse("data: a\r\r"), [message("a")]);
}

#[test]
fn a_byte_order_mark_counts_only_at_the_start() {
    assert_eq!(parse("\u{FEFF}data: a\n\n"), [message("a")]);
    assert_eq!(parse("\u{FEFF}\u{FEFF}data: a\n\n"), []);
    assert_eq!(parse("data: a\n\n\u{FEFF}data: b\n\n"), [message("a")]);
    assert_eq!(parse("\u{FEFF}\n"), []);
}

#[test]
fn events_without_data_are_not_dispatched_but_move_the_position() {
    let mut parser = Parser::new();
    assert_eq!(parser.feed(b"event: a\nid: 5\n\n"), []);
    assert_eq!(parser.last_event_id(), "5");
    assert_eq!(parser.feed(b"data: b\n\n"), [event("message", "5", None, "b")]);
}

#[test]
fn ids_persist_and_those_with_nul_are_ignored() {
    let text = "id: 1\ndata: a\n\ndata: b\n\nid: 2\0\ndata: c\n\nid: 3\nid: 4\ndata: d\n\n";
    assert_eq!(
        parse(text),
        [
            event("message", "1", Some("1"), "a"),
            event("message", "1", None, "b"),
            event("message", "1", None, "c"),
            event("message", "4", Some("4"), "d"),
        ]
    );
}

#[test]
fn a_position_counts_once_its_event_is_complete() {
    let mut parser = Parser::new();
    parser.feed(b"id: 1\ndata: a\n");
    assert_eq!(parser.last_event_id(), "");
    parser.feed(b"\n");
    assert_eq!(parser.last_event_id(), "1");
    let mut resumed = Parser::resumed("7");
    assert_eq!(resumed.feed(b"data: a\n\n"), [event("message", "7", None, "a")]);
}

#[test]
fn only_digits_are_a_retry() {
    assert_eq!(
        parse("retry: 1500\nretry: 1.5\nretry: -1\nretry:\nretry: x\nretry: 2 \n"),
        [Item::Retry(1500)]
    );
    assert_eq!(parse("retry: 99999999999999999999999\n"), []);
}

#[test]
fn unknown_and_differently_spelt_fields_are_ignored() {
    assert_eq!(parse("Data: a\n data: b\ndata : c\nfoo: d\nEVENT: e\ndata: f\n\n"), [message("f")]);
    assert_eq!(parse("event: a\nevent: b\ndata: x: y\n\n"), [event("b", "", None, "x: y")]);
    assert_eq!(parse("event: a\nevent:\ndata: x\n\n"), [message("x")]);
}

#[test]
fn an_incomplete_event_at_the_end_is_not_dispatched() {
    assert_eq!(parse("data: a\n\ndata: b\n"), [message("a")]);
}

/// Random streams, valid and invalid, composed of fragments that exercise every rule of the format.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let texts = [
        "data", "event", "id", "retry", ":", " ", "\r", "\n", "\r\n", "\n\n", "\0", "\u{FEFF}", "봉수", "12",
        "x",
    ];
    // The first byte of a multi-byte character, alone.
    let bytes = texts.iter().map(|text| text.as_bytes()).chain([&b"\xEB"[..]]).collect::<Vec<_>>();
    let piece = prop::sample::select(bytes);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// A reference implementation of the standard: splits the whole stream into lines, then interprets them.
fn parse_whole(bytes: &[u8]) -> Vec<Item> {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n").replace('\r', "\n");
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(&text);
    let Some((complete, _)) = text.rsplit_once('\n') else { return Vec::new() };
    let (mut items, mut data, mut kind, mut own, mut id) = (vec![], Vec::new(), "", None, "");
    for line in complete.split('\n') {
        let (name, value) = line
            .split_once(':')
            .map_or((line, ""), |(name, value)| (name, value.strip_prefix(' ').unwrap_or(value)));
        match name {
            "" if line.is_empty() => {
                if !data.is_empty() {
                    items.push(event(
                        if kind.is_empty() { "message" } else { kind },
                        id,
                        own,
                        &data.join("\n"),
                    ));
                }
                (data, kind, own) = (Vec::new(), "", None);
            }
            "" => items.push(Item::Comment(line[1..].to_owned())),
            "data" => data.push(value),
            "event" => kind = value,
            "id" if !value.contains('\0') => (id, own) = (value, Some(value)),
            "retry" if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) => {
                items.extend(value.parse().ok().map(Item::Retry));
            }
            _ => {}
        }
    }
    items
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn items_are_the_same_for_every_split(stream in pieces(), cuts in prop::collection::vec(1_usize..7, 1..40)) {
        let mut parser = Parser::new();
        let (mut items, mut rest, mut cuts) = (Vec::new(), &stream[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
            items.extend(parser.feed(now));
            rest = later;
        }
        prop_assert_eq!(&items, &Parser::new().feed(&stream));
        prop_assert_eq!(items, parse_whole(&stream));
    }

    #[test]
    fn arbitrary_bytes_are_parsed(stream in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut parser = Parser::new();
        let one_by_one: Vec<Item> = stream.chunks(1).flat_map(|byte| parser.feed(byte)).collect();
        prop_assert_eq!(&one_by_one, &Parser::new().feed(&stream));
        prop_assert_eq!(one_by_one, parse_whole(&stream));
    }

    #[test]
    fn written_events_are_parsed_back(
        data in "[^\r\n]{0,20}(\n[^\r\n]{0,20}){0,4}",
        id in "[^\r\n\0]{1,20}",
        kind in "[^\r\n]{1,20}",
    ) {
        let lines: String = data.split('\n').map(|line| format!("data: {line}\n")).collect();
        let items = parse(&format!("event: {kind}\nid: {id}\n{lines}\n"));
        prop_assert_eq!(items, [event(&kind, &id, Some(&id), &data)]);
    }
}
