//! One SSE stream for several subjects: rooms, and the inbox of the person.
//!
//! Each subject has its own reader. The event and data of a message are shared bytes, with the id of the room added to
//! the data; the message id is the composite position of all subjects, which the client sends back unchanged.

use std::task::{Context, Poll};
use std::time::Instant;

use bongsu_kernel::{Close, Id, StreamId};
use bytes::Bytes;

use crate::composite::{self, PartKey, Writer};
use crate::encode::{Frames, Target};
use crate::message::Message;
use crate::reader::{Reader, ReaderOutput};
use crate::stream::{BoxedGuard, EventStream, StreamReader};

/// A stream of several subjects.
pub type MultiSubjectStream = EventStream<MultiReader>;

/// Reads several subjects in turn.
pub struct MultiReader {
    readers: Vec<SubjectReader>,
    /// The positions of subjects whose access ended: a client that gets access again resumes from them.
    removed: Vec<(PartKey, Option<StreamId>)>,
    /// The reader to poll first, so that a busy subject does not keep others from being read.
    next_reader: usize,
}

/// The reader of one subject.
struct SubjectReader {
    key: PartKey,
    reader: Reader,
    /// Kept while the subject is read; None before [`MultiSubjectStream::with_guards`].
    guard: Option<BoxedGuard>,
    needs_snapshot: bool,
}

impl MultiSubjectStream {
    /// Keeps one guard per subject, in the order in which the subjects were given, and sends their snapshots after the
    /// greeting, one at a time.
    #[must_use]
    pub fn with_guards(mut self, guards: impl IntoIterator<Item = BoxedGuard>) -> Self {
        for (subject, guard) in self.reader.readers.iter_mut().zip(guards) {
            subject.guard = Some(guard);
            subject.needs_snapshot = true;
        }
        self
    }
}

impl MultiReader {
    pub(crate) fn new(readers: Vec<(Target, Reader)>) -> Self {
        let subject_reader = |(target, reader)| SubjectReader {
            key: PartKey::of(&target),
            reader,
            guard: None,
            needs_snapshot: false,
        };
        let readers = readers.into_iter().map(subject_reader).collect();
        Self { readers, removed: Vec::new(), next_reader: 0 }
    }

    fn positions(&self) -> impl Iterator<Item = (&PartKey, Option<StreamId>)> {
        let current = self.readers.iter().map(|subject| (&subject.key, subject.reader.position()));
        current.chain(self.removed.iter().map(|(key, position)| (key, *position)))
    }

    /// The next snapshot that was not sent yet.
    fn next_snapshot(&mut self) -> Option<Bytes> {
        while let Some(subject) = self.readers.iter_mut().find(|subject| subject.needs_snapshot) {
            subject.needs_snapshot = false;
            if let Some(guard) = subject.guard.as_deref()
                && let Some(frame) = subject.reader.snapshot_frame(guard)
            {
                return Some(frame);
            }
        }
        None
    }

    /// The messages of one reader, each with the composite position in front of it.
    fn with_positions(&self, at: usize, frames: Frames) -> Bytes {
        let frames = match frames {
            Frames::Joined(bytes) => return bytes,
            Frames::Separate(frames) => frames,
        };
        let writer = Writer::new(&self.positions().collect::<Vec<_>>(), at);
        let mut out = Vec::with_capacity(frames.iter().map(|(_, frame)| frame.len() + 128).sum());
        for (position, frame) in frames {
            if let Some(position) = position {
                out.extend_from_slice(format!("id: {}\n", writer.write(position.for_client())).as_bytes());
            }
            out.extend_from_slice(&frame);
        }
        out.into()
    }

    /// Stops reading a subject to which the person's access ended; the others continue.
    fn remove(&mut self, at: usize) -> Bytes {
        let SubjectReader { key, reader, .. } = self.readers.remove(at);
        self.removed.push((key, reader.position()));
        let message = reader.encoder().encode(&Message::removed("{}".to_owned()));
        [format!("id: {}\n", self.resume_id()).as_bytes(), &message[..]].concat().into()
    }
}

impl StreamReader for MultiReader {
    fn poll(&mut self, cx: &mut Context<'_>, person: &Id) -> Poll<Result<(Bytes, Option<Instant>), Close>> {
        if let Some(snapshot) = self.next_snapshot() {
            return Poll::Ready(Ok((snapshot, None)));
        }
        for _ in 0..self.readers.len() {
            let at = self.next_reader % self.readers.len();
            match self.readers[at].reader.poll_output(cx, person) {
                Poll::Ready(ReaderOutput::Frames(frames, accepted)) => {
                    self.next_reader = at + 1;
                    return Poll::Ready(Ok((self.with_positions(at, frames), accepted)));
                }
                Poll::Ready(ReaderOutput::Removed) => return Poll::Ready(Ok((self.remove(at), None))),
                Poll::Ready(ReaderOutput::Failed) => return Poll::Ready(Err(Close::EngineLost)),
                Poll::Pending => self.next_reader = at + 1,
            }
        }
        if self.readers.is_empty() { Poll::Ready(Err(Close::Withdrawn)) } else { Poll::Pending }
    }

    fn resume_id(&self) -> String {
        composite::write(self.positions())
    }
}
