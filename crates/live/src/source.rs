//! Where the streams of a family of subjects read what the ring does not have: a port, and the rooms' log behind it.

use std::sync::Arc;

use bongsu_kernel::StreamId;
use futures_util::StreamExt;

use crate::SubjectName;
use crate::log::{Boxed, Bus, Log, LogError, Most, Page, Place};
use crate::message::{Item, Message, MessageId};

/// So many subjects are asked about at the same time.
const AT_ONCE: usize = 64;

/// What was told, in order, for those who were not there.
///
/// - **Order.** Ids of a subject only grow. What is read is read from one moment.
/// - **Complete.** Everything up to [`Page::head`] is in the page, or after it where there is more.
pub trait Source: Send + Sync {
    /// Reads on after a position, at most so many events and about so many bytes, but at least one event.
    fn read(
        &self,
        subject: &SubjectName,
        after: StreamId,
        most: Most,
    ) -> Boxed<'_, Result<Page<Item>, LogError>>;

    /// The newest places of subjects, in their order, each with an outcome of its own.
    fn heads<'a>(&'a self, subjects: &'a [SubjectName]) -> Boxed<'a, Vec<Result<Place, LogError>>>;

    /// What a stream without a position begins with; nothing where it begins with what comes next.
    fn begin(&self, _subject: &SubjectName) -> Option<Boxed<'_, Result<Page<Item>, LogError>>> {
        None
    }

    /// Whether streams of a process that has no bus are told everything, in order. Where that is not certain, ends are
    /// compared.
    fn tells_everything(&self) -> bool {
        false
    }

    /// Whether the name of a place may come to mean another event, as ids of a database do that was restored: who has lost
    /// its place must not come back by it.
    fn reuses_names(&self) -> bool {
        false
    }

    /// How clients are told a place, and come back to it.
    fn name(&self, place: StreamId) -> MessageId {
        MessageId::Entry(place.named())
    }
}

/// A family of subjects: where its streams read, and what brings them what other hubs tell.
#[derive(Clone)]
pub struct Family {
    pub source: Arc<dyn Source>,
    pub bus: Option<Arc<dyn Bus>>,
}

/// The log of rooms, for their streams.
pub struct LogSource(pub Arc<dyn Log>);

impl Source for LogSource {
    fn read(
        &self,
        subject: &SubjectName,
        after: StreamId,
        most: Most,
    ) -> Boxed<'_, Result<Page<Item>, LogError>> {
        let page = self.0.read(subject, after, most);
        Box::pin(async move {
            let Page { start, entries, more, head } = page.await?;
            let entries = entries.iter().map(|entry| Item::of_entry(entry, Message::of_event)).collect();
            Ok(Page { start, entries, more, head })
        })
    }

    fn heads<'a>(&'a self, subjects: &'a [SubjectName]) -> Boxed<'a, Vec<Result<Place, LogError>>> {
        // Made here and not one by one while others are asked: each of them is a future of its own.
        let heads: Vec<_> = subjects.iter().map(|subject| self.0.head(subject)).collect();
        Box::pin(futures_util::stream::iter(heads).buffered(AT_ONCE).collect())
    }

    fn tells_everything(&self) -> bool {
        // The thread that writes tells it.
        true
    }
}
