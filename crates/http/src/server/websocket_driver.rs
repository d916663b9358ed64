//! Runs the session of a WebSocket on a socket that is detached from hyper, until either side closes it.
//!
//! Reading and writing are independent, so that two sides that both send much cannot block each other. The driver reads
//! no bytes while the session accepts no message, and does not poll the session for output while the client reads no
//! bytes. Between messages the connection holds no buffer.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::time::Sleep;

use super::socket_io::{MAX_WRITES_PER_POLL, SocketIo};
use crate::websocket::{self, Event, Output, Parser, Session, Violation};

/// The time from the start of closing until the last bytes are sent and the client's close frame has arrived.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The close code that answers a client's close frame without a code.
const NORMAL_CLOSURE: u16 = 1000;

/// The connection of a WebSocket: its socket, its session, and the frames that are being read and sent.
pub(super) struct WebSocketDriver {
    io: SocketIo,
    phase: Phase,
    parser: Parser,
    /// Bytes that were read and not parsed yet: at most those of one read.
    unparsed: Bytes,
    /// A pong or the close frame, sent before further output of the session. Of several pings only the latest is
    /// answered, so that a client that sends only pings occupies memory for one pong.
    control_frame: Bytes,
}

enum Phase {
    Open(Box<dyn Session>),
    /// The close frame is to be sent or was sent. The session was dropped already.
    Closing {
        timeout: Pin<Box<Sleep>>,
        /// Whether the client's close frame has not arrived yet.
        awaits_close_frame: bool,
    },
}

/// The outcome of one step: pending, or done with more to do (`CONTINUE`), or the end of the connection (`DONE`).
type Step = Poll<ControlFlow<()>>;
const CONTINUE: Step = Poll::Ready(ControlFlow::Continue(()));
const DONE: Step = Poll::Ready(ControlFlow::Break(()));

impl WebSocketDriver {
    /// `early` has the bytes after the client's handshake. They are copied, so that hyper's buffer can be
    /// freed.
    pub(super) fn new(io: SocketIo, session: Box<dyn Session>, early: &[u8]) -> Self {
        Self {
            io,
            phase: Phase::Open(session),
            parser: Parser::default(),
            unparsed: Bytes::copy_from_slice(early),
            control_frame: Bytes::new(),
        }
    }

    /// Whether bytes from the client are read and parsed now.
    fn is_receiving(&self) -> bool {
        match &self.phase {
            Phase::Open(session) => session.can_receive_message(),
            Phase::Closing { awaits_close_frame, .. } => *awaits_close_frame,
        }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Step {
        if !self.is_receiving() {
            return Poll::Pending;
        }
        if self.unparsed.is_empty() {
            match ready!(self.io.poll_read(cx, Bytes::copy_from_slice)) {
                Ok(bytes) if !bytes.is_empty() => self.unparsed = bytes,
                // The client disconnected without a close frame or within a message, so the server cannot send it a
                // close frame.
                _ => return DONE,
            }
        }
        while self.is_receiving() {
            let mut rest = &self.unparsed[..];
            let event = self.parser.next(&mut rest);
            let parsed = self.unparsed.len() - rest.len();
            self.unparsed.advance(parsed);
            match event {
                Ok(Some(event)) => self.on_event(event),
                Ok(None) => {
                    // An advanced, empty `Bytes` would keep its buffer allocated.
                    self.unparsed = Bytes::new();
                    break;
                }
                Err(violation) => self.on_violation(&violation),
            }
        }
        CONTINUE
    }

    fn on_event(&mut self, event: Event) {
        match (event, &mut self.phase) {
            (Event::Message(text), Phase::Open(session)) => session.on_message(&text),
            (Event::Pong, Phase::Open(session)) => session.on_pong(),
            (Event::Ping(payload), Phase::Open(_)) => self.control_frame = websocket::pong(&payload),
            (Event::Close(code), Phase::Open(_)) => self.close(code.unwrap_or(NORMAL_CLOSURE), "", false),
            (Event::Close(_), Phase::Closing { awaits_close_frame, .. }) => *awaits_close_frame = false,
            // The client sent this before it read the close frame; no answer is needed any more.
            (Event::Message(_) | Event::Ping(_) | Event::Pong, Phase::Closing { .. }) => {}
        }
    }

    /// Closes the connection. Bytes after a violation cannot be parsed, so no close frame is awaited.
    fn on_violation(&mut self, violation: &Violation) {
        match &mut self.phase {
            Phase::Open(_) => self.close(violation.code, violation.reason, false),
            Phase::Closing { awaits_close_frame, .. } => *awaits_close_frame = false,
        }
    }

    /// Drops the session and queues the close frame.
    fn close(&mut self, code: u16, reason: &str, awaits_close_frame: bool) {
        self.control_frame = websocket::close(code, reason);
        self.phase =
            Phase::Closing { timeout: Box::pin(tokio::time::sleep(CLOSE_TIMEOUT)), awaits_close_frame };
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Step {
        if ready!(self.io.poll_flush(cx)).is_err() {
            return DONE;
        }
        if !self.control_frame.is_empty() {
            self.io.send(std::mem::take(&mut self.control_frame));
            return CONTINUE;
        }
        match &mut self.phase {
            Phase::Open(session) => match ready!(session.poll_output(cx)) {
                Output::Frames(frames) => self.io.send(frames),
                Output::Close { code, reason } => self.close(code, reason, true),
            },
            Phase::Closing { awaits_close_frame: true, .. } => return Poll::Pending,
            Phase::Closing { awaits_close_frame: false, .. } => return DONE,
        }
        CONTINUE
    }

    fn has_close_timed_out(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.phase {
            Phase::Open(_) => false,
            Phase::Closing { timeout, .. } => timeout.as_mut().poll(cx).is_ready(),
        }
    }
}

impl Future for WebSocketDriver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        for _ in 0..MAX_WRITES_PER_POLL {
            if this.has_close_timed_out(cx) {
                return Poll::Ready(());
            }
            let was_receiving = this.is_receiving();
            let received = this.poll_receive(cx);
            if received == DONE {
                return Poll::Ready(());
            }
            let sent = this.poll_send(cx);
            if sent == DONE {
                return Poll::Ready(());
            }
            // When the session has just become able to receive, reading continues although the session had no
            // output.
            if received.is_pending() && sent.is_pending() && (was_receiving || !this.is_receiving()) {
                return Poll::Pending;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::server::socket::Socket;

    /// A session that closes at once.
    struct ClosingSession(Arc<AtomicBool>);

    impl Session for ClosingSession {
        fn poll_output(&mut self, _: &mut Context<'_>) -> Poll<Output> {
            Poll::Ready(Output::Close { code: 3000, reason: "draining" })
        }

        fn on_message(&mut self, _: &str) {}

        fn can_receive_message(&self) -> bool {
            true
        }
    }

    impl Drop for ClosingSession {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// The clock is paused and advances to the next timer when all tasks are idle.
    #[tokio::test(start_paused = true)]
    async fn a_missing_close_frame_is_awaited_for_five_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let socket = Socket::new(listener.accept().await.unwrap().0).detached();
        let dropped = Arc::<AtomicBool>::default();
        let io = SocketIo::new(socket.shared().clone(), Bytes::new());
        let mut driver = WebSocketDriver::new(io, Box::new(ClosingSession(dropped.clone())), b"");
        let started = tokio::time::Instant::now();
        assert!(futures_util::poll!(&mut driver).is_pending());
        assert!(dropped.load(Ordering::SeqCst), "the session was not dropped");
        driver.await;
        assert!(started.elapsed() >= CLOSE_TIMEOUT);
        let mut frame = [0; 32];
        let length = peer.try_read(&mut frame).unwrap();
        assert_eq!(&frame[..length], &websocket::close(3000, "draining")[..]);
    }
}
