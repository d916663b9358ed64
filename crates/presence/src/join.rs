//! Joining: a stream was opened, and while its guard lives its person is in the room.

use std::time::Duration;

use bongsu_kernel::Id;

use crate::Presence;

/// A stream does not wait longer than this to be seen by others: presence must not hold it up.
const PATIENCE: Duration = Duration::from_millis(500);

/// A stream of a person in a room. Dropping it is leaving, unless the person has another one, here or elsewhere.
#[must_use = "dropping it is leaving"]
pub struct Joined {
    presence: Presence,
    room: Id,
    user: Id,
}

impl Presence {
    /// A stream was opened: its person is in the room until the guard is dropped. Every stream has its own guard.
    ///
    /// Returns when the fleet knows, or soon when the store is away: then it is told once it is back, and the stream
    /// need not care. Called after the stream listens to the room, so that it hears of its own coming.
    pub async fn joined(&self, room: &Id, user: &Id) -> Joined {
        let told = self.0.here.enter(room, user);
        // Before waiting: when the request is given up meanwhile, this undoes it.
        let joined = Joined { presence: self.clone(), room: room.clone(), user: user.clone() };
        if let Some(told) = told {
            let _ = tokio::time::timeout(PATIENCE, told).await;
        }
        joined
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.presence.0.here.leave(&self.room, &self.user);
    }
}
