//! Clients of a room. One that stays comes back only when the hub itself asked for it; one that wanders goes to the
//! other hub, too, when its own is gone; one that resumes does what a browser does.

use std::net::SocketAddr;
use std::time::Duration;

use bongsu_testkit::sse::{Event, Request, Resuming, Stream};
use bongsu_testkit::wait;
use futures_util::future::join_all;

use super::{COUNTED, END, ROOMS};
use crate::fleet::{Fleet, LONG};

/// An open stream of one room.
struct Follower {
    reader: String,
    room: &'static str,
    /// Where it is, first; where else it may go.
    hubs: Vec<SocketAddr>,
    stream: Stream,
}

/// What a client saw.
pub(in crate::fleet) struct Seen {
    pub(super) reader: String,
    pub(super) room: &'static str,
    pub(super) ids: Vec<String>,
    pub(super) strange: Vec<String>,
    pub(super) comebacks: u64,
}

/// Opens a stream of every room on every hub, which stays there; gives what reads them all.
pub(in crate::fleet) async fn follow(fleet: &Fleet) -> impl Future<Output = Vec<Seen>> {
    join_all(Follower::all(fleet, false).await.into_iter().map(Follower::read))
}

/// As [`follow`], with clients that go to the other hub when their own is gone.
pub(in crate::fleet) async fn wander(fleet: &Fleet) -> impl Future<Output = Vec<Seen>> {
    join_all(Follower::all(fleet, true).await.into_iter().map(Follower::read))
}

/// Reads a room from its beginning as a browser does: it comes back by itself, whatever ended the stream.
pub(in crate::fleet) async fn resume(addr: SocketAddr, reader: usize) -> Seen {
    let room = ROOMS[reader % ROOMS.len()];
    let mut seen = Seen::nothing(format!("{room} for {reader}"), room);
    let mut stream = Resuming::new(request(addr, room)).starting_after("0-0");
    loop {
        match stream.try_next_event(LONG * 2).await {
            Ok(Some(event)) if event.event == COUNTED => seen.ids.push(event.own_id.unwrap_or_default()),
            Ok(Some(event)) if event.event == END => break,
            Ok(Some(event)) if asks_back(&event) => {}
            other => {
                seen.strange.push(format!("after {} events: {other:?}", seen.ids.len()));
                break;
            }
        }
    }
    seen.comebacks = stream.connections() as u64 - 1;
    seen
}

impl Seen {
    fn nothing(reader: String, room: &'static str) -> Self {
        Self { reader, room, ids: Vec::new(), strange: Vec::new(), comebacks: 0 }
    }
}

impl Follower {
    async fn all(fleet: &Fleet, wanders: bool) -> Vec<Self> {
        let [one, other] = fleet.hubs.each_ref().map(bongsu_testkit::Hub::addr);
        let places = [("first", [one, other]), ("second", [other, one])];
        let opening = places.iter().flat_map(|(hub, addrs)| {
            let addrs = if wanders { addrs.to_vec() } else { addrs[..1].to_vec() };
            ROOMS.map(|room| Self::open(format!("{room} on the {hub} hub"), room, addrs.clone()))
        });
        join_all(opening).await
    }

    async fn open(reader: String, room: &'static str, hubs: Vec<SocketAddr>) -> Self {
        let stream = request(hubs[0], room).open().await.expect("a stream");
        Self { reader, room, hubs, stream }
    }

    /// Reads until the last event of the room, or until something happens that must not.
    async fn read(mut self) -> Seen {
        let mut seen = Seen::nothing(self.reader.clone(), self.room);
        let mut asked_to = false;
        loop {
            match self.stream.try_next_event(LONG * 2).await {
                Ok(Some(event)) if event.event == COUNTED => seen.ids.push(event.own_id.unwrap_or_default()),
                Ok(Some(event)) if event.event == END => return seen,
                Ok(Some(event)) if asks_back(&event) => asked_to = true,
                Ok(None) if asked_to || self.hubs.len() > 1 => {
                    asked_to = false;
                    seen.comebacks += 1;
                    self.come_back().await;
                }
                other => {
                    seen.strange.push(format!("after {} events: {other:?}", seen.ids.len()));
                    return seen;
                }
            }
        }
    }

    /// To its hub, or another, after the last event that it had; as a browser in a hurry.
    async fn come_back(&mut self) {
        let (hubs, room, position) = (&self.hubs, self.room, self.stream.last_event_id().to_owned());
        let back = wait::value_within(LONG, || async {
            // Those who answer with a refusal for now do so as a stream that asks to come back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            for addr in hubs {
                if let Ok(answer) = request(*addr, room).last_event_id(&position).try_open().await {
                    return Some(answer.expect("a stream"));
                }
            }
            None
        });
        self.stream = back.await.expect("a hub that takes it back");
    }
}

fn request(addr: SocketAddr, room: &str) -> Request {
    Request::new(addr, &format!("/api/v1/rooms/{room}/stream")).person("reader")
}

/// Whether the hub ends the stream and asks to come back.
fn asks_back(event: &Event) -> bool {
    event.event == "system.close" && event.json()["code"].as_u64().is_some_and(|code| code < 3500)
}
