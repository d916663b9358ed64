//! Tests of the generator against a fake hub that is correct, drops, repeats or refuses events, and against the bare
//! loop: a measurement that cannot detect a lost or repeated event would prove nothing.

use super::*;
use crate::args::BareLoopOptions;
use crate::wire::head::Head;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

const ROOM_STREAMS: usize = 3;

#[derive(Clone, Copy, PartialEq)]
enum Behaviour {
    /// Sends every event once, with each frame split over several chunks and writes.
    Correct,
    /// Does not send every third event to the first stream.
    DropsEvents,
    /// Sends every third event twice to the first stream.
    RepeatsEvents,
    /// Answers every third publish with 503 and does not deliver it.
    RefusesPublishes,
}

/// A server with one room, which ignores the path of requests.
struct FakeHub {
    behaviour: Behaviour,
    streams: Vec<TcpStream>,
    published: u64,
}

impl FakeHub {
    fn start(behaviour: Behaviour) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let hub = Arc::new(Mutex::new(Self { behaviour, streams: Vec::new(), published: 0 }));
        thread::spawn(move || {
            for socket in listener.incoming() {
                let hub = Arc::clone(&hub);
                thread::spawn(move || Self::serve_connection(&hub, socket.unwrap()));
            }
        });
        address
    }

    fn serve_connection(hub: &Mutex<Self>, mut socket: TcpStream) {
        let mut input = Vec::new();
        let mut buffer = [0; 2_048];
        while let Ok(read @ 1..) = socket.read(&mut buffer) {
            input.extend_from_slice(&buffer[..read]);
            let Some(head) = Head::parse(&input) else { continue };
            let length = head.bytes + head.content_length.unwrap_or(0);
            let Some(body) = input.get(head.bytes..length) else { continue };
            let mut hub = hub.lock().unwrap();
            if body.is_empty() {
                socket.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
                hub.streams.push(socket.try_clone().unwrap());
            } else {
                let status = hub.publish(body);
                let answer = format!("HTTP/1.1 {status} Said\r\nContent-Length: 2\r\n\r\n{{}}");
                socket.write_all(answer.as_bytes()).unwrap();
            }
            input.drain(..length);
        }
    }

    fn publish(&mut self, body: &[u8]) -> u16 {
        self.published += 1;
        let is_third = self.published.is_multiple_of(3);
        if is_third && self.behaviour == Behaviour::RefusesPublishes {
            return 503;
        }
        let body = String::from_utf8_lossy(body);
        // The ids of notifications are plain numbers, and the status of their answer is 202.
        let (id_prefix, status) = if body.contains("targetIds") { ("", 202) } else { ("17-", 200) };
        let frame = format!(
            "event: presence.update\ndata: {{}}\n\nevent: a.b\nid: {id_prefix}{}\ndata: {body}\n\n",
            self.published
        );
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let times = match self.behaviour {
                Behaviour::DropsEvents if is_third && number == 0 => 0,
                Behaviour::RepeatsEvents if is_third && number == 0 => 2,
                _ => 1,
            };
            for _ in 0..times {
                write_in_pieces(stream, frame.as_bytes());
            }
        }
        status
    }
}

fn write_in_pieces(stream: &mut TcpStream, frame: &[u8]) {
    for piece in frame.chunks(70) {
        let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        let (start, end) = chunk.split_at(chunk.len() / 2);
        stream.write_all(start).unwrap();
        stream.write_all(end).unwrap();
    }
}

fn load(address: SocketAddr, streams: usize, rooms: u32) -> Outcome {
    load_with(address, streams, StreamKind::Rooms(rooms), Request::Publish { events: 1 }, rooms)
}

fn load_with(
    address: SocketAddr,
    streams: usize,
    kind: StreamKind,
    request: Request,
    subjects: u32,
) -> Outcome {
    let tokens = Rc::from([String::from("a.b.c")]);
    let mut generator = Generator::new(Target { address, tokens, internal_key: "key" }).unwrap();
    generator.open_streams(streams, kind).unwrap();
    generator.open_callers(2, request).unwrap();
    let load = Load {
        pace: Pace::PerSecond(60),
        window: Duration::from_millis(500),
        subjects,
        drain: Duration::from_millis(500),
    };
    generator.run(&load).unwrap()
}

#[test]
fn a_correct_server_has_no_faults() {
    let outcome = load(FakeHub::start(Behaviour::Correct), ROOM_STREAMS, 1);
    assert!(outcome.published >= 10);
    assert_eq!(outcome.delivered, outcome.published * ROOM_STREAMS as u64);
    assert_eq!(outcome.faults(), 0);
    assert!(outcome.delivery_latency.p50_ms > 0.0);
}

#[test]
fn notifications_reach_the_stream_of_their_target() {
    let notify = |behaviour| {
        load_with(FakeHub::start(behaviour), 1, StreamKind::People, Request::Notify { targets: 1 }, 1)
    };
    let outcome = notify(Behaviour::Correct);
    assert!(outcome.published >= 10);
    assert_eq!((outcome.delivered, outcome.faults()), (outcome.published, 0));
    let outcome = notify(Behaviour::DropsEvents);
    assert_eq!((outcome.missing, outcome.repeated), (outcome.published / 3, 0));
}

#[test]
fn a_lost_event_is_missing() {
    let outcome = load(FakeHub::start(Behaviour::DropsEvents), ROOM_STREAMS, 1);
    assert_eq!((outcome.missing, outcome.repeated), (outcome.published / 3, 0));
}

#[test]
fn a_repeated_event_is_counted_separately_from_missing_ones() {
    let outcome = load(FakeHub::start(Behaviour::RepeatsEvents), ROOM_STREAMS, 1);
    assert_eq!((outcome.missing, outcome.repeated), (0, outcome.published / 3));
    assert_eq!(outcome.delivered, outcome.published * ROOM_STREAMS as u64);
}

#[test]
fn a_refused_publish_is_counted_and_not_expected() {
    let outcome = load(FakeHub::start(Behaviour::RefusesPublishes), ROOM_STREAMS, 1);
    assert_eq!(outcome.refused, (outcome.published + outcome.refused) / 3);
    assert_eq!((outcome.missing, outcome.repeated), (0, 0));
}

#[test]
fn the_bare_loop_delivers_only_to_the_room_of_an_event() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    thread::spawn(move || {
        crate::bare_loop::serve(&BareLoopOptions { port, frame_bytes: 200, max_secs: 20 }).unwrap();
    });
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    while TcpStream::connect(address).is_err() {
        thread::yield_now();
    }
    let outcome = load(address, 8, 4);
    assert_eq!(outcome.delivered, outcome.published * 2);
    assert_eq!((outcome.faults(), outcome.frame_bytes), (0, 200));
}
