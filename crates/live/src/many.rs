//! One stream for several subjects.
//!
//! Each has a reader of its own. A frame's event and data are the shared bytes, with the id of the room added to the
//! data; its id is the positions of all of them together, which a client gives back as it got it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bongsu_kernel::{Close, Id, StreamId, random, sse};
use bytes::Bytes;
use http_body::Body;

use crate::composite::{self, RoomKey, Writer};
use crate::hub::Entered;
use crate::reader::{Reader, Said};
use crate::stream::{Piece, SubscriptionGuard};

/// The body of an answer that follows several subjects.
pub struct ManyStream {
    // Before `entered`: readers stand up before their person is counted out.
    followed: Vec<Followed>,
    /// Where rooms ended whose right was withdrawn: who is let in again reads on from there.
    removed: Vec<(RoomKey, StreamId)>,
    entered: Entered,
    greeting: Option<Bytes>,
    ended: bool,
    /// Whose turn it is, so that a busy one does not keep others from speaking.
    turn: usize,
}

/// One of the rooms.
struct Followed {
    room: Id,
    key: RoomKey,
    reader: Reader,
    /// Held while the room is followed; none before [`ManyStream::begin_with`].
    guard: Option<Box<dyn SubscriptionGuard>>,
    needs_snapshot: bool,
}

impl ManyStream {
    pub(crate) fn new(entered: Entered, readers: Vec<(Id, Reader)>) -> Self {
        let follow = |(room, reader)| Followed {
            key: RoomKey::of(&room),
            room,
            reader,
            guard: None,
            needs_snapshot: false,
        };
        let followed = readers.into_iter().map(follow).collect();
        let mut stream =
            Self { followed, removed: Vec::new(), entered, greeting: None, ended: false, turn: 0 };
        stream.greeting = Some(sse::greeting(random::between(1_000, 3_000), Some(stream.position())).into());
        stream
    }

    /// Whether all that it will say is its end.
    pub fn is_ending(&self) -> bool {
        self.entered.chair.seat.closing().is_some()
    }

    /// Holds a guard for as long as each room is followed, in the order in which the rooms were given, and sends their
    /// snapshots after the greeting, one at a time.
    #[must_use]
    pub fn begin_with(mut self, guards: impl IntoIterator<Item = impl SubscriptionGuard>) -> Self {
        for (followed, guard) in self.followed.iter_mut().zip(guards) {
            followed.guard = Some(Box::new(guard));
            followed.needs_snapshot = true;
        }
        self
    }

    fn positions(&self) -> impl Iterator<Item = (&RoomKey, StreamId)> {
        let followed = self.followed.iter().map(|followed| (&followed.key, followed.reader.place().named()));
        followed.chain(self.removed.iter().map(|(key, place)| (key, *place)))
    }

    fn position(&self) -> String {
        composite::write(self.positions())
    }

    /// The first frame of a room that has told nothing yet.
    fn next_snapshot(&mut self) -> Option<Bytes> {
        while let Some(at) = self.followed.iter().position(|followed| followed.needs_snapshot) {
            let Followed { reader, guard, needs_snapshot, .. } = &mut self.followed[at];
            *needs_snapshot = false;
            if let Some(frame) = guard.as_deref().and_then(|guard| reader.begin_with(guard)) {
                return Some(self.retold(at, &frame));
            }
        }
        None
    }

    /// The frames of one reader as this stream says them.
    fn retold(&self, at: usize, frames: &[u8]) -> Bytes {
        let room = serde_json::to_string(&self.followed[at].room).unwrap_or_default();
        let writer = Writer::new(&self.positions().collect::<Vec<_>>(), at);
        let mut out = Vec::with_capacity(frames.len() + 128);
        for frame in sse::parts(frames) {
            let id = frame.id.and_then(|id| id.parse().ok()).map(|id| writer.write(id));
            sse::retell(&frame, &room, id.as_deref(), &mut out);
        }
        out.into()
    }
}

impl Body for ManyStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Piece {
        let this = &mut *self;
        if this.ended {
            return Poll::Ready(None);
        }
        if let Some(greeting) = this.greeting.take() {
            return this.entered.hand_out(greeting, Instant::now());
        }
        this.entered.chair.seat.listen(cx.waker());
        let mut silent = 0;
        loop {
            if let Some(close) = this.entered.chair.seat.closing() {
                this.ended = true;
                return this.entered.hand_out(sse::close(close, this.position()), Instant::now());
            }
            if let Some(snapshot) = this.next_snapshot() {
                return this.entered.hand_out(snapshot, Instant::now());
            }
            if this.followed.is_empty() {
                this.entered.end(Close::Withdrawn);
                continue;
            }
            if silent == this.followed.len() {
                return this.entered.rest();
            }
            let at = this.turn % this.followed.len();
            match this.followed[at].reader.poll(cx, &this.entered.person) {
                Poll::Ready(Said::Frames(bytes, accepted)) => {
                    this.turn = at + 1;
                    let bytes = this.retold(at, &bytes);
                    return this.entered.deliver(bytes, accepted);
                }
                Poll::Ready(Said::Removed) => {
                    let Followed { room, key, reader, .. } = this.followed.remove(at);
                    this.removed.push((key, reader.place().named()));
                    let told = sse::removed(&room, Some(this.position()));
                    return this.entered.hand_out(told, Instant::now());
                }
                Poll::Ready(Said::Failed) => this.entered.end(Close::EngineLost),
                Poll::Pending => {
                    this.turn = at + 1;
                    silent += 1;
                }
            }
        }
    }
}
