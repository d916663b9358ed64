//! A WebSocket client on top of tokio-tungstenite, which shares no code with the hub.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::error::Elapsed;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::{Hub, tokens};

/// A message on a WebSocket, or the end of its connection.
#[derive(Debug, PartialEq)]
pub enum SocketEvent {
    Message(Value),
    /// The close code and the reason of the server's close frame.
    Closed(u16, String),
    /// The connection ended without a close frame.
    Disconnected,
}

/// An open WebSocket.
pub struct WebSocket {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    includes_presence: bool,
}

impl WebSocket {
    /// Opens a WebSocket as this person.
    pub async fn open(hub: &Hub, path: &str, user: impl std::fmt::Display) -> Self {
        let bearer = format!("Bearer {}", tokens::token(user));
        let opened = Self::try_open(hub, path, &[("authorization", &bearer)]).await;
        opened.unwrap_or_else(|status| panic!("the hub refused the WebSocket with status {status}"))
    }

    /// Opens a WebSocket; the error is the HTTP status with which the hub refused it.
    pub async fn try_open(hub: &Hub, path: &str, headers: &[(&str, &str)]) -> Result<Self, u16> {
        let opened = Self::connect(hub.addr(), path, headers).await;
        opened.unwrap_or_else(|error| panic!("no response to the WebSocket handshake: {error}"))
    }

    /// As [`WebSocket::try_open`], for an address where no server may listen: the outer error is that of the
    /// connection.
    pub async fn connect(
        addr: SocketAddr,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Result<Self, u16>, Error> {
        let mut request = format!("ws://{addr}{path}").into_client_request().expect("an invalid URL");
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("an invalid header name");
            request
                .headers_mut()
                .insert(name, HeaderValue::from_str(value).expect("an invalid header value"));
        }
        match connect_async(request).await {
            Ok((socket, _)) => Ok(Ok(Self { socket, includes_presence: false })),
            Err(Error::Http(response)) => Ok(Err(response.status().as_u16())),
            Err(error) => Err(error),
        }
    }

    /// Also returns `presence.update` messages, which are skipped by default.
    #[must_use]
    pub fn with_presence(mut self) -> Self {
        self.includes_presence = true;
        self
    }

    pub async fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string()).await;
    }

    pub async fn send_text(&mut self, text: &str) {
        self.try_send_text(text).await.expect("cannot send on the WebSocket");
    }

    /// As [`WebSocket::send_text`], for a hub that may have ended.
    pub async fn try_send_text(&mut self, text: &str) -> Result<(), Error> {
        self.socket.send(Message::text(text)).await
    }

    /// The next message or the end of the connection; pings are answered. Panics after `timeout`.
    pub async fn next(&mut self, timeout: Duration) -> SocketEvent {
        let next = self.try_next(timeout).await;
        next.unwrap_or_else(|_| panic!("no message within {timeout:?}"))
    }

    /// As [`WebSocket::next`]; the error means that no message arrived in time.
    pub async fn try_next(&mut self, timeout: Duration) -> Result<SocketEvent, Elapsed> {
        let next = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Text(text))) => {
                        let message: Value = serde_json::from_str(&text).expect("the message is not JSON");
                        // Most tests do not test presence, but open and close streams, which changes presence.
                        if self.includes_presence || message["event"] != "presence.update" {
                            return SocketEvent::Message(message);
                        }
                    }
                    Some(Ok(Message::Close(Some(frame)))) => {
                        return SocketEvent::Closed(frame.code.into(), frame.reason.to_string());
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(other)) => panic!("unexpected WebSocket frame: {other:?}"),
                    Some(Err(_)) | None => return SocketEvent::Disconnected,
                }
            }
        };
        tokio::time::timeout(timeout, next).await
    }

    /// The next message; panics if the connection ends instead.
    pub async fn message(&mut self, timeout: Duration) -> Value {
        match self.next(timeout).await {
            SocketEvent::Message(message) => message,
            other => panic!("expected a message, got {other:?}"),
        }
    }
}
