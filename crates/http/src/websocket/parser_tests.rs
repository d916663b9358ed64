//! Valid and invalid frames are parsed alike in pieces of any size.
//!
//! The parser never holds more memory than a message may have.

use proptest::prelude::*;

use super::*;

/// A masked frame of a client, encoded independently of the product. `first` has the opcode and the flags.
fn client_frame(first: u8, payload: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut wire = vec![first];
    match payload.len() {
        length @ ..126 => wire.push(0x80 + length as u8),
        length @ 126..0x1_0000 => wire.extend([0xfe, (length >> 8) as u8, length as u8]),
        length => {
            wire.push(0xff);
            wire.extend((length as u64).to_be_bytes());
        }
    }
    wire.extend(mask);
    for (at, byte) in payload.iter().enumerate() {
        wire.push(byte ^ mask[at % 4]);
    }
    wire
}

/// The events and the violation that result when the bytes arrive in pieces of these sizes.
fn parse(wire: &[u8], cuts: &[usize]) -> (Vec<Event>, Option<Violation>) {
    let (mut parser, mut events) = (Parser::default(), Vec::new());
    let (mut rest, mut cuts) = (wire, cuts.iter().cycle());
    while !rest.is_empty() {
        let (mut piece, later) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
        rest = later;
        loop {
            let event = parser.next(&mut piece);
            assert!(
                parser.buffer_size() <= MAX_MESSAGE_SIZE + 2 * MAX_CONTROL_SIZE,
                "{} bytes are buffered",
                parser.buffer_size()
            );
            match event {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break assert!(piece.is_empty(), "input was not consumed"),
                Err(violation) => return (events, Some(violation)),
            }
        }
    }
    (events, None)
}

fn parse_whole(wire: &[u8]) -> (Vec<Event>, Option<Violation>) {
    parse(wire, &[usize::MAX])
}

fn code_of(wire: &[u8]) -> Option<u16> {
    parse_whole(wire).1.map(|violation| violation.code)
}

const MASK: [u8; 4] = [1, 20, 0, 255];

#[derive(Clone, Debug)]
enum ClientMessage {
    /// A text in this number of frames, with an optional ping after each but the last.
    Text(String, usize, Option<Vec<u8>>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(u16, String),
}

impl ClientMessage {
    fn any() -> impl Strategy<Value = ClientMessage> {
        let control = || prop::collection::vec(any::<u8>(), 0..=125);
        prop_oneof![
            4 => ("\\PC{0,300}", 1_usize..6, prop::option::of(control())).prop_map(|(a, b, c)| Self::Text(a, b, c)),
            1 => control().prop_map(Self::Ping),
            1 => control().prop_map(Self::Pong),
            1 => (3000_u16..5000, "\\PC{0,30}").prop_map(|(code, reason)| Self::Close(code, reason)),
        ]
    }

    /// Appends the bytes of the message, and the expected events.
    fn write(&self, mask: [u8; 4], wire: &mut Vec<u8>, events: &mut Vec<Event>) {
        match self {
            Self::Text(text, frames, between) => {
                let (bytes, each) = (text.as_bytes(), text.len().div_ceil(*frames));
                for frame in 0..*frames {
                    let piece =
                        &bytes[(frame * each).min(bytes.len())..((frame + 1) * each).min(bytes.len())];
                    let last = frame + 1 == *frames;
                    wire.extend(client_frame(
                        u8::from(frame == 0) + if last { 0x80 } else { 0 },
                        piece,
                        mask,
                    ));
                    if let Some(payload) = between.as_ref().filter(|_| !last) {
                        wire.extend(client_frame(0x89, payload, mask));
                        events.push(Event::Ping(payload.clone()));
                    }
                }
                events.push(Event::Message(text.clone()));
            }
            Self::Ping(payload) => {
                wire.extend(client_frame(0x89, payload, mask));
                events.push(Event::Ping(payload.clone()));
            }
            Self::Pong(payload) => {
                wire.extend(client_frame(0x8a, payload, mask));
                events.push(Event::Pong);
            }
            Self::Close(code, reason) => {
                wire.extend(client_frame(0x88, &[&code.to_be_bytes(), reason.as_bytes()].concat(), mask));
                events.push(Event::Close(Some(*code)));
            }
        }
    }
}

/// A nearly valid frame: every field may be wrong, and the length may not match the payload.
fn nearly_valid_frame() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        4 => Just(0x81_u8),
        2 => Just(0x01),
        2 => Just(0x80),
        2 => Just(0x00),
        1 => Just(0x88),
        2 => any::<u8>(),
    ];
    let length = prop_oneof![
        3 => (0x80_u8..=0xfd).prop_map(|length| vec![length]),
        2 => any::<u16>().prop_map(|length| [&[0xfe], &length.to_be_bytes()[..]].concat()),
        2 => (0_u64..0x2_0000).prop_map(|length| [&[0xff], &length.to_be_bytes()[..]].concat()),
        1 => any::<u64>().prop_map(|length| [&[0xff], &length.to_be_bytes()[..]].concat()),
        1 => any::<u8>().prop_map(|length| vec![length]),
    ];
    let payload = prop::collection::vec(any::<u8>(), 0..200);
    (first, length, payload).prop_map(|(first, length, payload)| [vec![first], length, payload].concat())
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![1_usize..8, 1_usize..300], 1..30)
}

proptest! {
    #[test]
    fn frames_are_parsed_alike_in_any_pieces(
        all in prop::collection::vec(ClientMessage::any(), 0..8),
        mask in any::<[u8; 4]>(),
        cuts in cuts(),
    ) {
        let (mut wire, mut events) = (Vec::new(), Vec::new());
        all.iter().for_each(|message| message.write(mask, &mut wire, &mut events));
        prop_assert_eq!(parse(&wire, &cuts), (events, None));
    }

    #[test]
    fn hostile_frames_are_parsed_alike_in_any_pieces(
        frames in prop::collection::vec(nearly_valid_frame(), 1..12),
        cuts in cuts(),
    ) {
        let wire = frames.concat();
        prop_assert_eq!(parse(&wire, &cuts), parse_whole(&wire));
    }

    #[test]
    fn random_bytes_are_parsed_alike_in_any_pieces(wire in prop::collection::vec(any::<u8>(), 0..400), cuts in cuts()) {
        prop_assert_eq!(parse(&wire, &cuts), parse_whole(&wire));
    }
}

#[test]
fn a_message_has_at_most_64_kib_over_all_its_frames() {
    let (half, longest) = (vec![b'a'; MAX_MESSAGE_SIZE / 2], vec![b'a'; MAX_MESSAGE_SIZE]);
    let text = String::from_utf8(longest.clone()).unwrap();
    for cuts in [&[usize::MAX][..], &[1], &[4_096], &[1_000]] {
        let halves = [client_frame(0x01, &half, MASK), client_frame(0x80, &half, MASK)].concat();
        assert_eq!(parse(&halves, cuts), (vec![Event::Message(text.clone())], None));
        assert_eq!(
            parse(&client_frame(0x81, &longest, MASK), cuts),
            (vec![Event::Message(text.clone())], None)
        );
        let more = [client_frame(0x01, &longest, MASK), client_frame(0x80, b"a", MASK)].concat();
        assert_eq!(parse(&more, cuts), (Vec::new(), Some(Violation::TOO_LARGE)));
    }
}

#[test]
fn a_too_long_length_is_refused_before_memory_is_allocated() {
    let mut parser = Parser::default();
    let head = [&[0x81, 0xff][..], &65_537_u64.to_be_bytes(), &MASK].concat();
    assert_eq!(parser.next(&mut &head[..]), Err(Violation::TOO_LARGE));
    assert_eq!(parser.buffer_size(), 0);
    let head = [&[0x81, 0xff][..], &65_536_u64.to_be_bytes(), &MASK].concat();
    let mut parser = Parser::default();
    assert_eq!(parser.next(&mut &head[..]), Ok(None));
    assert_eq!(parser.buffer_size(), 0, "the announced length allocates no memory");
}

#[test]
fn no_buffer_is_held_between_messages() {
    let mut parser = Parser::default();
    let wire = [client_frame(0x81, b"hello", MASK), client_frame(0x8a, b"pong", MASK)].concat();
    let mut input = &wire[..];
    while parser.next(&mut input).unwrap().is_some() {}
    assert_eq!(parser.buffer_size(), 0);
}

#[test]
fn utf_8_is_checked_over_all_frames_of_a_message() {
    let beacon = "봉수".as_bytes();
    let split = [
        client_frame(0x01, &beacon[..1], MASK),
        client_frame(0x00, &beacon[1..4], MASK),
        client_frame(0x80, &beacon[4..], MASK),
    ];
    assert_eq!(parse_whole(&split.concat()), (vec![Event::Message("봉수".to_owned())], None));
    assert_eq!(code_of(&client_frame(0x81, &beacon[..1], MASK)), Some(1007));
    assert_eq!(code_of(&client_frame(0x81, b"\xed\xa0\x80", MASK)), Some(1007), "half of a surrogate pair");
}

#[test]
fn a_violation_has_the_code_of_the_standard() {
    let text = |first| client_frame(first, b"a", MASK);
    for (wire, code) in [
        (vec![0x81, 1, b'a'], 1002),
        (text(0xc1), 1002),
        (text(0x91), 1002),
        (text(0x83), 1002),
        (text(0x8b), 1002),
        (text(0x80), 1002),
        ([text(0x01), text(0x81)].concat(), 1002),
        ([text(0x01), text(0x82)].concat(), 1002),
        (text(0x09), 1002),
        (client_frame(0x89, &[0; 126], MASK), 1002),
        (vec![0x81, 0xfe, 0, 125, 0, 0, 0, 0], 1002),
        (vec![0x81, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0], 1002),
        (vec![0x81, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1002),
        (text(0x82), 1003),
        (text(0x02), 1003),
    ] {
        assert_eq!(code_of(&wire), Some(code), "{wire:?}");
    }
}

#[test]
fn a_close_frame_is_empty_or_has_an_allowed_code() {
    let close = |payload: &[u8]| parse_whole(&client_frame(0x88, payload, MASK));
    assert_eq!(close(b""), (vec![Event::Close(None)], None));
    for code in [1000_u16, 1001, 1003, 1007, 1014, 3000, 4999] {
        assert_eq!(close(&code.to_be_bytes()), (vec![Event::Close(Some(code))], None));
    }
    for code in [0_u16, 999, 1004, 1005, 1006, 1015, 2000, 2999, 5000, 65_535] {
        assert_eq!(close(&code.to_be_bytes()).1.map(|violation| violation.code), Some(1002), "{code}");
    }
    assert_eq!(close(&[3]).1.map(|violation| violation.code), Some(1002));
    assert_eq!(close(b"\x03\xe8\xff").1.map(|violation| violation.code), Some(1007));
}
