//! A client that follows all rooms over a WebSocket, and comes back as the others do.

use std::net::SocketAddr;
use std::time::Duration;

use bongsu_testkit::tokens::token;
use bongsu_testkit::wait;
use bongsu_testkit::ws::{Said, WebSocket};
use serde_json::{Value, json};

use super::follower::{Mark, Seen};
use super::{COUNTED, END, ROOMS};
use crate::fleet::LONG;

pub(super) struct Socket {
    reader: String,
    /// Where it is, first; where else it may go.
    hubs: Vec<SocketAddr>,
    socket: WebSocket,
    /// Where it stands in each room.
    places: [Option<String>; ROOMS.len()],
}

impl Socket {
    pub(super) async fn open(reader: String, hubs: Vec<SocketAddr>) -> Self {
        let mut places = [const { None }; ROOMS.len()];
        let socket = connect(&hubs, &places).await.expect("a socket");
        let mut this = Self { reader, hubs, socket, places: places.clone() };
        for place in &mut places {
            // From now on nothing is missed.
            let answer = this.socket.message(LONG).await;
            assert_eq!(answer["event"], "system.subscribed", "{answer}");
            *place = answer["id"].as_str().map(str::to_owned);
        }
        this.places = places;
        this
    }

    /// Reads until the last event of every room, or until something happens that must not.
    pub(super) async fn read(mut self) -> Vec<Seen> {
        let mut seen = Seen::nothing_of(&self.reader, &ROOMS);
        let mut ended = 0;
        while ended < ROOMS.len() {
            match self.socket.try_next(LONG * 2).await {
                Ok(Said::Message(message)) if message["event"] == COUNTED => self.note(&message, &mut seen),
                Ok(Said::Message(message)) if message["event"] == END => ended += 1,
                Ok(Said::Message(message)) if message["event"] == "system.subscribed" => {}
                Ok(Said::Closed(code, _)) if code < 3500 => self.come_back(&mut seen).await,
                Ok(Said::Gone) if self.hubs.len() > 1 => self.come_back(&mut seen).await,
                other => {
                    seen[0].find_strange(&other);
                    break;
                }
            }
        }
        seen
    }

    fn note(&mut self, message: &Value, seen: &mut [Seen]) {
        let room = ROOMS.iter().position(|room| message["room"] == **room);
        match (room, message["id"].as_str()) {
            (Some(room), Some(id)) => {
                seen[room].events.push(Mark::Id(id.to_owned()));
                self.places[room] = Some(id.to_owned());
            }
            _ => seen[0].find_strange(message),
        }
    }

    async fn come_back(&mut self, seen: &mut [Seen]) {
        seen[0].comebacks += 1;
        let back = wait::value_within(LONG, || async {
            // A client's pause before it comes back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            connect(&self.hubs, &self.places).await
        });
        self.socket = back.await.expect("a hub that takes it back");
    }
}

/// To the first hub that takes it, and into every room after its place there.
async fn connect(hubs: &[SocketAddr], places: &[Option<String>]) -> Option<WebSocket> {
    let bearer = format!("Bearer {}", token("reader"));
    for addr in hubs {
        let opened = WebSocket::connect(*addr, "/api/v1/ws", &[("authorization", &bearer)]).await;
        if let Ok(Ok(mut socket)) = opened
            && subscribe(&mut socket, places).await
        {
            return Some(socket);
        }
    }
    None
}

async fn subscribe(socket: &mut WebSocket, places: &[Option<String>]) -> bool {
    for (room, place) in ROOMS.iter().zip(places) {
        let mut request = json!({"op": "subscribe", "room": room});
        if let Some(place) = place {
            request["since"] = place.as_str().into();
        }
        if socket.try_send_text(&request.to_string()).await.is_err() {
            return false;
        }
    }
    true
}
