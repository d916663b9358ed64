//! The fleet without short gaps: an instance counts as lost only when its lease stays ended for two seconds.
//!
//! After Redis was paused for longer than a lease, every lease has ended, and each instance takes a new one
//! within about a second. An instance that ended the presence of the other instances' persons in that second
//! would announce that these persons left their rooms, and then that they joined again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use tokio::sync::watch;

use super::{Fleet, Instance};

/// An instance without a lease counts as lost after this time.
const GRACE_PERIOD: Duration = Duration::from_secs(2);

/// Watches a fleet. The returned fleet holds the instances that are alive, and those that were alive within the last
/// two seconds. For the first two seconds the returned fleet is empty, with `seen_at` 0.
pub fn debounce_losses(fleet: watch::Receiver<Fleet>, supervisor: &Supervisor) -> watch::Receiver<Fleet> {
    let sender = watch::Sender::default();
    let receiver = sender.subscribe();
    supervisor.run("registry-settled", &(fleet, sender), |(fleet, sender)| forward(fleet, sender));
    receiver
}

async fn forward(mut fleet: watch::Receiver<Fleet>, debounced: watch::Sender<Fleet>) {
    tokio::time::sleep(GRACE_PERIOD).await;
    let mut missing = MissingInstances::default();
    loop {
        let seen = fleet.borrow_and_update().clone();
        let filled = missing.fill(seen, Instant::now());
        debounced.send_if_modified(|current| {
            let has_changed = current.alive != filled.alive;
            *current = filled;
            has_changed
        });
        // Runs also without a change, so that `seen_at` stays recent.
        let next = missing.next_loss().unwrap_or_else(|| Instant::now() + GRACE_PERIOD);
        if let Ok(Err(_)) = tokio::time::timeout_at(next.into(), fleet.changed()).await {
            return std::future::pending().await;
        }
    }
}

/// Instances whose lease has ended, and that do not count as lost yet.
#[derive(Default)]
struct MissingInstances {
    last: Fleet,
    /// By id, with the time at which the end of the lease was first seen.
    since: BTreeMap<String, (Instant, Instance)>,
}

impl MissingInstances {
    /// Adds the missing instances to a fleet.
    fn fill(&mut self, seen: Fleet, now: Instant) -> Fleet {
        for ended in seen.ended_since(&self.last) {
            self.since.entry(ended.id.clone()).or_insert_with(|| (now, ended.clone()));
        }
        let is_alive = |id: &str| seen.alive.iter().any(|instance| instance.id == id);
        self.since.retain(|id, (since, _)| !is_alive(id) && now < *since + GRACE_PERIOD);
        let mut filled = seen.clone();
        filled.alive.extend(self.since.values().map(|(_, instance)| instance.clone()));
        filled.alive.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        self.last = seen;
        filled
    }

    fn next_loss(&self) -> Option<Instant> {
        self.since.values().map(|(since, _)| *since + GRACE_PERIOD).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{InstanceInfo, RecordsLocation};
    use super::*;

    fn fleet(instances: &[&str], joined_at: u64) -> Fleet {
        let info = InstanceInfo {
            records: RecordsLocation::Off,
            version: String::new(),
            address: String::new(),
            started_at: 0,
            required_settings: BTreeMap::new(),
            setting_hashes: None,
        };
        let instance = |id: &&str| Instance { id: (*id).to_owned(), info: info.clone(), joined_at };
        Fleet { alive: instances.iter().map(instance).collect(), ..Fleet::default() }
    }

    #[test]
    fn an_instance_is_lost_when_it_stays_away_and_not_before() {
        let (mut missing, start) = (MissingInstances::default(), Instant::now());
        let mut alive_after = |seen: Fleet, at: Duration| -> Vec<String> {
            let filled = missing.fill(seen, start + at);
            filled.alive.into_iter().map(|instance| instance.id).collect()
        };
        let second = Duration::from_secs(1);
        assert_eq!(alive_after(fleet(&["a", "b"], 1), second), ["a", "b"]);
        // All leases ended at once, and were taken again.
        assert_eq!(alive_after(fleet(&["b"], 2), 20 * second), ["a", "b"]);
        assert_eq!(
            alive_after(fleet(&["a", "b", "c"], 2), 21 * second),
            ["a", "b", "c"],
            "a new instance is alive at once"
        );
        assert_eq!(alive_after(fleet(&["a", "c"], 2), 30 * second), ["a", "b", "c"]);
        assert_eq!(alive_after(fleet(&["a", "c"], 2), 31 * second), ["a", "b", "c"]);
        assert_eq!(alive_after(fleet(&["a", "c"], 2), 32 * second), ["a", "c"]);
        assert_eq!(missing.next_loss(), None);
    }
}
