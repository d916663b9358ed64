//! Joining: a stream was opened, and while its guard lives its person is in the room.

use std::time::Duration;

use bongsu_kernel::Id;
use bongsu_live::SubscriptionGuard;
use bongsu_live::log::Passing;

use crate::Presence;

/// A stream does not wait longer than this to be seen by others: presence must not hold it up.
const JOIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Nor longer than this for the announcement of what the store knows already.
const HEARD_TIMEOUT: Duration = Duration::from_millis(500);

/// A stream in a room. Dropping it is leaving, unless the person has another one, here or elsewhere.
#[must_use = "dropping it is leaving"]
pub struct Joined {
    presence: Presence,
    room: Id,
    /// None for an observer.
    user: Option<Id>,
}

impl Presence {
    /// A stream was opened: its person is in the room until the guard is dropped. Every stream has its own guard.
    ///
    /// Returns when the fleet knows, or soon when the store is away: then it is told once it is back, and the stream
    /// need not care. Called after the stream listens to the room, so that nothing is missed after its snapshot, which
    /// includes the stream's own person.
    pub async fn joined(&self, room: &Id, user: &Id) -> Joined {
        self.enter(room, Some(user)).await
    }

    /// A stream was opened that hears who comes and leaves, and is not itself part of it.
    pub async fn observed(&self, room: &Id) -> Joined {
        self.enter(room, None).await
    }

    async fn enter(&self, room: &Id, user: Option<&Id>) -> Joined {
        let told = self.0.here.enter(room, user);
        // Before waiting: when the request is given up meanwhile, this undoes it.
        let joined = Joined { presence: self.clone(), room: room.clone(), user: user.cloned() };
        if let Some(told) = told {
            let told = tokio::time::timeout(JOIN_TIMEOUT, told).await;
            if let Some(version) = told.ok().and_then(Result::ok).and_then(|told| told.version)
                && tokio::time::timeout(HEARD_TIMEOUT, self.0.announcer.reaches(room, version)).await.is_err()
            {
                // The announcement was lost: the room is asked for, and told as it is.
                self.0.announcer.ask_again(room);
            }
        }
        joined
    }
}

impl SubscriptionGuard for Joined {
    fn snapshot(&self, deliver: &mut dyn FnMut(Option<&Passing>)) {
        self.presence.0.announcer.snapshot(&self.room, deliver);
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.presence.0.here.leave(&self.room, self.user.as_ref());
    }
}
