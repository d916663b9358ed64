//! Clients of a room. One that stays comes back only when the hub itself asked for it; one that wanders goes to the
//! other hub, too, when its own is gone; one that resumes does what a browser does.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use bongsu_testkit::sse::{Event, Request, Resuming, Stream};
use bongsu_testkit::wait;
use futures_util::future::join_all;

use super::socket::Socket;
use super::{COUNTED, END, ROOMS};
use crate::fleet::{Fleet, LONG};

/// An open stream of one room, or of all.
struct Follower {
    reader: String,
    rooms: &'static [&'static str],
    /// Where it is, first; where else it may go.
    hubs: Vec<SocketAddr>,
    stream: Stream,
}

/// What a client saw of a room.
pub(in crate::fleet) struct Seen {
    pub(super) reader: String,
    pub(super) room: &'static str,
    pub(super) events: Vec<Mark>,
    pub(super) strange: Vec<String>,
    pub(super) comebacks: u64,
}

/// What tells an event from the others of its room: its id, or its number where the position is one of several rooms.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mark {
    Id(String),
    Number(u64),
}

type Reading = Pin<Box<dyn Future<Output = Vec<Seen>>>>;

/// Opens on every hub a stream of every room, one of all rooms, and a WebSocket, which stay there; gives what reads them
/// all.
pub(in crate::fleet) async fn follow(fleet: &Fleet) -> impl Future<Output = Vec<Seen>> {
    read_all(fleet, false).await
}

/// As [`follow`], with clients that go to the other hub when their own is gone.
pub(in crate::fleet) async fn wander(fleet: &Fleet) -> impl Future<Output = Vec<Seen>> {
    read_all(fleet, true).await
}

async fn read_all(fleet: &Fleet, wanders: bool) -> impl Future<Output = Vec<Seen>> + use<> {
    let [one, other] = fleet.hubs.each_ref().map(bongsu_testkit::Hub::addr);
    let mut reading: Vec<Reading> = Vec::new();
    for (hub, addrs) in [("first", [one, other]), ("second", [other, one])] {
        let hubs = if wanders { addrs.to_vec() } else { addrs[..1].to_vec() };
        for rooms in ROOMS.chunks(1).chain([&ROOMS[..]]) {
            let reader = format!("{} on the {hub} hub", rooms.join(" and "));
            reading.push(Box::pin(Follower::open(reader, rooms, hubs.clone()).await.read()));
        }
        let reader = format!("a socket on the {hub} hub");
        reading.push(Box::pin(Socket::open(reader, hubs).await.read()));
    }
    async move { join_all(reading).await.into_iter().flatten().collect() }
}

/// Reads a room from its beginning as a browser does: it comes back by itself, whatever ended the stream.
pub(in crate::fleet) async fn resume(addr: SocketAddr, reader: usize) -> Seen {
    let room = ROOMS[reader % ROOMS.len()];
    let mut seen = Seen::nothing(format!("{room} for {reader}"), room);
    let mut stream = Resuming::new(request(addr, &[room])).starting_after("0-0");
    loop {
        match stream.try_next_event(LONG * 2).await {
            Ok(Some(event)) if event.event == COUNTED => seen.add(event.own_id.unwrap_or_default()),
            Ok(Some(event)) if event.event == END => break,
            Ok(Some(event)) if asks_back(&event) => {}
            other => {
                seen.find_strange(&other);
                break;
            }
        }
    }
    seen.comebacks = stream.connections() as u64 - 1;
    seen
}

impl Seen {
    fn nothing(reader: String, room: &'static str) -> Self {
        Self { reader, room, events: Vec::new(), strange: Vec::new(), comebacks: 0 }
    }

    /// Of each of these rooms.
    pub(super) fn nothing_of(reader: &str, rooms: &[&'static str]) -> Vec<Self> {
        rooms.iter().map(|room| Self::nothing(reader.to_owned(), room)).collect()
    }

    pub(super) fn add(&mut self, id: String) {
        self.events.push(Mark::Id(id));
    }

    pub(super) fn find_strange(&mut self, what: &impl Debug) {
        self.strange.push(format!("after {} events: {what:?}", self.events.len()));
    }
}

impl Follower {
    async fn open(reader: String, rooms: &'static [&'static str], hubs: Vec<SocketAddr>) -> Self {
        let stream = request(hubs[0], rooms).open().await.expect("a stream");
        Self { reader, rooms, hubs, stream }
    }

    /// Reads until the last event of every room, or until something happens that must not.
    async fn read(mut self) -> Vec<Seen> {
        let mut seen = Seen::nothing_of(&self.reader, self.rooms);
        let (mut asked_to, mut ended) = (false, 0);
        while ended < self.rooms.len() {
            match self.stream.try_next_event(LONG * 2).await {
                Ok(Some(event)) if event.event == COUNTED => self.note(&event, &mut seen),
                Ok(Some(event)) if event.event == END => ended += 1,
                Ok(Some(event)) if asks_back(&event) => asked_to = true,
                Ok(None) if asked_to || self.hubs.len() > 1 => {
                    asked_to = false;
                    seen[0].comebacks += 1;
                    self.come_back().await;
                }
                other => {
                    seen[0].find_strange(&other);
                    break;
                }
            }
        }
        seen
    }

    fn note(&self, event: &Event, seen: &mut [Seen]) {
        if let [seen] = seen {
            return seen.add(event.own_id.clone().unwrap_or_default());
        }
        let data = event.json();
        let room = self.rooms.iter().position(|room| data["roomId"] == **room);
        match (room, data["n"].as_u64()) {
            (Some(room), Some(n)) => seen[room].events.push(Mark::Number(n)),
            _ => seen[0].find_strange(event),
        }
    }

    /// To its hub, or another, after the last event that it had; as a browser in a hurry.
    async fn come_back(&mut self) {
        let (hubs, rooms, position) = (&self.hubs, self.rooms, self.stream.last_event_id().to_owned());
        let back = wait::value_within(LONG, || async {
            // A browser's pause. Those who answer with a refusal for now do so as a stream that asks to come back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            for addr in hubs {
                if let Ok(answer) = request(*addr, rooms).last_event_id(&position).try_open().await {
                    return Some(answer.expect("a stream"));
                }
            }
            None
        });
        self.stream = back.await.expect("a hub that takes it back");
    }
}

fn request(addr: SocketAddr, rooms: &[&str]) -> Request {
    let path = match rooms {
        [room] => format!("/api/v1/rooms/{room}/stream"),
        rooms => format!("/api/v1/stream?rooms={}", rooms.join(",")),
    };
    Request::new(addr, &path).person("reader")
}

/// Whether the hub ends the stream and asks to come back.
fn asks_back(event: &Event) -> bool {
    event.event == "system.close" && event.json()["code"].as_u64().is_some_and(|code| code < 3500)
}
