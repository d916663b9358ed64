//! What a WebSocket does: a handler makes a [`Session`], the server runs it on the socket.
//!
//! The session says what to send and hears what came. Framing, pings, the closing handshake and the socket are the
//! server's affair (`server::duplex`).

use std::task::{Context, Poll};

use bytes::Bytes;

/// One client's two-way conversation. It is dropped when either side ends it, or the client is gone.
pub trait Session: Send {
    /// What to send next. Asked only when the socket has taken all that was given before, so a slow client costs what
    /// is in one answer. A pending session wakes when it has something to say, and also when it can hear again.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<Output>;

    /// A whole message came. [`Session::poll_output`] is asked afterwards.
    fn on_message(&mut self, text: &str);

    /// Whether the session can hear a message now. While it cannot, nothing is read: the client waits, and its end is
    /// noticed later. So this is for a moment's work, not for a state to stay in.
    fn ready_for_message(&self) -> bool;

    /// The client answered a ping, or says by itself that it lives.
    fn on_pong(&mut self) {}
}

/// What a session sends.
#[derive(Debug)]
pub enum Output {
    /// One or more whole frames, made by [`super::text`] or [`super::ping`].
    Frames(Bytes),
    /// The end: the client is told, has a moment to confirm, and the connection ends.
    Close { code: u16, reason: &'static str },
}
