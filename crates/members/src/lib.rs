//! Members: the personal streams of signed-in people, several per person.
//!
//! The inbox ([`bongsu_inbox`]) is the source of a personal stream. This crate sets the lifetime and the connection
//! limit of the streams: by default a person's fourth connection opens and the oldest one closes for good. A personal
//! stream is a connection of its own ([`routes`]), or one of the subjects of a connection that also follows rooms.

mod options;
mod part;
pub mod routes;

use std::sync::Arc;

use bongsu_http::{ApiError, Identity, StreamPerson};
use bongsu_kernel::text::Text;
use bongsu_kernel::{Close, Code, Id, StreamId};
use bongsu_limits::{ConnectionPermit, Connections};
use bongsu_live::log::EphemeralMessage;
use bongsu_live::{
    ApiFuture, BoxedGuard, CloseHandle, Hub, LiveStream, OpenError, PersonalStreams, StreamConfig,
    SubjectName, SubscriptionGuard,
};

pub use options::{Options, SETTINGS};
pub use part::MEMBERS_PART;

/// Opens and limits personal streams. Cheap to clone.
#[derive(Clone)]
pub struct Members(Arc<Inner>);

struct Inner {
    hub: Hub,
    identity: Identity,
    connections: Arc<dyn Connections>,
    options: Options,
}

impl Members {
    pub fn new(hub: Hub, identity: Identity, connections: Arc<dyn Connections>, options: Options) -> Self {
        Self(Arc::new(Inner { hub, identity, connections, options }))
    }

    /// Counts a connection towards the person's limit. When newer ones replace the connection, it closes with 3500.
    async fn acquire(&self, person: &Id, close_handle: CloseHandle) -> Result<ConnectionPermit, ApiError> {
        let on_replaced = Box::new(move || close_handle.close(Close::Replaced));
        let permit = self.0.connections.acquire(person, on_replaced).await;
        permit.map_err(|error| unavailable(&error.to_string()))
    }
}

/// The connection permit of a stream that follows the inbox beside rooms. The stream has no snapshot, because the inbox
/// itself begins with the unread entries.
struct InboxGuard(#[expect(dead_code, reason = "dropping it releases the permit")] ConnectionPermit);

impl SubscriptionGuard for InboxGuard {
    fn snapshot(&self, _: &mut dyn FnMut(Option<&EphemeralMessage>)) {}
}

impl PersonalStreams for Members {
    fn subject(&self, person: &Id) -> SubjectName {
        bongsu_inbox::subject(person)
    }

    fn stream_config(&self) -> StreamConfig {
        self.0.options.stream_config()
    }

    fn join(&self, person: &Id, close_handle: CloseHandle) -> ApiFuture<'_, BoxedGuard> {
        let person = person.clone();
        Box::pin(
            async move { Ok(Box::new(InboxGuard(self.acquire(&person, close_handle).await?)) as BoxedGuard) },
        )
    }

    fn open(&self, caller: StreamPerson, position: Option<StreamId>) -> ApiFuture<'_, LiveStream> {
        Box::pin(async move {
            let (inner, person) = (&self.0, caller.person().clone());
            let subject = bongsu_inbox::subject(&person.id);
            let stream = inner.hub.open_with(caller, subject, position, self.stream_config()).await;
            let stream = stream.map_err(open_error)?;
            if stream.is_closing() {
                return Ok(stream);
            }
            inner.identity.check_revoked(&person).await?;
            let permit = self.acquire(&person.id, stream.close_handle()).await?;
            Ok(stream.with_resource(permit))
        })
    }
}

fn open_error(error: OpenError) -> ApiError {
    match error {
        OpenError::TooManyForPerson | OpenError::TooMany => {
            ApiError::too_many("지금은 연결이 너무 많습니다.", "Too many streams are open right now.")
        }
        OpenError::Unavailable(outage) => unavailable(&outage.0),
        OpenError::Log(error) => unavailable(&error.to_string()),
    }
}

fn unavailable(error: &str) -> ApiError {
    tracing::error!(error, "failed to open a personal stream; answering SSE5001");
    let text = Text::new(
        "지금은 실시간 알림을 받을 수 없습니다. 알림함을 이용해 주세요.",
        "Live delivery is not available right now; use the inbox.",
    );
    ApiError::new(Code::Sse5001, text)
}
