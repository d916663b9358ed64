//! Joining a room: the person of a stream is present until the guard of the stream is dropped.

use std::time::Duration;

use bongsu_kernel::Id;
use bongsu_live::SubscriptionGuard;
use bongsu_live::log::EphemeralMessage;

use crate::Presence;

/// How long a new stream waits until its person was reported to the store.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it then waits for the announcement of that report.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_millis(500);

/// A stream in a room. When it is dropped, its person leaves, unless the person has another stream in the room on any
/// instance.
#[must_use = "dropping it leaves the room"]
pub struct PresenceGuard {
    presence: Presence,
    room: Id,
    /// None for an observer.
    user: Option<Id>,
}

impl Presence {
    /// Adds a new stream of a person, who is present until the guard is dropped. Every stream has its own guard.
    ///
    /// Returns when the person was reported to the store and this instance has received the announcement, or
    /// after a timeout: an unavailable store gets the report later. Call this after the stream was subscribed
    /// to the room, so that no update after its snapshot is missed. The snapshot includes the stream's own
    /// person.
    pub async fn join(&self, room: &Id, user: &Id) -> PresenceGuard {
        self.add_stream(room, Some(user)).await
    }

    /// Adds a new stream that receives presence updates without its person being present.
    pub async fn observe(&self, room: &Id) -> PresenceGuard {
        self.add_stream(room, None).await
    }

    async fn add_stream(&self, room: &Id, user: Option<&Id>) -> PresenceGuard {
        let outcome = self.0.local.add_stream(room, user);
        // The guard exists before the first await, so that a cancelled request removes its stream again.
        let guard = PresenceGuard { presence: self.clone(), room: room.clone(), user: user.cloned() };
        if let Some(outcome) = outcome {
            let outcome = tokio::time::timeout(REPORT_TIMEOUT, outcome).await;
            if let Some(version) = outcome.ok().and_then(Result::ok).and_then(|outcome| outcome.version) {
                let announced = self.0.announcer.wait_for_version(room, version);
                if tokio::time::timeout(ANNOUNCEMENT_TIMEOUT, announced).await.is_err() {
                    // The announcement was lost: the occupants are read instead.
                    self.0.announcer.refresh(room);
                }
            }
        }
        guard
    }
}

impl SubscriptionGuard for PresenceGuard {
    fn snapshot(&self, deliver: &mut dyn FnMut(Option<&EphemeralMessage>)) {
        self.presence.0.announcer.snapshot(&self.room, deliver);
    }
}

impl Drop for PresenceGuard {
    fn drop(&mut self) {
        self.presence.0.local.remove_stream(&self.room, self.user.as_ref());
    }
}
