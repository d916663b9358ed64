//! Members: one personal stream per signed-in person, on every device they have.
//!
//! What is on it is the inbox's ([`bongsu_inbox`]); here are the stream's own rules: how long it lives, and that a fourth
//! device is let in and the oldest one asked to stay away. It is a connection of its own ([`routes`]), or one of the
//! subjects of a connection that follows rooms as well.

mod options;
mod part;
pub mod routes;

use std::sync::Arc;

use bongsu_http::{ApiError, Identity, StreamPerson};
use bongsu_kernel::text::Text;
use bongsu_kernel::{Close, Code, Id, StreamId};
use bongsu_limits::{Connections, Place};
use bongsu_live::log::{Boxed, Passing};
use bongsu_live::{Ender, Hub, LiveStream, Manner, OpenError, PersonalFeed, SubjectName, SubscriptionGuard};

pub use options::{Options, SETTINGS};
pub use part::MEMBERS_PART;

/// Cheap to clone.
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

    /// Counts a connection among the person's.
    async fn enter(&self, person: &Id, ender: Ender) -> Result<Place, ApiError> {
        let on_replaced = Box::new(move || ender.end(Close::Replaced));
        let place = self.0.connections.enter(person, on_replaced).await;
        place.map_err(|refused| unavailable(&refused.to_string()))
    }
}

/// A place among the person's connections, while the inbox is followed beside rooms. It has no state to begin with: the
/// inbox itself begins with what is unread.
struct Followed(#[expect(dead_code, reason = "it is given back when it is dropped")] Place);

impl SubscriptionGuard for Followed {
    fn snapshot(&self, _: &mut dyn FnMut(Option<&Passing>)) {}
}

impl PersonalFeed for Members {
    fn subject(&self, person: &Id) -> SubjectName {
        bongsu_inbox::subject(person)
    }

    fn manner(&self) -> Manner {
        self.0.options.manner()
    }

    fn join(&self, person: &Id, ender: Ender) -> Boxed<'_, Result<Box<dyn SubscriptionGuard>, ApiError>> {
        let person = person.clone();
        Box::pin(async move {
            Ok(Box::new(Followed(self.enter(&person, ender).await?)) as Box<dyn SubscriptionGuard>)
        })
    }

    fn open(
        &self,
        caller: StreamPerson,
        position: Option<StreamId>,
    ) -> Boxed<'_, Result<LiveStream, ApiError>> {
        Box::pin(async move {
            let (inner, person) = (&self.0, caller.person().clone());
            let subject = bongsu_inbox::subject(&person.id);
            let stream = inner.hub.open_in(caller, subject, position, self.manner()).await;
            let stream = stream.map_err(not_opened)?;
            if stream.is_ending() {
                return Ok(stream);
            }
            inner.identity.check_revoked(&person).await?;
            let place = self.enter(&person.id, stream.ender()).await?;
            Ok(stream.holding(place))
        })
    }
}

fn not_opened(error: OpenError) -> ApiError {
    match error {
        OpenError::TooManyForPerson | OpenError::TooMany => {
            ApiError::too_many("지금은 연결이 너무 많습니다.", "Too many streams are open right now.")
        }
        OpenError::Away(outage) => unavailable(&outage.0),
        OpenError::Log(error) => unavailable(&error.to_string()),
    }
}

fn unavailable(error: &str) -> ApiError {
    tracing::error!(error, "a personal stream could not be opened");
    let text = Text::new(
        "지금은 실시간 알림을 받을 수 없습니다. 알림함을 이용해 주세요.",
        "Live delivery is not available right now; use the inbox.",
    );
    ApiError::new(Code::Sse5001, text)
}
