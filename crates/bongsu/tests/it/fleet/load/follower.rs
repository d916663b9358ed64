//! Clients of a room. `read_staying` reconnects only when the hub asks for it; `read_wandering` also connects
//! to the other hub when its own is gone; `read_resuming` behaves like a browser.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use bongsu_testkit::sse::{Event, Request, ResumingClient, Stream};
use bongsu_testkit::wait;
use futures_util::future::join_all;

use super::socket::SocketReader;
use super::{COUNTED_TYPE, END_TYPE, ROOMS};
use crate::fleet::{Fleet, WAIT_TIMEOUT};

/// An open stream of one room or of all rooms.
struct StreamReader {
    reader: String,
    rooms: &'static [&'static str],
    /// The hub of the first connection, then the hubs to which the reader may reconnect.
    hubs: Vec<SocketAddr>,
    stream: Stream,
}

/// The messages of a room that a client received.
pub(in crate::fleet) struct RoomTrace {
    pub(super) reader: String,
    pub(super) room: &'static str,
    pub(super) events: Vec<EventKey>,
    pub(super) unexpected: Vec<String>,
    pub(super) reconnects: u64,
}

/// Identifies an event in its room: by its id, or by its number on a stream of several rooms, whose position is a
/// composite one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum EventKey {
    Id(String),
    Number(u64),
}

type ReadingFuture = Pin<Box<dyn Future<Output = Vec<RoomTrace>>>>;

/// Opens on every hub a stream of each room, a stream of all rooms, and a WebSocket, which stay on that hub; returns
/// the future that reads them all.
pub(in crate::fleet) async fn read_staying(fleet: &Fleet) -> impl Future<Output = Vec<RoomTrace>> {
    read_all(fleet, false).await
}

/// As [`read_staying`], with clients that go to the other hub when their own is gone.
pub(in crate::fleet) async fn read_wandering(fleet: &Fleet) -> impl Future<Output = Vec<RoomTrace>> {
    read_all(fleet, true).await
}

async fn read_all(fleet: &Fleet, wanders: bool) -> impl Future<Output = Vec<RoomTrace>> + use<> {
    let [one, other] = fleet.hubs.each_ref().map(bongsu_testkit::Hub::addr);
    let mut reading: Vec<ReadingFuture> = Vec::new();
    for (hub, addrs) in [("first", [one, other]), ("second", [other, one])] {
        let hubs = if wanders { addrs.to_vec() } else { addrs[..1].to_vec() };
        for rooms in ROOMS.chunks(1).chain([&ROOMS[..]]) {
            let reader = format!("{} on the {hub} hub", rooms.join(" and "));
            reading.push(Box::pin(StreamReader::open(reader, rooms, hubs.clone()).await.read()));
        }
        let reader = format!("a socket on the {hub} hub");
        reading.push(Box::pin(SocketReader::open(reader, hubs).await.read()));
    }
    async move { join_all(reading).await.into_iter().flatten().collect() }
}

/// Reads a room from its beginning as a browser does: it reconnects whatever ended the stream.
pub(in crate::fleet) async fn read_resuming(addr: SocketAddr, reader: usize) -> RoomTrace {
    let room = ROOMS[reader % ROOMS.len()];
    let mut seen = RoomTrace::empty(format!("{room} for {reader}"), room);
    let mut stream = ResumingClient::new(request(addr, &[room])).starting_after("0-0");
    loop {
        match stream.try_next_event(WAIT_TIMEOUT * 2).await {
            Ok(Some(event)) if event.event == COUNTED_TYPE => seen.add(event.own_id.unwrap_or_default()),
            Ok(Some(event)) if event.event == END_TYPE => break,
            Ok(Some(event)) if asks_to_reconnect(&event) => {}
            other => {
                seen.add_unexpected(&other);
                break;
            }
        }
    }
    seen.reconnects = stream.connections() as u64 - 1;
    seen
}

impl RoomTrace {
    fn empty(reader: String, room: &'static str) -> Self {
        Self { reader, room, events: Vec::new(), unexpected: Vec::new(), reconnects: 0 }
    }

    /// An empty trace for each of these rooms.
    pub(super) fn empty_for(reader: &str, rooms: &[&'static str]) -> Vec<Self> {
        rooms.iter().map(|room| Self::empty(reader.to_owned(), room)).collect()
    }

    pub(super) fn add(&mut self, id: String) {
        self.events.push(EventKey::Id(id));
    }

    pub(super) fn add_unexpected(&mut self, what: &impl Debug) {
        self.unexpected.push(format!("after {} events: {what:?}", self.events.len()));
    }
}

impl StreamReader {
    async fn open(reader: String, rooms: &'static [&'static str], hubs: Vec<SocketAddr>) -> Self {
        let stream = request(hubs[0], rooms).open().await.expect("a stream");
        Self { reader, rooms, hubs, stream }
    }

    /// Reads until the last event of every room, or until something unexpected happens.
    async fn read(mut self) -> Vec<RoomTrace> {
        let mut seen = RoomTrace::empty_for(&self.reader, self.rooms);
        let (mut asked_to, mut ended) = (false, 0);
        while ended < self.rooms.len() {
            match self.stream.try_next_event(WAIT_TIMEOUT * 2).await {
                Ok(Some(event)) if event.event == COUNTED_TYPE => self.note(&event, &mut seen),
                Ok(Some(event)) if event.event == END_TYPE => ended += 1,
                Ok(Some(event)) if asks_to_reconnect(&event) => asked_to = true,
                Ok(None) if asked_to || self.hubs.len() > 1 => {
                    asked_to = false;
                    seen[0].reconnects += 1;
                    self.reconnect().await;
                }
                other => {
                    seen[0].add_unexpected(&other);
                    break;
                }
            }
        }
        seen
    }

    fn note(&self, event: &Event, seen: &mut [RoomTrace]) {
        if let [seen] = seen {
            return seen.add(event.own_id.clone().unwrap_or_default());
        }
        let data = event.json();
        let room = self.rooms.iter().position(|room| data["roomId"] == **room);
        match (room, data["n"].as_u64()) {
            (Some(room), Some(n)) => seen[room].events.push(EventKey::Number(n)),
            _ => seen[0].add_unexpected(event),
        }
    }

    /// Reconnects to its hub or another one, after the last event that it received.
    async fn reconnect(&mut self) {
        let (hubs, rooms, position) = (&self.hubs, self.rooms, self.stream.last_event_id().to_owned());
        let back = wait::value_within(WAIT_TIMEOUT, || async {
            // The delay of a browser. A hub that refuses temporarily opens a stream that asks to reconnect.
            tokio::time::sleep(Duration::from_millis(100)).await;
            for addr in hubs {
                if let Ok(answer) = request(*addr, rooms).last_event_id(&position).try_open().await {
                    return Some(answer.expect("a stream"));
                }
            }
            None
        });
        self.stream = back.await.expect("a hub that accepts it");
    }
}

fn request(addr: SocketAddr, rooms: &[&str]) -> Request {
    let path = match rooms {
        [room] => format!("/api/v1/rooms/{room}/stream"),
        rooms => format!("/api/v1/stream?rooms={}", rooms.join(",")),
    };
    Request::new(addr, &path).person("reader")
}

/// Whether the hub closes the stream and asks the client to reconnect.
fn asks_to_reconnect(event: &Event) -> bool {
    event.event == "system.close" && event.json()["code"].as_u64().is_some_and(|code| code < 3500)
}
