//! What a hub knows of the feed: how far it has applied it, whether it is certain of that, and who is revoked.
//!
//! Messages name the order before them, so a loss shows with the next one; whoever lost something reads the feed. A
//! hub is certain for a moment after a look at the feed that nothing disturbed, while the bus is up: a message that is
//! lost in silence is found by the next look, before the certainty ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bongsu_kernel::{Id, Millis, Recent, StreamId};
use bongsu_redis::{Channel, Listener};
use tokio::sync::{Notify, watch};

use crate::orders::{Apply, Order};

/// For how long a look makes certain, in ms. Looks come more often.
const CERTAIN: u64 = 900;
/// So many people who were revoked are remembered, and as many who were not.
const REMEMBERED: usize = 100_000;

pub(super) struct Feed {
    apply: Arc<dyn Apply>,
    state: Mutex<State>,
    started: Instant,
    /// In ms after the start; 0 while the feed has to be read. Changed under the state's lock only.
    certain_until: AtomicU64,
    /// Rung when the feed should be read at once.
    pub(super) bell: Notify,
    /// Whether Redis has every revocation that this hub knows of. Changed under the state's lock only.
    restored: watch::Sender<bool>,
}

struct State {
    /// The last order that was applied. None before the first look.
    position: Option<StreamId>,
    /// Whether the bus is up.
    heard: bool,
    losses: u64,
    /// How often something made the feed uncertain.
    interruptions: u64,
    /// Counts what could make a look at somebody's revocation old.
    changes: u64,
    /// How often Redis may have lost what it had.
    data_losses: u64,
    revoked: Recent<Id, Millis>,
    not_revoked: Recent<Id, ()>,
}

/// A look at the feed that is under way.
pub(super) struct Look {
    pub(super) position: Option<StreamId>,
    began: u64,
    interruptions: u64,
}

/// What was read of the feed.
pub(super) enum Page {
    /// What follows the position, and whether there is more.
    Next(Vec<(StreamId, String)>, bool),
    /// The position is not in it; it ends here.
    Lost(StreamId),
}

impl Feed {
    pub(super) fn new(apply: Arc<dyn Apply>) -> Self {
        let state = State {
            position: None,
            heard: false,
            losses: 0,
            interruptions: 0,
            changes: 0,
            data_losses: 0,
            revoked: Recent::new(REMEMBERED),
            not_revoked: Recent::new(REMEMBERED),
        };
        let (state, certain_until) = (Mutex::new(state), AtomicU64::new(0));
        // What Redis has is unknown before the first look at it.
        let (bell, restored) = (Notify::new(), watch::Sender::new(false));
        Self { apply, state, started: Instant::now(), certain_until, bell, restored }
    }

    pub(super) fn is_current(&self) -> bool {
        self.now() < self.certain_until.load(Ordering::Acquire)
    }

    pub(super) fn begin(&self) -> Look {
        let state = self.state();
        Look { position: state.position, began: self.now(), interruptions: state.interruptions }
    }

    /// Applies what was read. Says from where to read on, if there is more.
    pub(super) fn take(&self, page: Page) -> Option<StreamId> {
        let mut state = self.state();
        match page {
            Page::Next(entries, more) => {
                for (id, order) in entries {
                    // What came over the bus meanwhile has been applied.
                    if state.position.is_none_or(|position| position < id) {
                        self.apply(&mut state, &order);
                        state.position = Some(id);
                    }
                }
                state.position.filter(|_| more)
            }
            Page::Lost(head) => {
                self.miss(&mut state);
                self.lose_data(&mut state);
                state.position = Some(head);
                None
            }
        }
    }

    /// The feed was read to its end.
    pub(super) fn finish(&self, look: &Look) {
        let state = self.state();
        if state.heard && state.interruptions == look.interruptions && self.is_restored() {
            self.certain_until.store(look.began + CERTAIN, Ordering::Release);
        }
    }

    pub(super) fn losses(&self) -> u64 {
        self.state().losses
    }

    /// The bus is up, if it was not lost again since this many losses.
    pub(super) fn heard(&self, losses: u64) {
        let mut state = self.state();
        if state.losses == losses {
            state.heard = true;
            self.make_uncertain(&mut state);
        }
    }

    /// What is known of a person's revocation, and a mark for learning it.
    pub(super) fn revoked(&self, user: &Id) -> (Option<Option<Millis>>, u64) {
        let mut state = self.state();
        // A revocation is never taken back. That there is none is only certain for those who hear of all.
        let known = match state.revoked.get(user).copied() {
            Some(before) => Some(Some(before)),
            None => state.not_revoked.get(user).filter(|()| self.is_current()).map(|()| None),
        };
        (known, state.changes)
    }

    /// Remembers what the engine said. An order that was applied meanwhile knows better.
    pub(super) fn learn(&self, user: &Id, before: Option<Millis>, mark: u64) -> Option<Millis> {
        let mut state = self.state();
        match before {
            Some(before) => state.remember(user, before),
            None if state.changes == mark => state.not_revoked.insert(user.clone(), (), 1),
            None => {}
        }
        state.revoked.get(user).copied()
    }

    /// Remembers a revocation. One that Redis does not have is written back to it.
    pub(super) fn remember(&self, user: &Id, before: Millis, is_in_redis: bool) {
        let mut state = self.state();
        state.remember(user, before);
        if !is_in_redis {
            self.lose_data(&mut state);
        }
    }

    /// Whether Redis has every revocation that this hub knows of.
    pub(super) fn is_restored(&self) -> bool {
        *self.restored.borrow()
    }

    pub(super) async fn wait_restored(&self) {
        // The sender lives as long as this.
        let _ = self.restored.subscribe().wait_for(|restored| *restored).await;
    }

    /// Every revocation that is remembered here, and how often Redis has lost what it had.
    pub(super) fn remembered(&self) -> (Vec<(Id, Millis)>, u64) {
        let state = self.state();
        (state.revoked.iter().map(|(user, before)| (user.clone(), *before)).collect(), state.data_losses)
    }

    /// Redis has everything that was known after this many losses.
    pub(super) fn restored(&self, data_losses: u64) {
        let state = self.state();
        if state.data_losses == data_losses {
            self.restored.send_replace(true);
            self.bell.notify_one();
        }
    }

    fn apply(&self, state: &mut State, order: &str) {
        let Some(order) = Order::parse(order) else {
            tracing::warn!("an order of a newer hub is not understood");
            return self.miss(state);
        };
        if let Order::Revoke { user, issued_before } = &order {
            state.changes += 1;
            state.remember(user, *issued_before);
        }
        self.apply.apply(&order);
    }

    fn miss(&self, state: &mut State) {
        state.changes += 1;
        state.not_revoked = Recent::new(REMEMBERED);
        self.apply.missed();
    }

    /// Redis lacks what it should have, until it is written back.
    fn lose_data(&self, state: &mut State) {
        state.data_losses += 1;
        self.restored.send_replace(false);
        self.certain_until.store(0, Ordering::Release);
    }

    fn make_uncertain(&self, state: &mut State) {
        state.interruptions += 1;
        self.certain_until.store(0, Ordering::Release);
        self.bell.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl State {
    fn remember(&mut self, user: &Id, before: Millis) {
        let latest = self.revoked.get(user).map_or(before, |known| before.max(*known));
        self.revoked.insert(user.clone(), latest, 1);
        self.not_revoked.remove(user);
    }
}

/// The order before, its own place, and the order.
fn parse(message: &str) -> Option<(StreamId, StreamId, &str)> {
    let (previous, rest) = message.split_once(' ')?;
    let (id, order) = rest.split_once(' ')?;
    Some((previous.parse().ok()?, id.parse().ok()?, order))
}

impl Listener for Feed {
    fn message(&self, _: &Channel, payload: &[u8]) {
        let message = std::str::from_utf8(payload).ok().and_then(parse);
        let mut state = self.state();
        match (message, state.position) {
            (Some((previous, id, order)), Some(position)) if previous == position => {
                self.apply(&mut state, order);
                state.position = Some(id);
            }
            // Read from the feed before it came over the bus.
            (Some((_, id, _)), Some(position)) if id <= position => {}
            _ => self.make_uncertain(&mut state),
        }
    }

    fn lost(&self, _: &Channel) {
        let mut state = self.state();
        state.heard = false;
        state.losses += 1;
        self.make_uncertain(&mut state);
    }

    fn mark_stale(&self, _: &Channel) {
        let mut state = self.state();
        state.heard = true;
        self.make_uncertain(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Memory(Mutex<Vec<String>>);

    impl Apply for Memory {
        fn apply(&self, order: &Order) {
            self.0.lock().unwrap().push(order.as_text());
        }

        fn missed(&self) {
            self.0.lock().unwrap().push("missed".to_owned());
        }
    }

    fn id(n: u64) -> StreamId {
        StreamId::new(n, 0)
    }

    fn kick(n: u64) -> String {
        format!("1 disconnect user{n}")
    }

    /// A feed that has read everything and hears the bus.
    fn current() -> (Feed, Arc<Memory>, Channel) {
        let memory = Arc::new(Memory::default());
        let feed = Feed::new(memory.clone());
        feed.heard(0);
        look(&feed, Page::Lost(id(5)));
        assert!(!feed.is_current(), "what Redis had lost was not written back");
        feed.restored(1);
        look(&feed, Page::Next(Vec::new(), false));
        assert!(feed.is_current());
        memory.0.lock().unwrap().clear();
        (feed, memory, Channel::OfSlot("orders".into()))
    }

    fn look(feed: &Feed, page: Page) {
        let look = feed.begin();
        assert_eq!(feed.take(page), None);
        feed.finish(&look);
    }

    fn say(feed: &Feed, channel: &Channel, previous: u64, own: u64) {
        let message = format!("{} {} {}", id(previous), id(own), kick(own));
        feed.message(channel, message.as_bytes());
    }

    #[test]
    fn a_message_that_does_not_follow_on_makes_uncertain_until_the_feed_was_read() {
        let (feed, memory, channel) = current();
        say(&feed, &channel, 5, 6);
        assert!(feed.is_current());
        say(&feed, &channel, 7, 8);
        assert!(!feed.is_current());
        look(&feed, Page::Next(vec![(id(7), kick(7)), (id(8), kick(8))], false));
        assert!(feed.is_current());
        // It comes late, or twice.
        say(&feed, &channel, 6, 7);
        say(&feed, &channel, 8, 9);
        assert!(feed.is_current());
        assert_eq!(*memory.0.lock().unwrap(), [6, 7, 8, 9].map(kick));
    }

    #[test]
    fn a_look_that_was_disturbed_makes_nobody_certain() {
        let (feed, memory, channel) = current();
        feed.lost(&channel);
        assert!(!feed.is_current());
        look(&feed, Page::Next(vec![(id(6), kick(6))], false));
        assert!(!feed.is_current(), "nobody would tell of the next order");
        let began_before = feed.begin();
        feed.mark_stale(&channel);
        feed.finish(&began_before);
        assert!(!feed.is_current(), "what came between the look and the subscription is unknown");
        look(&feed, Page::Next(Vec::new(), false));
        assert!(feed.is_current());
        assert_eq!(*memory.0.lock().unwrap(), [kick(6)]);
    }

    #[test]
    fn a_subscription_that_was_lost_before_it_was_noticed_does_not_count() {
        let (feed, _, channel) = current();
        let losses = feed.losses();
        feed.lost(&channel);
        feed.heard(losses);
        look(&feed, Page::Next(Vec::new(), false));
        assert!(!feed.is_current());
    }

    #[test]
    fn what_a_newer_hub_orders_and_what_the_feed_lost_is_told_as_missed() {
        let (feed, memory, channel) = current();
        feed.message(&channel, format!("{} {} 2 banish user6", id(5), id(6)).as_bytes());
        look(&feed, Page::Lost(id(3)));
        say(&feed, &channel, 3, 4);
        assert_eq!(*memory.0.lock().unwrap(), ["missed".to_owned(), "missed".to_owned(), kick(4)]);
    }

    #[test]
    fn a_revocation_that_comes_during_a_look_at_the_engine_is_not_forgotten() {
        let (feed, _, channel) = current();
        let user = Id::new("anna").unwrap();
        let (known, mark) = feed.revoked(&user);
        assert_eq!(known, None);
        feed.message(&channel, format!("{} {} 1 revoke anna 42", id(5), id(6)).as_bytes());
        assert_eq!(feed.learn(&user, None, mark), Some(42));
        assert_eq!(feed.revoked(&user).0, Some(Some(42)));
        feed.lost(&channel);
        assert_eq!(feed.revoked(&user).0, Some(Some(42)), "it is never taken back");
        let other = Id::new("ben").unwrap();
        assert_eq!(feed.learn(&other, None, feed.revoked(&other).1), None);
        assert_eq!(feed.revoked(&other).0, None, "whether there is none by now is unknown");
    }
}
