//! The port through which streams read the entries that the ring buffer lacks, and its adapter for the log of
//! rooms.

use std::sync::Arc;

use bongsu_kernel::StreamId;
use futures_util::StreamExt;

use crate::SubjectName;
use crate::log::{BoxFuture, Bus, Log, LogError, LogFuture, LogPosition, Page, ReadLimits};
use crate::message::{Item, Message, MessageId};

/// Heads read at the same time.
const MAX_CONCURRENT_HEADS: usize = 64;

/// The stored messages of subjects, in order.
///
/// - **Order.** Ids of a subject only grow. A page is read from one snapshot.
/// - **Complete.** Every entry up to [`Page::head`] is in the page, or follows it if `more` is set.
pub trait Source: Send + Sync {
    /// Reads the entries after a position, within the limits but at least one entry.
    fn read(&self, subject: &SubjectName, after: StreamId, limits: ReadLimits) -> LogFuture<'_, Page<Item>>;

    /// The heads of subjects, in the order of the subjects, each with its own result.
    fn heads<'a>(&'a self, subjects: &'a [SubjectName]) -> BoxFuture<'a, Vec<Result<LogPosition, LogError>>>;

    /// The page with which a stream without a position begins. None if the stream begins with the next entry.
    fn initial_page(&self, _subject: &SubjectName) -> Option<LogFuture<'_, Page<Item>>> {
        None
    }

    /// Whether a process without a bus delivers every entry to its streams, in order. If this is not certain, ring
    /// buffers are compared with the heads.
    fn has_reliable_delivery(&self) -> bool {
        false
    }

    /// Whether a message id may come to mean another entry, as ids of a restored database do: a client that lost its
    /// position must then not resume with it.
    fn can_reuse_ids(&self) -> bool {
        false
    }

    /// The id that clients get for a position and resume with.
    fn message_id(&self, position: StreamId) -> MessageId {
        MessageId::Entry(position.for_client())
    }
}

/// A subject kind: the source of its streams, and the bus that delivers the entries of other instances.
#[derive(Clone)]
pub struct SubjectKind {
    pub source: Arc<dyn Source>,
    pub bus: Option<Arc<dyn Bus>>,
}

/// The log as a source of streams.
pub struct LogSource(pub Arc<dyn Log>);

impl Source for LogSource {
    fn read(&self, subject: &SubjectName, after: StreamId, limits: ReadLimits) -> LogFuture<'_, Page<Item>> {
        let page = self.0.read(subject, after, limits);
        Box::pin(async move {
            let Page { start, entries, more, head } = page.await?;
            let entries = entries.iter().map(|entry| Item::of_entry(entry, Message::of_event)).collect();
            Ok(Page { start, entries, more, head })
        })
    }

    fn heads<'a>(&'a self, subjects: &'a [SubjectName]) -> BoxFuture<'a, Vec<Result<LogPosition, LogError>>> {
        // Made here and not inside the stream, because each future borrows its own subject.
        let heads: Vec<_> = subjects.iter().map(|subject| self.0.head(subject)).collect();
        Box::pin(futures_util::stream::iter(heads).buffered(MAX_CONCURRENT_HEADS).collect())
    }

    fn has_reliable_delivery(&self) -> bool {
        // The writer thread delivers each entry to the hub.
        true
    }
}
