//! The registry of a process that is a fleet of its own. Its data folder keeps others out.

use bongsu_kernel::{Clock, random};
use tokio::sync::watch;

use super::{About, Fleet, Instance, JoinError, Registry, Standing};
use crate::Boxed;

/// See the module.
pub struct EmbeddedRegistry {
    id: String,
    fleet: watch::Sender<Fleet>,
}

impl EmbeddedRegistry {
    pub fn new(about: About, clock: &Clock) -> Self {
        let id = format!("{:016x}", random::between(0, u64::MAX - 1));
        let joined_at = clock.now();
        let alive = vec![Instance { id: id.clone(), about, joined_at }];
        let fleet = Fleet { standing: Standing::Alive { joined_at }, alive, seen_at: joined_at };
        Self { id, fleet: watch::Sender::new(fleet) }
    }
}

impl Registry for EmbeddedRegistry {
    fn join(&self) -> Boxed<'_, Result<(), JoinError>> {
        Box::pin(async { Ok(()) })
    }

    fn fleet(&self) -> watch::Receiver<Fleet> {
        self.fleet.subscribe()
    }

    fn holds(&self) -> bool {
        true
    }

    fn me(&self) -> &str {
        &self.id
    }
}
