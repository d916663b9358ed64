//! What callers send: a room's event, a notice to people, a question of one person.
//! The request is built once; sending it patches whom it is about and the send time in place.

use super::{FIRST_PERSON, FIRST_ROOM, Target};
use crate::Result;
use crate::clock::{STAMP_DIGITS, StampReader, put_digits, put_stamp};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rooms and people have as many digits each: see where their numbers begin.
const SUBJECT_DIGITS: usize = 6;
const EVENT_DIGITS: usize = 12;
const ROOM_KEY: &[u8] = b"\"roomId\":";
const EVENT_KEY: &[u8] = b"\"eventId\":\"";
const TARGETS_KEY: &[u8] = b"\"targetIds\":[";
const EVENT: &str = r#"{"roomId":000000,"eventType":"retrospect.submitted","data":{"userId":1,"userName":"Kim","retrospectId":7,"retrospectTitle":"Sprint 12: what went well","sentNs":0000000000000000},"publisherId":1}"#;
const NOTICE: &str = r#"{"eventId":"000000000000","type":"POST_LIKE","targetIds":[],"actorId":1,"refId":100,"payload":{"actorName":"Kim","sentNs":0000000000000000}}"#;

/// People that are asked for one after another are so far apart: neighbours lie on the same page of an index, and
/// nobody comes in that order. A prime, so that everybody's turn comes.
const STEP: usize = 7_919;

/// Numbers of notices. The databases of a run outlive a generator, and to repeat one would be to tell nobody.
static NEXT_NOTICE: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy)]
pub(crate) enum Request {
    /// Events of so many rooms, of each one: subject 0 is the first of them, subject 1 those after them.
    Publish { events: u32 },
    /// An event of a room that nobody gets an inbox entry of.
    PublishForNobody,
    /// Subject 0 is the first so many people, subject 1 those after them.
    Notify { targets: u32 },
    /// With the token of the person.
    Get(&'static str),
}

/// A request that is ready to be filled in and sent.
pub(super) struct Form {
    bytes: Vec<u8>,
    blanks: Blanks,
    /// The status of an answer that did what was asked.
    pub(super) success: u16,
}

enum Blanks {
    /// Events after the first are so many bytes apart.
    Events {
        room_at: usize,
        stamp_at: usize,
        events: u32,
        apart: usize,
    },
    Notice {
        event_at: usize,
        targets_at: usize,
        targets: u32,
        stamp_at: usize,
    },
    Token {
        at: usize,
        tokens: Rc<[String]>,
    },
}

impl Form {
    pub(super) fn new(request: Request, target: &Target) -> Result<Self> {
        match request {
            Request::Publish { .. } | Request::PublishForNobody => {
                let (events, event) = match request {
                    Request::Publish { events } => (events, EVENT.to_owned()),
                    _ => (1, EVENT.replace("\"publisherId\":1", r#""publisherId":1,"recipients":[]"#)),
                };
                let bytes = if events == 1 {
                    post("/api/v1/notifications/publish", &event, target)
                } else {
                    let body = format!(r#"{{"events":[{}]}}"#, vec![event; events as usize].join(","));
                    post("/api/v1/notifications/publish/batch", &body, target)
                };
                let (room_at, stamp_at) = (after(&bytes, ROOM_KEY)?, stamp_in(&bytes)?);
                let blanks = Blanks::Events { room_at, stamp_at, events, apart: EVENT.len() + 1 };
                Ok(Self { bytes, blanks, success: 200 })
            }
            Request::Notify { targets } => {
                let people = vec!["\"000000\""; targets as usize].join(",");
                let body = NOTICE.replace("[]", &format!("[{people}]"));
                let bytes = post("/api/v1/members/notify", &body, target);
                let (event_at, targets_at) = (after(&bytes, EVENT_KEY)?, after(&bytes, TARGETS_KEY)?);
                let blanks = Blanks::Notice { event_at, targets_at, targets, stamp_at: stamp_in(&bytes)? };
                Ok(Self { bytes, blanks, success: 202 })
            }
            Request::Get(path) => {
                let head =
                    format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer ", target.address);
                let blanks = Blanks::Token { at: head.len(), tokens: Rc::clone(&target.tokens) };
                Ok(Self { bytes: head.into_bytes(), blanks, success: 200 })
            }
        }
    }

    pub(super) fn fill(&mut self, subject: u32, now_ns: u64) -> &[u8] {
        let bytes = &mut self.bytes;
        match &self.blanks {
            Blanks::Events { room_at, stamp_at, events, apart } => {
                for number in 0..*events {
                    let (behind, room) = (number as usize * apart, FIRST_ROOM + subject * events + number);
                    put_digits(&mut bytes[room_at + behind..][..SUBJECT_DIGITS], u64::from(room));
                    put_stamp(&mut bytes[stamp_at + behind..][..STAMP_DIGITS], now_ns);
                }
            }
            Blanks::Notice { event_at, targets_at, targets, stamp_at } => {
                let number = NEXT_NOTICE.fetch_add(1, Ordering::Relaxed);
                put_digits(&mut bytes[*event_at..event_at + EVENT_DIGITS], number);
                for number in 0..*targets {
                    // A quotation mark before each, and one with a comma behind it.
                    let at = targets_at + 1 + number as usize * (SUBJECT_DIGITS + 3);
                    let person = FIRST_PERSON + subject * targets + number;
                    put_digits(&mut bytes[at..at + SUBJECT_DIGITS], u64::from(person));
                }
                put_stamp(&mut bytes[*stamp_at..stamp_at + STAMP_DIGITS], now_ns);
            }
            Blanks::Token { at, tokens } => {
                bytes.truncate(*at);
                bytes.extend_from_slice(tokens[subject as usize * STEP % tokens.len()].as_bytes());
                bytes.extend_from_slice(b"\r\n\r\n");
            }
        }
        bytes
    }
}

fn post(path: &str, body: &str, target: &Target) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nX-Internal-Key: {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        target.address,
        target.internal_key,
        body.len()
    )
    .into_bytes()
}

fn after(bytes: &[u8], key: &[u8]) -> Result<usize> {
    let found = bytes.windows(key.len()).position(|window| window == key);
    found.map(|at| at + key.len()).ok_or_else(|| "the request has no place for what it is about".into())
}

fn stamp_in(bytes: &[u8]) -> Result<usize> {
    StampReader::default().locate(bytes).ok_or_else(|| "the request has no send time".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    fn form(request: Request) -> Form {
        let tokens = Rc::from(["a.b.c".to_owned(), "d.e.f.g".to_owned()]);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        Form::new(request, &Target { address, tokens, internal_key: "key" }).unwrap()
    }

    fn body(form: &mut Form, subject: u32) -> serde_json::Value {
        let text = String::from_utf8(form.fill(subject, 12).to_vec()).unwrap();
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    #[test]
    fn an_event_is_json_of_about_two_hundred_bytes() {
        let event = body(&mut form(Request::Publish { events: 1 }), 1);
        assert_eq!(event["roomId"], 100_001);
        assert_eq!(event["data"]["sentNs"], 1_000_000_000_000_012_u64);
        assert!((180..=220).contains(&EVENT.len()), "{}", EVENT.len());
        assert_eq!(event.get("recipients"), None);
        let for_nobody = body(&mut form(Request::PublishForNobody), 1);
        assert_eq!(
            (&for_nobody["roomId"], &for_nobody["recipients"]),
            (&event["roomId"], &serde_json::json!([]))
        );
    }

    #[test]
    fn a_batch_is_about_the_next_rooms() {
        let batch = body(&mut form(Request::Publish { events: 3 }), 2);
        let rooms: Vec<_> =
            batch["events"].as_array().unwrap().iter().map(|event| &event["roomId"]).collect();
        assert_eq!(rooms, [100_006, 100_007, 100_008]);
        assert!(
            batch["events"]
                .as_array()
                .unwrap()
                .iter()
                .all(|event| event["data"]["sentNs"] == 1_000_000_000_000_012_u64)
        );
    }

    #[test]
    fn notices_are_new_each_and_tell_the_next_people() {
        let mut form = form(Request::Notify { targets: 3 });
        let (first, second) = (body(&mut form, 0), body(&mut form, 1));
        assert_ne!(first["eventId"], second["eventId"]);
        assert_eq!(first["targetIds"], serde_json::json!(["100000", "100001", "100002"]));
        assert_eq!(second["targetIds"], serde_json::json!(["100003", "100004", "100005"]));
        assert_eq!(second["payload"]["sentNs"], 1_000_000_000_000_012_u64);
    }

    #[test]
    fn a_question_is_asked_by_one_person_after_another() {
        let mut form = form(Request::Get("/a"));
        for (subject, token) in [(0, "a.b.c"), (1, "d.e.f.g"), (2, "a.b.c")] {
            let text = String::from_utf8(form.fill(subject, 0).to_vec()).unwrap();
            assert!(text.ends_with(&format!("\r\nAuthorization: Bearer {token}\r\n\r\n")), "{text}");
        }
    }
}
