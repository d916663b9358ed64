//! A WebSocket client, by a library that knows nothing of the hub.

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

/// What came.
#[derive(Debug, PartialEq)]
pub enum Said {
    Message(Value),
    /// The server's close frame: its code and its reason.
    Closed(u16, String),
    /// The connection ended without one.
    Gone,
}

pub struct WebSocket {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    presence: bool,
}

impl WebSocket {
    /// Opens one as this person.
    pub async fn open(hub: &Hub, path: &str, user: impl std::fmt::Display) -> Self {
        let bearer = format!("Bearer {}", tokens::token(user));
        let opened = Self::try_open(hub, path, &[("authorization", &bearer)]).await;
        opened.unwrap_or_else(|status| panic!("no WebSocket: {status}"))
    }

    /// The status of the refusal, if it was refused.
    pub async fn try_open(hub: &Hub, path: &str, headers: &[(&str, &str)]) -> Result<Self, u16> {
        let opened = Self::connect(hub.addr(), path, headers).await;
        opened.unwrap_or_else(|error| panic!("no WebSocket and no answer: {error}"))
    }

    /// As [`WebSocket::try_open`], where there may be nobody to answer.
    pub async fn connect(
        addr: SocketAddr,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Result<Self, u16>, Error> {
        let mut request = format!("ws://{addr}{path}").into_client_request().expect("a request");
        for (name, value) in headers {
            let name: HeaderName = name.parse().expect("a header's name");
            request.headers_mut().insert(name, HeaderValue::from_str(value).expect("a header's value"));
        }
        match connect_async(request).await {
            Ok((socket, _)) => Ok(Ok(Self { socket, presence: false })),
            Err(Error::Http(response)) => Ok(Err(response.status().as_u16())),
            Err(error) => Err(error),
        }
    }

    /// Hands out `presence.update` as well.
    #[must_use]
    pub fn with_presence(mut self) -> Self {
        self.presence = true;
        self
    }

    pub async fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string()).await;
    }

    pub async fn send_text(&mut self, text: &str) {
        self.try_send_text(text).await.expect("the hub reads");
    }

    /// As [`WebSocket::send_text`], to a hub that may be gone.
    pub async fn try_send_text(&mut self, text: &str) -> Result<(), Error> {
        self.socket.send(Message::text(text)).await
    }

    /// The next message or end; pings are answered on the way.
    pub async fn next(&mut self, timeout: Duration) -> Said {
        let next = self.try_next(timeout).await;
        next.unwrap_or_else(|_| panic!("nothing came within {timeout:?}"))
    }

    /// As [`WebSocket::next`], where nothing may come.
    pub async fn try_next(&mut self, timeout: Duration) -> Result<Said, Elapsed> {
        let next = async {
            loop {
                match self.socket.next().await {
                    Some(Ok(Message::Text(text))) => {
                        let message: Value = serde_json::from_str(&text).expect("JSON");
                        // Most tests are about other things, and people come and go beside them.
                        if self.presence || message["event"] != "presence.update" {
                            return Said::Message(message);
                        }
                    }
                    Some(Ok(Message::Close(Some(frame)))) => {
                        return Said::Closed(frame.code.into(), frame.reason.to_string());
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    Some(Ok(other)) => panic!("unexpected: {other:?}"),
                    Some(Err(_)) | None => return Said::Gone,
                }
            }
        };
        tokio::time::timeout(timeout, next).await
    }

    /// The next message, which has to be one.
    pub async fn message(&mut self, timeout: Duration) -> Value {
        match self.next(timeout).await {
            Said::Message(message) => message,
            other => panic!("no message: {other:?}"),
        }
    }
}
