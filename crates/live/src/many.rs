//! One stream for several subjects: rooms, and the person's inbox.
//!
//! Each has a reader of its own. A message's event and data are shared bytes, with the id of the room added to the
//! data; its id is the positions of all of them together, which a client gives back as it got it.

use std::task::{Context, Poll};
use std::time::Instant;

use bongsu_kernel::{Close, Id, StreamId};
use bytes::Bytes;

use crate::composite::{self, PartKey, Writer};
use crate::encode::{Frames, Target};
use crate::message::Message;
use crate::reader::{Reader, Said};
use crate::stream::{EventStream, Follow, SubscriptionGuard};

/// A stream that follows several subjects.
pub type ManyStream = EventStream<Subjects>;

/// The subjects of a stream.
pub struct Subjects {
    followed: Vec<Followed>,
    /// Where rooms ended whose right was withdrawn: who is let in again reads on from there.
    removed: Vec<(PartKey, Option<StreamId>)>,
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
    /// Holds a guard for as long as each subject is followed, in the order in which the subjects were given, and sends
    /// their snapshots after the greeting, one at a time.
    #[must_use]
    pub fn begin_with(mut self, guards: impl IntoIterator<Item = Box<dyn SubscriptionGuard>>) -> Self {
        for (followed, guard) in self.followed.followed.iter_mut().zip(guards) {
            followed.guard = Some(guard);
            followed.needs_snapshot = true;
        }
        self
    }
}

impl Subjects {
    pub(crate) fn new(readers: Vec<(Target, Reader)>) -> Self {
        let follow = |(target, reader)| Followed {
            key: PartKey::of(&target),
            reader,
            guard: None,
            needs_snapshot: false,
        };
        Self { followed: readers.into_iter().map(follow).collect(), removed: Vec::new(), turn: 0 }
    }

    fn positions(&self) -> impl Iterator<Item = (&PartKey, Option<StreamId>)> {
        let followed = self.followed.iter().map(|followed| (&followed.key, followed.reader.position()));
        followed.chain(self.removed.iter().map(|(key, place)| (key, *place)))
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
        [format!("id: {}\n", self.resume_id()).as_bytes(), &told[..]].concat().into()
    }
}

impl Follow for Subjects {
    fn poll(&mut self, cx: &mut Context<'_>, person: &Id) -> Poll<Result<(Bytes, Option<Instant>), Close>> {
        if let Some(snapshot) = self.next_snapshot() {
            return Poll::Ready(Ok((snapshot, None)));
        }
        for _ in 0..self.followed.len() {
            let at = self.turn % self.followed.len();
            match self.followed[at].reader.poll_said(cx, person) {
                Poll::Ready(Said::Frames(frames, accepted)) => {
                    self.turn = at + 1;
                    return Poll::Ready(Ok((self.with_positions(at, frames), accepted)));
                }
                Poll::Ready(Said::Removed) => return Poll::Ready(Ok((self.remove(at), None))),
                Poll::Ready(Said::Failed) => return Poll::Ready(Err(Close::EngineLost)),
                Poll::Pending => self.turn = at + 1,
            }
        }
        if self.followed.is_empty() { Poll::Ready(Err(Close::Withdrawn)) } else { Poll::Pending }
    }

    fn resume_id(&self) -> String {
        composite::write(self.positions())
    }
}
