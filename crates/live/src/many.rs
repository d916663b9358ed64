//! One stream for several subjects: rooms, and the person's inbox.
//!
//! Each has a reader of its own. A message's event and data are shared bytes, with the id of the room added to the
//! data; its id is the positions of all of them together, which a client gives back as it got it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bongsu_kernel::{Close, StreamId, random, sse};
use bytes::Bytes;
use http_body::Body;

use crate::composite::{self, PartKey, Writer};
use crate::connection::Entered;
use crate::encode::{Frames, Target};
use crate::message::Message;
use crate::reader::{Reader, Said};
use crate::stream::{Ender, Piece, SubscriptionGuard};

/// The body of an answer that follows several subjects.
pub struct ManyStream {
    // Before `entered`: readers stand up before their person is counted out.
    followed: Vec<Followed>,
    /// Where rooms ended whose right was withdrawn: who is let in again reads on from there.
    removed: Vec<(PartKey, Option<StreamId>)>,
    entered: Entered,
    greeting: Option<Bytes>,
    ended: bool,
    /// Whose turn it is, so that a busy one does not keep others from speaking.
    turn: usize,
}

/// One of the subjects.
struct Followed {
    key: PartKey,
    reader: Reader,
    /// Held while the subject is followed; None before [`ManyStream::begin_with`].
    guard: Option<Box<dyn SubscriptionGuard>>,
    needs_snapshot: bool,
}

impl ManyStream {
    pub(crate) fn new(entered: Entered, readers: Vec<(Target, Reader)>) -> Self {
        let follow = |(target, reader)| Followed {
            key: PartKey::of(&target),
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

    /// What ends it from elsewhere.
    pub fn ender(&self) -> Ender {
        self.entered.ender()
    }

    /// Holds a guard for as long as each subject is followed, in the order in which the subjects were given, and sends
    /// their snapshots after the greeting, one at a time.
    #[must_use]
    pub fn begin_with(mut self, guards: impl IntoIterator<Item = Box<dyn SubscriptionGuard>>) -> Self {
        for (followed, guard) in self.followed.iter_mut().zip(guards) {
            followed.guard = Some(guard);
            followed.needs_snapshot = true;
        }
        self
    }

    fn positions(&self) -> impl Iterator<Item = (&PartKey, Option<StreamId>)> {
        let followed = self.followed.iter().map(|followed| (&followed.key, followed.reader.position()));
        followed.chain(self.removed.iter().map(|(key, place)| (key, *place)))
    }

    fn position(&self) -> String {
        composite::write(self.positions())
    }

    /// The first message of a subject that has told nothing yet.
    fn next_snapshot(&mut self) -> Option<Bytes> {
        while let Some(followed) = self.followed.iter_mut().find(|followed| followed.needs_snapshot) {
            followed.needs_snapshot = false;
            if let Some(guard) = followed.guard.as_deref()
                && let Some(frame) = followed.reader.begin_with(guard)
            {
                return Some(frame);
            }
        }
        None
    }

    /// The messages of one reader, each with the position of all subjects together in front of it.
    fn with_positions(&self, at: usize, frames: Frames) -> Bytes {
        let frames = match frames {
            Frames::Joined(bytes) => return bytes,
            Frames::Separate(frames) => frames,
        };
        let writer = Writer::new(&self.positions().collect::<Vec<_>>(), at);
        let mut out = Vec::with_capacity(frames.iter().map(|(_, frame)| frame.len() + 128).sum());
        for (place, frame) in frames {
            if let Some(place) = place {
                out.extend_from_slice(format!("id: {}\n", writer.write(place.named())).as_bytes());
            }
            out.extend_from_slice(&frame);
        }
        out.into()
    }

    /// The right to read a subject has ended: the others go on.
    fn remove(&mut self, at: usize) -> Bytes {
        let Followed { key, reader, .. } = self.followed.remove(at);
        self.removed.push((key, reader.position()));
        let told = reader.encoder().encode(&Message::removed("{}".to_owned()));
        [format!("id: {}\n", self.position()).as_bytes(), &told[..]].concat().into()
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
                Poll::Ready(Said::Frames(frames, accepted)) => {
                    this.turn = at + 1;
                    let bytes = this.with_positions(at, frames);
                    return this.entered.deliver(bytes, accepted);
                }
                Poll::Ready(Said::Removed) => {
                    let told = this.remove(at);
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
