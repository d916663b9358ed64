//! The fleet without short gaps: an instance counts as lost only when it stays away.
//!
//! After Redis stood still for longer than a lease, every lease has ended, and each instance takes a new one within about
//! a second. Whoever gave up the others' people in that second would announce that they left, and that they came back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use tokio::sync::watch;

use super::{Fleet, Instance};

/// An instance that is not alive counts as lost after this.
const GRACE: Duration = Duration::from_secs(2);

/// Follows a fleet. What comes out has those that are alive, and those that were within the last two seconds; nobody, seen
/// at 0, for the first two seconds.
pub fn settled(fleet: watch::Receiver<Fleet>, supervisor: &Supervisor) -> watch::Receiver<Fleet> {
    let settled = watch::Sender::default();
    let followed = settled.subscribe();
    supervisor.run("registry-settled", &(fleet, settled), |(fleet, settled)| follow(fleet, settled));
    followed
}

async fn follow(mut fleet: watch::Receiver<Fleet>, settled: watch::Sender<Fleet>) {
    tokio::time::sleep(GRACE).await;
    let mut missing = Missing::default();
    loop {
        let seen = fleet.borrow_and_update().clone();
        let shown = missing.fill(seen, Instant::now());
        settled.send_if_modified(|settled| {
            let is_news = settled.alive != shown.alive;
            *settled = shown;
            is_news
        });
        // Also when nothing changes, so that `seen_at` follows.
        let next = missing.next_loss().unwrap_or_else(|| Instant::now() + GRACE);
        if let Ok(Err(_)) = tokio::time::timeout_at(next.into(), fleet.changed()).await {
            return std::future::pending().await;
        }
    }
}

/// Instances that are not alive, and not yet lost.
#[derive(Default)]
struct Missing {
    last: Fleet,
    /// By id, with when that was seen first.
    since: BTreeMap<String, (Instant, Instance)>,
}

impl Missing {
    /// The fleet with those that are missing.
    fn fill(&mut self, seen: Fleet, now: Instant) -> Fleet {
        for ended in seen.ended_since(&self.last) {
            self.since.entry(ended.id.clone()).or_insert_with(|| (now, ended.clone()));
        }
        let is_alive = |id: &str| seen.alive.iter().any(|instance| instance.id == id);
        self.since.retain(|id, (since, _)| !is_alive(id) && now < *since + GRACE);
        let mut filled = seen.clone();
        filled.alive.extend(self.since.values().map(|(_, instance)| instance.clone()));
        filled.alive.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        self.last = seen;
        filled
    }

    fn next_loss(&self) -> Option<Instant> {
        self.since.values().map(|(since, _)| *since + GRACE).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{About, Records};
    use super::*;

    fn fleet(instances: &[&str], joined_at: u64) -> Fleet {
        let about = About {
            records: Records::Off,
            version: String::new(),
            address: String::new(),
            started_at: 0,
            required_settings: BTreeMap::new(),
            setting_hashes: None,
        };
        let instance = |id: &&str| Instance { id: (*id).to_owned(), about: about.clone(), joined_at };
        Fleet { alive: instances.iter().map(instance).collect(), ..Fleet::default() }
    }

    #[test]
    fn an_instance_is_lost_when_it_stays_away_and_not_before() {
        let (mut missing, start) = (Missing::default(), Instant::now());
        let mut shows = |seen: Fleet, at: Duration| -> Vec<String> {
            let filled = missing.fill(seen, start + at);
            filled.alive.into_iter().map(|instance| instance.id).collect()
        };
        let second = Duration::from_secs(1);
        assert_eq!(shows(fleet(&["a", "b"], 1), second), ["a", "b"]);
        // All leases ended at once, and are taken again.
        assert_eq!(shows(fleet(&["b"], 2), 20 * second), ["a", "b"]);
        assert_eq!(
            shows(fleet(&["a", "b", "c"], 2), 21 * second),
            ["a", "b", "c"],
            "one that comes is there at once"
        );
        assert_eq!(shows(fleet(&["a", "c"], 2), 30 * second), ["a", "b", "c"]);
        assert_eq!(shows(fleet(&["a", "c"], 2), 31 * second), ["a", "b", "c"]);
        assert_eq!(shows(fleet(&["a", "c"], 2), 32 * second), ["a", "c"]);
        assert_eq!(missing.next_loss(), None);
    }
}
