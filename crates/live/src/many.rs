//! One stream for several subjects.
//!
//! Each has a reader of its own. A frame's event and data are the shared bytes, with the id of the room added to the
//! data; its id is the positions of all of them together, which a client gives back as it got it.

use std::any::Any;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bongsu_kernel::{Close, Id, random, sse};
use bytes::Bytes;
use http_body::Body;

use crate::composite::Composite;
use crate::hub::Entered;
use crate::reader::{Reader, Said};
use crate::stream::Piece;

/// The body of an answer that follows several subjects.
pub struct ManyStream {
    // Before `entered`: readers stand up before their person is counted out.
    readers: Vec<(Id, Reader)>,
    /// For each reader, what goes when it goes.
    held: Vec<Option<Box<dyn Any + Send>>>,
    entered: Entered,
    greeting: Option<Bytes>,
    ended: bool,
    /// Whose turn it is, so that a busy one does not keep others from speaking.
    turn: usize,
}

impl ManyStream {
    pub(crate) fn new(entered: Entered, readers: Vec<(Id, Reader)>) -> Self {
        let held = readers.iter().map(|_| None).collect();
        let mut stream = Self { readers, held, entered, greeting: None, ended: false, turn: 0 };
        stream.greeting = Some(sse::greeting(random::between(1_000, 3_000), Some(stream.place())).into());
        stream
    }

    /// Keeps something for as long as each room is followed, in the order in which the rooms were given.
    #[must_use]
    pub fn holding<T: Any + Send>(mut self, what: impl IntoIterator<Item = T>) -> Self {
        for (held, what) in self.held.iter_mut().zip(what) {
            *held = Some(Box::new(what));
        }
        self
    }

    fn place(&self) -> Composite {
        Composite::of(self.readers.iter().map(|(room, reader)| (room, reader.place().named())))
    }

    /// The frames of one reader as this stream says them.
    fn retold(&mut self, at: usize, frames: &[u8]) -> Bytes {
        let room = serde_json::to_string(&self.readers[at].0).unwrap_or_default();
        let place = self.place();
        let mut place = place.at(at);
        let mut out = Vec::with_capacity(frames.len() + 128);
        for frame in sse::parts(frames) {
            let id = frame.id.map(|id| place.with(id));
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
                return this.entered.hand_out(sse::close(close, this.place()), Instant::now());
            }
            if this.readers.is_empty() {
                this.entered.end(Close::Withdrawn);
                continue;
            }
            if silent == this.readers.len() {
                return this.entered.rest();
            }
            let at = this.turn % this.readers.len();
            match this.readers[at].1.poll(cx, &this.entered.person) {
                Poll::Ready(Said::Frames(bytes, accepted)) => {
                    this.turn = at + 1;
                    let bytes = this.retold(at, &bytes);
                    return this.entered.deliver(bytes, accepted);
                }
                Poll::Ready(Said::Removed) => {
                    let (room, _) = this.readers.remove(at);
                    drop(this.held.remove(at));
                    let told = sse::removed(&room, Some(this.place()));
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
