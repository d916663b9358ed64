//! A stream's seat: what others may do to it, from any thread. They wake it, end it, or ask how it does.
//!
//! The rules of time live here: keepalive after silence, the end of a reader that takes nothing, of a token, of a
//! lifetime. The shard's wheel asks; the stream itself only says what it handed out.

use std::task::Waker;

use bongsu_http::Peer;
use bongsu_kernel::{Close, Millis};

use crate::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use crate::sync::{Mutex, lock};

/// Milliseconds since the hub started.
pub(crate) type Tick = u64;

/// How long a stream that was told to end may take to say so; then its connection is cut.
const LAST_WORDS: Tick = 5_000;

/// The rules that the clock enforces on a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) keepalive: Tick,
    pub(crate) stall: Tick,
    /// When its time is over.
    pub(crate) lifetime: Option<Tick>,
    /// When its token was issued.
    pub(crate) issued_at: Millis,
    /// When its token ends, by the clock on the wall: a machine that slept or was set right has not kept count.
    pub(crate) expires_at: Millis,
}

impl Terms {
    /// Why it ends now, if it does.
    fn over(&self, now: Tick, wall: Millis) -> Option<Close> {
        if wall >= self.expires_at {
            Some(Close::TokenExpired)
        } else {
            self.lifetime.filter(|at| now >= *at).map(|_| Close::Lifetime)
        }
    }

    /// When it ends at the latest, as far as can be seen now.
    pub(crate) fn ends_at(&self, now: Tick, wall: Millis) -> Tick {
        let expires = now.saturating_add(self.expires_at.saturating_sub(wall));
        self.lifetime.map_or(expires, |at| at.min(expires))
    }

    /// A stream is looked at so often at least, to see in time that it has stopped moving.
    pub(crate) fn look(&self) -> Tick {
        (self.stall / 4).max(1)
    }
}

pub(crate) struct Seat {
    terms: Terms,
    peer: Option<Peer>,
    waker: Mutex<Option<Waker>>,
    /// The code of a [`Close`], or 0.
    closing: AtomicU16,
    /// When the connection is cut if the end was not said until then.
    cut_at: AtomicU64,
    keepalive_due: AtomicBool,
    last_written: AtomicU64,
    /// Since when bytes that were handed out have not been taken; 0 when all were.
    waiting_since: AtomicU64,
    /// What the connection had taken when it was last looked at.
    taken: AtomicU64,
    left: AtomicBool,
}

impl Seat {
    pub(crate) fn new(terms: Terms, peer: Option<Peer>, now: Tick) -> Self {
        Self {
            terms,
            peer,
            waker: Mutex::new(None),
            closing: AtomicU16::new(0),
            cut_at: AtomicU64::new(Tick::MAX),
            keepalive_due: AtomicBool::new(false),
            last_written: AtomicU64::new(now),
            waiting_since: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            left: AtomicBool::new(false),
        }
    }

    pub(crate) fn terms(&self) -> Terms {
        self.terms
    }

    /// Registers who is to be woken. Comes before looking for something new, so that nothing is missed between.
    pub(crate) fn listen(&self, waker: &Waker) {
        let mut known = lock(&self.waker);
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*lock(&self.waker) {
            waker.wake_by_ref();
        }
    }

    /// Tells the stream to end. The first reason stays.
    pub(crate) fn end(&self, close: Close, now: Tick) {
        if self.closing.compare_exchange(0, close.code(), Ordering::AcqRel, Ordering::Acquire).is_ok() {
            // Here and not with the last frame, which a reader that takes nothing never gets.
            metrics::counter!("sse_closed_total", "code" => close.code().to_string()).increment(1);
            self.cut_at.store(now + LAST_WORDS, Ordering::Release);
            if let Some(peer) = &self.peer {
                peer.make_room();
            }
            self.wake();
        }
    }

    pub(crate) fn closing(&self) -> Option<Close> {
        match self.closing.load(Ordering::Acquire) {
            0 => None,
            code => Close::from_code(code),
        }
    }

    /// Bytes were handed to the connection.
    pub(crate) fn handed_out(&self, now: Tick) {
        self.last_written.store(now, Ordering::Relaxed);
        self.waiting_since.store(now.max(1), Ordering::Relaxed);
    }

    /// The connection has taken everything and asks for more.
    pub(crate) fn caught_up(&self) {
        self.waiting_since.store(0, Ordering::Relaxed);
    }

    /// Whether to say that the stream is alive; asked once.
    pub(crate) fn take_keepalive(&self) -> bool {
        self.keepalive_due.load(Ordering::Relaxed) && self.keepalive_due.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn leave(&self) {
        self.left.store(true, Ordering::Release);
        *lock(&self.waker) = None;
    }

    /// Looks after the stream and says when to look again; nothing when it is gone.
    pub(crate) fn check(&self, now: Tick, wall: Millis) -> Option<Tick> {
        if self.left.load(Ordering::Acquire) {
            return None;
        }
        if self.closing().is_some() {
            return self.see_out(now);
        }
        if let Some(close) = self.terms.over(now, wall) {
            self.end(close, now);
            return Some(now + LAST_WORDS);
        }
        let mut waiting_since = self.waiting_since.load(Ordering::Relaxed);
        if self.has_progressed() && waiting_since != 0 {
            waiting_since = now;
            self.waiting_since.store(now, Ordering::Relaxed);
        }
        if waiting_since != 0 && now >= waiting_since + self.terms.stall {
            self.end(Close::TooSlow, now);
            return Some(now + LAST_WORDS);
        }
        let mut quiet_at = self.last_written.load(Ordering::Relaxed) + self.terms.keepalive;
        if now >= quiet_at {
            // While earlier bytes are not taken, more would not help.
            if waiting_since == 0 {
                self.keepalive_due.store(true, Ordering::Relaxed);
                self.wake();
            }
            quiet_at = now + self.terms.keepalive;
        }
        let ends_at = self.terms.ends_at(now, wall);
        let stalls_at = if waiting_since == 0 { Tick::MAX } else { waiting_since + self.terms.stall };
        Some(quiet_at.min(stalls_at).min(ends_at).min(now + self.terms.look()))
    }

    /// Whether the peer has taken bytes since the last look.
    fn has_progressed(&self) -> bool {
        let taken = self.peer.as_ref().map_or(0, Peer::bytes_taken);
        self.taken.swap(taken, Ordering::Relaxed) != taken
    }

    /// Cuts off a stream that does not get to say its last words.
    fn see_out(&self, now: Tick) -> Option<Tick> {
        let cut_at = self.cut_at.load(Ordering::Acquire);
        if now < cut_at {
            return Some(cut_at);
        }
        self.peer.as_ref()?.cut();
        None
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    /// A stream whose token ends at 100,000 on the wall.
    fn seat() -> Seat {
        let terms =
            Terms { keepalive: 15_000, stall: 30_000, lifetime: None, issued_at: 0, expires_at: 100_000 };
        Seat::new(terms, None, 1_000)
    }

    #[test]
    fn a_silent_stream_is_told_that_it_lives_and_a_busy_one_is_not() {
        let seat = seat();
        assert_eq!(seat.check(2_000, 0), Some(9_500));
        assert_eq!(seat.check(9_500, 0), Some(16_000));
        assert!(!seat.take_keepalive());
        assert_eq!(seat.check(16_000, 0), Some(23_500));
        assert!(seat.take_keepalive() && !seat.take_keepalive());
        seat.handed_out(20_000);
        seat.caught_up();
        assert_eq!(seat.check(31_000, 0), Some(35_000));
        assert!(!seat.take_keepalive());
    }

    #[test]
    fn a_reader_that_takes_nothing_is_ended() {
        let seat = seat();
        seat.handed_out(10_000);
        assert_eq!(seat.check(25_000, 0), Some(32_500));
        assert!(seat.closing().is_none() && !seat.take_keepalive());
        assert_eq!(seat.check(39_000, 0), Some(40_000));
        seat.check(40_000, 0);
        assert_eq!(seat.closing(), Some(Close::TooSlow));
    }

    #[test]
    fn a_reader_that_takes_something_stays() {
        let seat = seat();
        seat.handed_out(10_000);
        seat.handed_out(35_000);
        seat.check(40_000, 0);
        assert_eq!(seat.closing(), None);
    }

    #[test]
    fn a_token_ends_by_the_clock_on_the_wall() {
        let seat = seat();
        assert_eq!(seat.check(2_000, 95_000), Some(7_000));
        assert_eq!(seat.closing(), None);
        seat.check(2_100, 100_000);
        assert_eq!(seat.closing(), Some(Close::TokenExpired), "although hardly any time has passed");
    }

    #[test]
    fn the_first_reason_to_end_stays_and_one_that_left_is_forgotten() {
        let seat = seat();
        assert_eq!(seat.check(5_000, 100_000), Some(10_000));
        seat.end(Close::Draining, 5_500);
        assert_eq!(seat.closing(), Some(Close::TokenExpired));
        seat.leave();
        assert_eq!(seat.check(6_000, 100_001), None);
    }
}
