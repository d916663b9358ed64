//! A client that reads all rooms over a WebSocket and reconnects like the other clients.

use std::net::SocketAddr;
use std::time::Duration;

use bongsu_testkit::tokens::token;
use bongsu_testkit::wait;
use bongsu_testkit::ws::{SocketEvent, WebSocket};
use serde_json::{Value, json};

use super::follower::{EventKey, RoomTrace};
use super::{COUNTED_TYPE, END_TYPE, ROOMS};
use crate::fleet::WAIT_TIMEOUT;

pub(super) struct SocketReader {
    reader: String,
    /// The hub of the first connection, then the hubs to which the reader may reconnect.
    hubs: Vec<SocketAddr>,
    socket: WebSocket,
    /// The position in each room.
    positions: [Option<String>; ROOMS.len()],
}

impl SocketReader {
    pub(super) async fn open(reader: String, hubs: Vec<SocketAddr>) -> Self {
        let mut positions = [const { None }; ROOMS.len()];
        let socket = connect(&hubs, &positions).await.expect("a socket");
        let mut this = Self { reader, hubs, socket, positions: positions.clone() };
        for place in &mut positions {
            // Once the hub has confirmed the subscription, the client misses no event.
            let answer = this.socket.message(WAIT_TIMEOUT).await;
            assert_eq!(answer["event"], "system.subscribed", "{answer}");
            *place = answer["id"].as_str().map(str::to_owned);
        }
        this.positions = positions;
        this
    }

    /// Reads until the last event of every room, or until something unexpected happens.
    pub(super) async fn read(mut self) -> Vec<RoomTrace> {
        let mut seen = RoomTrace::empty_for(&self.reader, &ROOMS);
        let mut ended = 0;
        while ended < ROOMS.len() {
            match self.socket.try_next(WAIT_TIMEOUT * 2).await {
                Ok(SocketEvent::Message(message)) if message["event"] == COUNTED_TYPE => {
                    self.note(&message, &mut seen);
                }
                Ok(SocketEvent::Message(message)) if message["event"] == END_TYPE => ended += 1,
                Ok(SocketEvent::Message(message)) if message["event"] == "system.subscribed" => {}
                Ok(SocketEvent::Closed(code, _)) if code < 3500 => self.reconnect(&mut seen).await,
                Ok(SocketEvent::Disconnected) if self.hubs.len() > 1 => self.reconnect(&mut seen).await,
                other => {
                    seen[0].add_unexpected(&other);
                    break;
                }
            }
        }
        seen
    }

    fn note(&mut self, message: &Value, seen: &mut [RoomTrace]) {
        let room = ROOMS.iter().position(|room| message["room"] == **room);
        match (room, message["id"].as_str()) {
            (Some(room), Some(id)) => {
                seen[room].events.push(EventKey::Id(id.to_owned()));
                self.positions[room] = Some(id.to_owned());
            }
            _ => seen[0].add_unexpected(message),
        }
    }

    async fn reconnect(&mut self, seen: &mut [RoomTrace]) {
        seen[0].reconnects += 1;
        let back = wait::value_within(WAIT_TIMEOUT, || async {
            // A client's pause before it reconnects.
            tokio::time::sleep(Duration::from_millis(100)).await;
            connect(&self.hubs, &self.positions).await
        });
        self.socket = back.await.expect("a hub that accepts it");
    }
}

/// Connects to the first hub that accepts, and subscribes to every room after the position in that room.
async fn connect(hubs: &[SocketAddr], positions: &[Option<String>]) -> Option<WebSocket> {
    let bearer = format!("Bearer {}", token("reader"));
    for addr in hubs {
        let opened = WebSocket::connect(*addr, "/api/v1/ws", &[("authorization", &bearer)]).await;
        if let Ok(Ok(mut socket)) = opened
            && subscribe(&mut socket, positions).await
        {
            return Some(socket);
        }
    }
    None
}

async fn subscribe(socket: &mut WebSocket, positions: &[Option<String>]) -> bool {
    for (room, place) in ROOMS.iter().zip(positions) {
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
