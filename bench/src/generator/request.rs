//! The requests of callers: publish to rooms, notify persons, or read as a person.
//! A request is built once; before it is sent, its subject and its send time are overwritten in place.

use super::{FIRST_PERSON, FIRST_ROOM, Target};
use crate::Result;
use crate::clock::{STAMP_DIGITS, StampReader, put_digits, put_stamp};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Digits of the numbers of rooms and persons, see [`FIRST_ROOM`].
const SUBJECT_DIGITS: usize = 6;
const EVENT_DIGITS: usize = 12;
const ROOM_KEY: &[u8] = b"\"roomId\":";
const EVENT_KEY: &[u8] = b"\"eventId\":\"";
const TARGETS_KEY: &[u8] = b"\"targetIds\":[";
const EVENT_BODY: &str = r#"{"roomId":000000,"eventType":"retrospect.submitted","data":{"userId":1,"userName":"Kim","retrospectId":7,"retrospectTitle":"Sprint 12: what went well","sentNs":0000000000000000},"publisherId":1}"#;
const NOTIFICATION_BODY: &str = r#"{"eventId":"000000000000","type":"POST_LIKE","targetIds":[],"actorId":1,"refId":100,"payload":{"actorName":"Kim","sentNs":0000000000000000}}"#;

/// Distance between the persons of consecutive requests, because consecutive persons share a page of an index, and real
/// requests do not come in that order. It is a prime, so that every person is reached.
const PERSON_STRIDE: usize = 7_919;

/// The next event id of a notification. All generators share it: they use the same databases, and the hub ignores a
/// repeated event id.
static NEXT_EVENT_ID: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy)]
pub(crate) enum Request {
    /// Publishes one event to each of `events` rooms: subject 0 is the first `events` rooms, subject 1 the next ones.
    Publish { events: u32 },
    /// Publishes an event with an empty list of recipients, so that no inbox entries are written.
    PublishWithoutRecipients,
    /// Notifies `targets` persons: subject 0 is the first `targets` persons, subject 1 the next ones.
    Notify { targets: u32 },
    /// Requests this path with the token of a person.
    Get(&'static str),
}

/// The bytes of a request, and the offsets of its variable parts.
pub(super) struct RequestTemplate {
    bytes: Vec<u8>,
    placeholders: Placeholders,
    /// The status of a successful answer.
    pub(super) success: u16,
}

/// The offsets of the variable parts.
enum Placeholders {
    /// The offsets in the first event; each further event begins `event_stride` bytes after the previous one.
    Events {
        room_offset: usize,
        stamp_offset: usize,
        events: u32,
        event_stride: usize,
    },
    Notification {
        event_id_offset: usize,
        targets_offset: usize,
        targets: u32,
        stamp_offset: usize,
    },
    Token {
        at: usize,
        tokens: Rc<[String]>,
    },
}

impl RequestTemplate {
    pub(super) fn new(request: Request, target: &Target) -> Result<Self> {
        match request {
            Request::Publish { .. } | Request::PublishWithoutRecipients => {
                let (events, event) = match request {
                    Request::Publish { events } => (events, EVENT_BODY.to_owned()),
                    _ => (1, EVENT_BODY.replace("\"publisherId\":1", r#""publisherId":1,"recipients":[]"#)),
                };
                let bytes = if events == 1 {
                    post("/api/v1/notifications/publish", &event, target)
                } else {
                    let body = format!(r#"{{"events":[{}]}}"#, vec![event; events as usize].join(","));
                    post("/api/v1/notifications/publish/batch", &body, target)
                };
                let (room_offset, stamp_offset) = (offset_after(&bytes, ROOM_KEY)?, find_stamp(&bytes)?);
                let placeholders = Placeholders::Events {
                    room_offset,
                    stamp_offset,
                    events,
                    event_stride: EVENT_BODY.len() + 1,
                };
                Ok(Self { bytes, placeholders, success: 200 })
            }
            Request::Notify { targets } => {
                let people = vec!["\"000000\""; targets as usize].join(",");
                let body = NOTIFICATION_BODY.replace("[]", &format!("[{people}]"));
                let bytes = post("/api/v1/members/notify", &body, target);
                let (event_id_offset, targets_offset) =
                    (offset_after(&bytes, EVENT_KEY)?, offset_after(&bytes, TARGETS_KEY)?);
                let placeholders = Placeholders::Notification {
                    event_id_offset,
                    targets_offset,
                    targets,
                    stamp_offset: find_stamp(&bytes)?,
                };
                Ok(Self { bytes, placeholders, success: 202 })
            }
            Request::Get(path) => {
                let head =
                    format!("GET {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer ", target.address);
                let placeholders = Placeholders::Token { at: head.len(), tokens: Rc::clone(&target.tokens) };
                Ok(Self { bytes: head.into_bytes(), placeholders, success: 200 })
            }
        }
    }

    /// Writes the subject and the send time into the request, and returns its bytes.
    pub(super) fn fill(&mut self, subject: u32, now_ns: u64) -> &[u8] {
        let bytes = &mut self.bytes;
        match &self.placeholders {
            Placeholders::Events { room_offset, stamp_offset, events, event_stride } => {
                for number in 0..*events {
                    let (distance, room) =
                        (number as usize * event_stride, FIRST_ROOM + subject * events + number);
                    put_digits(&mut bytes[room_offset + distance..][..SUBJECT_DIGITS], u64::from(room));
                    put_stamp(&mut bytes[stamp_offset + distance..][..STAMP_DIGITS], now_ns);
                }
            }
            Placeholders::Notification { event_id_offset, targets_offset, targets, stamp_offset } => {
                let number = NEXT_EVENT_ID.fetch_add(1, Ordering::Relaxed);
                put_digits(&mut bytes[*event_id_offset..event_id_offset + EVENT_DIGITS], number);
                for number in 0..*targets {
                    // Each number has a quotation mark in front, and a quotation mark and a comma behind it.
                    let at = targets_offset + 1 + number as usize * (SUBJECT_DIGITS + 3);
                    let person = FIRST_PERSON + subject * targets + number;
                    put_digits(&mut bytes[at..at + SUBJECT_DIGITS], u64::from(person));
                }
                put_stamp(&mut bytes[*stamp_offset..stamp_offset + STAMP_DIGITS], now_ns);
            }
            Placeholders::Token { at, tokens } => {
                bytes.truncate(*at);
                bytes.extend_from_slice(tokens[subject as usize * PERSON_STRIDE % tokens.len()].as_bytes());
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

fn offset_after(bytes: &[u8], key: &[u8]) -> Result<usize> {
    let found = bytes.windows(key.len()).position(|window| window == key);
    found
        .map(|at| at + key.len())
        .ok_or_else(|| format!("the request does not contain {}", String::from_utf8_lossy(key)).into())
}

fn find_stamp(bytes: &[u8]) -> Result<usize> {
    StampReader::default().locate(bytes).ok_or_else(|| "the request has no send time".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    fn template(request: Request) -> RequestTemplate {
        let tokens = Rc::from(["a.b.c".to_owned(), "d.e.f.g".to_owned()]);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        RequestTemplate::new(request, &Target { address, tokens, internal_key: "key" }).unwrap()
    }

    fn body(template: &mut RequestTemplate, subject: u32) -> serde_json::Value {
        let text = String::from_utf8(template.fill(subject, 12).to_vec()).unwrap();
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    #[test]
    fn an_event_is_json_of_about_two_hundred_bytes() {
        let event = body(&mut template(Request::Publish { events: 1 }), 1);
        assert_eq!(event["roomId"], 100_001);
        assert_eq!(event["data"]["sentNs"], 1_000_000_000_000_012_u64);
        assert!((180..=220).contains(&EVENT_BODY.len()), "{}", EVENT_BODY.len());
        assert_eq!(event.get("recipients"), None);
        let without_recipients = body(&mut template(Request::PublishWithoutRecipients), 1);
        assert_eq!(
            (&without_recipients["roomId"], &without_recipients["recipients"]),
            (&event["roomId"], &serde_json::json!([]))
        );
    }

    #[test]
    fn a_batch_publishes_to_consecutive_rooms() {
        let batch = body(&mut template(Request::Publish { events: 3 }), 2);
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
    fn notifications_have_new_event_ids_and_the_next_targets() {
        let mut template = template(Request::Notify { targets: 3 });
        let (first, second) = (body(&mut template, 0), body(&mut template, 1));
        assert_ne!(first["eventId"], second["eventId"]);
        assert_eq!(first["targetIds"], serde_json::json!(["100000", "100001", "100002"]));
        assert_eq!(second["targetIds"], serde_json::json!(["100003", "100004", "100005"]));
        assert_eq!(second["payload"]["sentNs"], 1_000_000_000_000_012_u64);
    }

    #[test]
    fn reads_use_the_tokens_in_turn() {
        let mut template = template(Request::Get("/a"));
        for (subject, token) in [(0, "a.b.c"), (1, "d.e.f.g"), (2, "a.b.c")] {
            let text = String::from_utf8(template.fill(subject, 0).to_vec()).unwrap();
            assert!(text.ends_with(&format!("\r\nAuthorization: Bearer {token}\r\n\r\n")), "{text}");
        }
    }
}
