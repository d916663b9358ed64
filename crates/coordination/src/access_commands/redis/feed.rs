//! The feed as one instance sees it: its position, whether the instance is current, and which persons have a
//! revocation.
//!
//! Every message on the bus names the command before it, so the message after a lost one shows the gap; the instance then
//! reads the feed. An instance is current for a short time after a read of the feed during which the bus was not
//! interrupted. A message that the bus lost silently is found by the next read, before that time is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bongsu_kernel::{Id, Millis, RecentCache, StreamId, lock};
use bongsu_redis::{Channel, Listener};
use tokio::sync::{Notify, watch};

use crate::access_commands::{AccessCommand, AccessCommandHandler};

/// How long a completed read makes the instance current, in ms. Longer than the interval between two reads.
const CURRENT_DURATION_MS: u64 = 900;
/// Maximum number of persons remembered with a revocation, and the same number of persons without one.
const MAX_REMEMBERED: usize = 100_000;

pub(super) struct Feed {
    handler: Arc<dyn AccessCommandHandler>,
    state: Mutex<State>,
    started: Instant,
    /// Until when the instance is current, in ms after `started`; 0 while the feed has to be read. Changed only under the
    /// lock of `state`.
    current_until: AtomicU64,
    /// Notified when the feed should be read at once.
    pub(super) read_requested: Notify,
    /// Whether Redis has every revocation that this instance knows of. Changed only under the lock of `state`.
    is_restored: watch::Sender<bool>,
}

struct State {
    /// The id of the last command that was applied. None before the first read.
    position: Option<StreamId>,
    is_subscribed: bool,
    /// How often the subscription to the bus was lost.
    bus_losses: u64,
    /// How often the feed had to be read again: after a lost bus, a gap, or a new subscription.
    interruptions: u64,
    /// Counts the events after which a revocation that is being read from Redis may be outdated.
    changes: u64,
    /// How often Redis may have lost its data.
    data_losses: u64,
    revoked: RecentCache<Id, Millis>,
    not_revoked: RecentCache<Id, ()>,
}

/// A read of the feed in progress.
pub(super) struct FeedRead {
    pub(super) position: Option<StreamId>,
    started_at: u64,
    interruptions: u64,
}

/// The answer to one read of the feed.
pub(super) enum Page {
    /// The entries after the position, and whether more entries follow.
    Entries { entries: Vec<(StreamId, String)>, has_more: bool },
    /// The feed does not contain the position. `head` is the feed's last entry.
    PositionLost { head: StreamId },
}

impl Feed {
    pub(super) fn new(handler: Arc<dyn AccessCommandHandler>) -> Self {
        let state = State {
            position: None,
            is_subscribed: false,
            bus_losses: 0,
            interruptions: 0,
            changes: 0,
            data_losses: 0,
            revoked: RecentCache::new(MAX_REMEMBERED),
            not_revoked: RecentCache::new(MAX_REMEMBERED),
        };
        let (state, current_until) = (Mutex::new(state), AtomicU64::new(0));
        // False, because before the first read it is unknown which revocations Redis has.
        let (read_requested, is_restored) = (Notify::new(), watch::Sender::new(false));
        Self { handler, state, started: Instant::now(), current_until, read_requested, is_restored }
    }

    pub(super) fn is_current(&self) -> bool {
        self.elapsed_ms() < self.current_until.load(Ordering::Acquire)
    }

    pub(super) fn begin_read(&self) -> FeedRead {
        let state = lock(&self.state);
        let (position, interruptions) = (state.position, state.interruptions);
        FeedRead { position, started_at: self.elapsed_ms(), interruptions }
    }

    /// Applies a page. Returns the position from which to read on, or None at the end of the feed.
    pub(super) fn apply_page(&self, page: Page) -> Option<StreamId> {
        let mut state = lock(&self.state);
        match page {
            Page::Entries { entries, has_more } => {
                for (id, command) in entries {
                    // Skips the commands that arrived over the bus meanwhile: they have been applied.
                    if state.position.is_none_or(|position| position < id) {
                        self.apply(&mut state, &command);
                        state.position = Some(id);
                    }
                }
                state.position.filter(|_| has_more)
            }
            Page::PositionLost { head } => {
                self.handle_missed(&mut state);
                self.mark_data_lost(&mut state);
                state.position = Some(head);
                None
            }
        }
    }

    /// Makes the instance current after a read of the whole feed, if the bus was subscribed without
    /// interruption and Redis has every known revocation.
    pub(super) fn finish_read(&self, read: &FeedRead) {
        let state = lock(&self.state);
        if state.is_subscribed && state.interruptions == read.interruptions && self.is_restored() {
            self.current_until.store(read.started_at + CURRENT_DURATION_MS, Ordering::Release);
        }
    }

    pub(super) fn bus_losses(&self) -> u64 {
        lock(&self.state).bus_losses
    }

    /// Records that the channel is subscribed, unless the bus was lost since the caller read `bus_losses`.
    pub(super) fn subscribed(&self, bus_losses: u64) {
        let mut state = lock(&self.state);
        if state.bus_losses == bus_losses {
            state.is_subscribed = true;
            self.interrupt(&mut state);
        }
    }

    /// Returns a person's revocation as far as it is known (None: unknown; `Some(None)`: no revocation), and
    /// the count of changes to pass to [`Feed::learn`].
    pub(super) fn revocation(&self, user: &Id) -> (Option<Option<Millis>>, u64) {
        let mut state = lock(&self.state);
        // A revocation is never taken back. The absence of one is certain only while the instance is current.
        let known = match state.revoked.get(user).copied() {
            Some(before) => Some(Some(before)),
            None => state.not_revoked.get(user).filter(|()| self.is_current()).map(|()| None),
        };
        (known, state.changes)
    }

    /// Remembers a person's revocation, or its absence, as read from Redis, and returns the revocation. A command that was
    /// applied since `changes` was returned takes precedence.
    pub(super) fn learn(&self, user: &Id, before: Option<Millis>, changes: u64) -> Option<Millis> {
        let mut state = lock(&self.state);
        match before {
            Some(before) => state.remember(user, before),
            None if state.changes == changes => state.not_revoked.insert(user.clone(), (), 1),
            None => {}
        }
        state.revoked.get(user).copied()
    }

    /// Remembers a revocation. One that Redis does not have is written back to Redis later.
    pub(super) fn remember(&self, user: &Id, before: Millis, is_in_redis: bool) {
        let mut state = lock(&self.state);
        state.remember(user, before);
        if !is_in_redis {
            self.mark_data_lost(&mut state);
        }
    }

    /// Whether Redis has every revocation that this instance knows of.
    pub(super) fn is_restored(&self) -> bool {
        *self.is_restored.borrow()
    }

    pub(super) async fn wait_restored(&self) {
        // Cannot fail: the sender lives as long as the feed.
        let _ = self.is_restored.subscribe().wait_for(|restored| *restored).await;
    }

    /// Every revocation that this instance remembers, and how often Redis has lost its data.
    pub(super) fn remembered(&self) -> (Vec<(Id, Millis)>, u64) {
        let state = lock(&self.state);
        (state.revoked.iter().map(|(user, before)| (user.clone(), *before)).collect(), state.data_losses)
    }

    /// Records that Redis has every known revocation, unless Redis lost data since the caller read
    /// `data_losses`.
    pub(super) fn mark_restored(&self, data_losses: u64) {
        let state = lock(&self.state);
        if state.data_losses == data_losses {
            self.is_restored.send_replace(true);
            self.read_requested.notify_one();
        }
    }

    fn apply(&self, state: &mut State, command: &str) {
        let Some(command) = AccessCommand::parse(command) else {
            tracing::warn!("failed to parse an access command; handling it as missed");
            return self.handle_missed(state);
        };
        if let AccessCommand::Revoke { user, issued_before } = &command {
            state.changes += 1;
            state.remember(user, *issued_before);
        }
        self.handler.apply(&command);
    }

    fn handle_missed(&self, state: &mut State) {
        state.changes += 1;
        state.not_revoked = RecentCache::new(MAX_REMEMBERED);
        self.handler.handle_missed();
    }

    /// Makes the instance not current until the revocations that Redis lacks are written back.
    fn mark_data_lost(&self, state: &mut State) {
        state.data_losses += 1;
        self.is_restored.send_replace(false);
        self.current_until.store(0, Ordering::Release);
    }

    /// Makes the instance not current, and requests a read of the feed.
    fn interrupt(&self, state: &mut State) {
        state.interruptions += 1;
        self.current_until.store(0, Ordering::Release);
        self.read_requested.notify_one();
    }

    fn elapsed_ms(&self) -> u64 {
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

/// Parses a bus message into the id of the previous command, the id of this one, and its text.
fn parse(message: &str) -> Option<(StreamId, StreamId, &str)> {
    let (previous, rest) = message.split_once(' ')?;
    let (id, command) = rest.split_once(' ')?;
    Some((previous.parse().ok()?, id.parse().ok()?, command))
}

impl Listener for Feed {
    fn message(&self, _: &Channel, payload: &[u8]) {
        let message = std::str::from_utf8(payload).ok().and_then(parse);
        let mut state = lock(&self.state);
        match (message, state.position) {
            (Some((previous, id, command)), Some(position)) if previous == position => {
                self.apply(&mut state, command);
                state.position = Some(id);
            }
            // The command was read from the feed before its message arrived.
            (Some((_, id, _)), Some(position)) if id <= position => {}
            _ => self.interrupt(&mut state),
        }
    }

    fn lost(&self, _: &Channel) {
        let mut state = lock(&self.state);
        state.is_subscribed = false;
        state.bus_losses += 1;
        self.interrupt(&mut state);
    }

    fn mark_stale(&self, _: &Channel) {
        let mut state = lock(&self.state);
        state.is_subscribed = true;
        self.interrupt(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct RecordingHandler(Mutex<Vec<String>>);

    impl AccessCommandHandler for RecordingHandler {
        fn apply(&self, command: &AccessCommand) {
            self.0.lock().unwrap().push(command.as_text());
        }

        fn handle_missed(&self) {
            self.0.lock().unwrap().push("missed".to_owned());
        }
    }

    fn id(n: u64) -> StreamId {
        StreamId::new(n, 0)
    }

    fn disconnect(n: u64) -> String {
        format!("1 disconnect user{n}")
    }

    /// A feed that is subscribed and has been read to its end.
    fn current() -> (Feed, Arc<RecordingHandler>, Channel) {
        let handler = Arc::new(RecordingHandler::default());
        let feed = Feed::new(handler.clone());
        feed.subscribed(0);
        read(&feed, Page::PositionLost { head: id(5) });
        assert!(!feed.is_current(), "the revocations that Redis lost have not been written back");
        feed.mark_restored(1);
        read(&feed, Page::Entries { entries: Vec::new(), has_more: false });
        assert!(feed.is_current());
        handler.0.lock().unwrap().clear();
        (feed, handler, Channel::OfSlot("orders".into()))
    }

    fn read(feed: &Feed, page: Page) {
        let read = feed.begin_read();
        assert_eq!(feed.apply_page(page), None);
        feed.finish_read(&read);
    }

    fn publish(feed: &Feed, channel: &Channel, previous: u64, own: u64) {
        let message = format!("{} {} {}", id(previous), id(own), disconnect(own));
        feed.message(channel, message.as_bytes());
    }

    #[test]
    fn a_message_after_a_gap_makes_the_feed_stale_until_it_is_read() {
        let (feed, handler, channel) = current();
        publish(&feed, &channel, 5, 6);
        assert!(feed.is_current());
        publish(&feed, &channel, 7, 8);
        assert!(!feed.is_current());
        read(
            &feed,
            Page::Entries { entries: vec![(id(7), disconnect(7)), (id(8), disconnect(8))], has_more: false },
        );
        assert!(feed.is_current());
        // A message that arrives late, and one whose command is next.
        publish(&feed, &channel, 6, 7);
        publish(&feed, &channel, 8, 9);
        assert!(feed.is_current());
        assert_eq!(*handler.0.lock().unwrap(), [6, 7, 8, 9].map(disconnect));
    }

    #[test]
    fn an_interrupted_read_leaves_the_feed_stale() {
        let (feed, handler, channel) = current();
        feed.lost(&channel);
        assert!(!feed.is_current());
        read(&feed, Page::Entries { entries: vec![(id(6), disconnect(6))], has_more: false });
        assert!(!feed.is_current(), "the bus would not bring the next command");
        let began_before = feed.begin_read();
        feed.mark_stale(&channel);
        feed.finish_read(&began_before);
        assert!(!feed.is_current(), "a command between the read and the subscription may be lost");
        read(&feed, Page::Entries { entries: Vec::new(), has_more: false });
        assert!(feed.is_current());
        assert_eq!(*handler.0.lock().unwrap(), [disconnect(6)]);
    }

    #[test]
    fn a_subscription_lost_before_the_read_does_not_make_the_feed_current() {
        let (feed, _, channel) = current();
        let losses = feed.bus_losses();
        feed.lost(&channel);
        feed.subscribed(losses);
        read(&feed, Page::Entries { entries: Vec::new(), has_more: false });
        assert!(!feed.is_current());
    }

    #[test]
    fn unknown_and_trimmed_commands_are_reported_as_missed() {
        let (feed, handler, channel) = current();
        feed.message(&channel, format!("{} {} 2 banish user6", id(5), id(6)).as_bytes());
        read(&feed, Page::PositionLost { head: id(3) });
        publish(&feed, &channel, 3, 4);
        assert_eq!(*handler.0.lock().unwrap(), ["missed".to_owned(), "missed".to_owned(), disconnect(4)]);
    }

    #[test]
    fn a_revocation_during_a_lookup_is_not_overwritten() {
        let (feed, _, channel) = current();
        let user = Id::new("anna").unwrap();
        let (known, changes) = feed.revocation(&user);
        assert_eq!(known, None);
        feed.message(&channel, format!("{} {} 1 revoke anna 42", id(5), id(6)).as_bytes());
        assert_eq!(feed.learn(&user, None, changes), Some(42));
        assert_eq!(feed.revocation(&user).0, Some(Some(42)));
        feed.lost(&channel);
        assert_eq!(feed.revocation(&user).0, Some(Some(42)), "a revocation is never taken back");
        let other = Id::new("ben").unwrap();
        assert_eq!(feed.learn(&other, None, feed.revocation(&other).1), None);
        assert_eq!(
            feed.revocation(&other).0,
            None,
            "without the bus, the absence of a revocation is not certain"
        );
    }
}
