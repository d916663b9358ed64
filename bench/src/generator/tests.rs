//! The generator against servers that are right, wrong on purpose, or the bare loop itself: a measurement that could
//! not see a lost or repeated event would prove nothing.

use super::*;
use crate::args::BareLoopOptions;
use crate::wire::head::Head;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

const ROOM_STREAMS: usize = 3;

#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// Chunked, each frame cut into several chunks and writes.
    Honest,
    /// The first stream does not get every third event.
    Forgetful,
    /// The first stream gets every third event twice.
    Stuttering,
    /// Every third publish is answered 503 and not delivered.
    Refusing,
}

/// One room, whatever the path says.
struct FakeHub {
    manner: Manner,
    streams: Vec<TcpStream>,
    published: u64,
}

impl FakeHub {
    fn start(manner: Manner) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let hub = Arc::new(Mutex::new(Self { manner, streams: Vec::new(), published: 0 }));
        thread::spawn(move || {
            for socket in listener.incoming() {
                let hub = Arc::clone(&hub);
                thread::spawn(move || Self::converse(&hub, socket.unwrap()));
            }
        });
        address
    }

    fn converse(hub: &Mutex<Self>, mut socket: TcpStream) {
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
        let third = self.published.is_multiple_of(3);
        if third && self.manner == Manner::Refusing {
            return 503;
        }
        let body = String::from_utf8_lossy(body);
        // What is for people has plain numbers, and is only taken on.
        let (before, status) = if body.contains("targetIds") { ("", 202) } else { ("17-", 200) };
        let frame = format!(
            "event: presence.update\ndata: {{}}\n\nevent: a.b\nid: {before}{}\ndata: {body}\n\n",
            self.published
        );
        for (number, stream) in self.streams.iter_mut().enumerate() {
            let times = match self.manner {
                Manner::Forgetful if third && number == 0 => 0,
                Manner::Stuttering if third && number == 0 => 2,
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
    load_with(address, streams, Follow::Rooms(rooms), Request::Publish { events: 1 }, rooms)
}

fn load_with(
    address: SocketAddr,
    streams: usize,
    follow: Follow,
    request: Request,
    subjects: u32,
) -> Outcome {
    let tokens = Rc::from([String::from("a.b.c")]);
    let mut generator = Generator::new(Target { address, tokens, internal_key: "key" }).unwrap();
    generator.open_streams(streams, follow).unwrap();
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
fn an_honest_server_has_no_faults() {
    let outcome = load(FakeHub::start(Manner::Honest), ROOM_STREAMS, 1);
    assert!(outcome.published >= 10);
    assert_eq!(outcome.delivered, outcome.published * ROOM_STREAMS as u64);
    assert_eq!(outcome.faults(), 0);
    assert!(outcome.delivery_latency.p50_ms > 0.0);
}

#[test]
fn notices_reach_the_stream_of_the_person_they_are_for() {
    let notify =
        |manner| load_with(FakeHub::start(manner), 1, Follow::People, Request::Notify { targets: 1 }, 1);
    let outcome = notify(Manner::Honest);
    assert!(outcome.published >= 10);
    assert_eq!((outcome.delivered, outcome.faults()), (outcome.published, 0));
    let outcome = notify(Manner::Forgetful);
    assert_eq!((outcome.missing, outcome.repeated), (outcome.published / 3, 0));
}

#[test]
fn a_lost_event_is_missing() {
    let outcome = load(FakeHub::start(Manner::Forgetful), ROOM_STREAMS, 1);
    assert_eq!((outcome.missing, outcome.repeated), (outcome.published / 3, 0));
}

#[test]
fn a_repeated_event_is_counted_and_hides_no_missing_one() {
    let outcome = load(FakeHub::start(Manner::Stuttering), ROOM_STREAMS, 1);
    assert_eq!((outcome.missing, outcome.repeated), (0, outcome.published / 3));
    assert_eq!(outcome.delivered, outcome.published * ROOM_STREAMS as u64);
}

#[test]
fn a_refused_publish_is_counted_and_not_expected() {
    let outcome = load(FakeHub::start(Manner::Refusing), ROOM_STREAMS, 1);
    assert_eq!(outcome.refused, (outcome.published + outcome.refused) / 3);
    assert_eq!((outcome.missing, outcome.repeated), (0, 0));
}

#[test]
fn the_bare_loop_serves_rooms_apart() {
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
