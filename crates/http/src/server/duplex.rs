//! Runs a WebSocket's session on a socket that has left hyper, until either side ends it.
//!
//! Reading and writing go on independently, so that two peers that both have much to say cannot block each other.
//! What the session does not take is not read, and what the peer does not take is not asked for. Between messages the
//! connection holds no buffer.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::time::Sleep;

use super::line::{Line, PIECES};
use crate::websocket::{self, Event, Output, Parser, Session, Violation};

/// So long an ending may take: until the last bytes are taken, and the peer has said goodbye.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// What a peer is told that ends without saying why.
const NORMAL: u16 = 1000;

pub(super) struct Duplex {
    line: Line,
    phase: Phase,
    parser: Parser,
    /// What the peer has said and the session has not heard yet: no more than is read at once.
    unheard: Bytes,
    /// What is said next, before anything of the session's: a pong, or the close frame. Of several pings the latest is
    /// answered, so a peer that only asks costs no more than one answer.
    reply: Bytes,
}

enum Phase {
    Open(Box<dyn Session>),
    /// The close frame is on its way or sent. The session is gone already.
    Closing {
        patience: Pin<Box<Sleep>>,
        /// Whether the peer's close frame is still to come.
        awaits_peer: bool,
    },
}

/// Whether there is more to do, once something was done.
type Step = Poll<ControlFlow<()>>;
const GO_ON: Step = Poll::Ready(ControlFlow::Continue(()));
const OVER: Step = Poll::Ready(ControlFlow::Break(()));

impl Duplex {
    /// `early` is copied: it stands in a buffer of hyper's, which is to go.
    pub(super) fn new(line: Line, session: Box<dyn Session>, early: &[u8]) -> Self {
        Self {
            line,
            phase: Phase::Open(session),
            parser: Parser::default(),
            unheard: Bytes::copy_from_slice(early),
            reply: Bytes::new(),
        }
    }

    /// Whether it matters what the peer says.
    fn listens(&self) -> bool {
        match &self.phase {
            Phase::Open(session) => session.ready_for_message(),
            Phase::Closing { awaits_peer, .. } => *awaits_peer,
        }
    }

    fn poll_hear(&mut self, cx: &mut Context<'_>) -> Step {
        if !self.listens() {
            return Poll::Pending;
        }
        if self.unheard.is_empty() {
            match ready!(self.line.poll_heard(cx, Bytes::copy_from_slice)) {
                Ok(said) if !said.is_empty() => self.unheard = said,
                // Without a goodbye, or in the middle of something: nobody is there to be told.
                _ => return OVER,
            }
        }
        while self.listens() {
            let mut rest = &self.unheard[..];
            let event = self.parser.next(&mut rest);
            let taken = self.unheard.len() - rest.len();
            self.unheard.advance(taken);
            match event {
                Ok(Some(event)) => self.on_event(event),
                Ok(None) => {
                    // An empty rest would hold on to the whole.
                    self.unheard = Bytes::new();
                    break;
                }
                Err(violation) => self.on_violation(&violation),
            }
        }
        GO_ON
    }

    fn on_event(&mut self, event: Event) {
        match (event, &mut self.phase) {
            (Event::Message(text), Phase::Open(session)) => session.on_message(&text),
            (Event::Pong, Phase::Open(session)) => session.on_pong(),
            (Event::Ping(payload), Phase::Open(_)) => self.reply = websocket::pong(&payload),
            (Event::Close(code), Phase::Open(_)) => self.close(code.unwrap_or(NORMAL), "", false),
            (Event::Close(_), Phase::Closing { awaits_peer, .. }) => *awaits_peer = false,
            // Sent before the peer knew; it asks for nothing any more.
            (Event::Message(_) | Event::Ping(_) | Event::Pong, Phase::Closing { .. }) => {}
        }
    }

    /// Nothing that follows can be understood, not even a goodbye.
    fn on_violation(&mut self, violation: &Violation) {
        match &mut self.phase {
            Phase::Open(_) => self.close(violation.code, violation.reason, false),
            Phase::Closing { awaits_peer, .. } => *awaits_peer = false,
        }
    }

    /// Lets the session go and says why.
    fn close(&mut self, code: u16, reason: &str, awaits_peer: bool) {
        self.reply = websocket::close(code, reason);
        self.phase = Phase::Closing { patience: Box::pin(tokio::time::sleep(LAST_WORDS)), awaits_peer };
    }

    fn poll_say(&mut self, cx: &mut Context<'_>) -> Step {
        if ready!(self.line.poll_sent(cx)).is_err() {
            return OVER;
        }
        if !self.reply.is_empty() {
            self.line.send(std::mem::take(&mut self.reply));
            return GO_ON;
        }
        match &mut self.phase {
            Phase::Open(session) => match ready!(session.poll_output(cx)) {
                Output::Frames(frames) => self.line.send(frames),
                Output::Close { code, reason } => self.close(code, reason, true),
            },
            Phase::Closing { awaits_peer: true, .. } => return Poll::Pending,
            Phase::Closing { awaits_peer: false, .. } => return OVER,
        }
        GO_ON
    }

    fn is_out_of_patience(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.phase {
            Phase::Open(_) => false,
            Phase::Closing { patience, .. } => patience.as_mut().poll(cx).is_ready(),
        }
    }
}

impl Future for Duplex {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        for _ in 0..PIECES {
            if this.is_out_of_patience(cx) {
                return Poll::Ready(());
            }
            let listened = this.listens();
            let heard = this.poll_hear(cx);
            if heard == OVER {
                return Poll::Ready(());
            }
            let said = this.poll_say(cx);
            if said == OVER {
                return Poll::Ready(());
            }
            // A session that could not hear before and can now is heard on, although it had nothing to say.
            if heard.is_pending() && said.is_pending() && (listened || !this.listens()) {
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

    /// Ends at once.
    struct Ending(Arc<AtomicBool>);

    impl Session for Ending {
        fn poll_output(&mut self, _: &mut Context<'_>) -> Poll<Output> {
            Poll::Ready(Output::Close { code: 3000, reason: "draining" })
        }

        fn on_message(&mut self, _: &str) {}

        fn ready_for_message(&self) -> bool {
            true
        }
    }

    impl Drop for Ending {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    /// The clock stands still and jumps when nobody has anything to do.
    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_say_goodbye_is_waited_for_no_longer_than_five_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let remains = Socket::new(listener.accept().await.unwrap().0).remains();
        let dropped = Arc::<AtomicBool>::default();
        let line = Line::new(remains.shared().clone(), Bytes::new());
        let mut duplex = Duplex::new(line, Box::new(Ending(dropped.clone())), b"");
        let started = tokio::time::Instant::now();
        assert!(futures_util::poll!(&mut duplex).is_pending());
        assert!(dropped.load(Ordering::SeqCst), "the session is over");
        duplex.await;
        assert!(started.elapsed() >= LAST_WORDS);
        let mut said = [0; 32];
        let length = peer.try_read(&mut said).unwrap();
        assert_eq!(&said[..length], &websocket::close(3000, "draining")[..]);
    }
}
