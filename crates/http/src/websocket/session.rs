//! The port of WebSocket sessions: a handler creates a [`Session`], and the server runs it on the socket.
//!
//! The session provides the output and receives the messages of the client. The server does the framing, answers pings,
//! and runs the closing handshake (`server::websocket_driver`).

use std::task::{Context, Poll};

use bytes::Bytes;

/// The application side of one WebSocket. Dropped when either side closes the connection or the client disconnects.
pub trait Session: Send {
    /// The next output. Called only when the socket has accepted all earlier output, so that a slow client costs the
    /// memory of one output. A pending session wakes the task when it has output or can receive messages again.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Output>;

    /// Handles a whole message of the client. [`Session::poll_output`] is called afterwards.
    fn on_message(&mut self, text: &str);

    /// Whether the session can receive a message now. While it cannot, the server reads no bytes: the client
    /// waits, and a disconnect is not noticed. So a session should return false only for a short time.
    fn can_receive_message(&self) -> bool;

    /// Called when the client sent a pong, as an answer to a ping or unasked.
    fn on_pong(&mut self) {}
}

/// The output of a session.
#[derive(Debug)]
pub enum Output {
    /// One or more whole frames, made by [`super::text`] or [`super::ping`].
    Frames(Bytes),
    /// A close frame. The connection ends when the client has confirmed it, or after a timeout.
    Close { code: u16, reason: &'static str },
}
