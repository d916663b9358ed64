//! The state of a connection that other threads use to wake its stream, close it, and check its deadlines.
//!
//! The time limits are enforced here: a keepalive after silence, and closing a stream whose reader stalls, whose token
//! expired or whose lifetime is over. The shard's timer driver checks them; the stream only records its writes.

use std::task::Waker;

use bongsu_http::ConnectionControl;
use bongsu_kernel::{Close, Millis};

use crate::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use crate::sync::{Mutex, lock};

/// Milliseconds since the hub started.
pub(crate) type Tick = u64;

/// Time in milliseconds within which a stream has to send its close frame before its socket is closed.
const CLOSE_TIMEOUT: Tick = 5_000;

/// When a stream gets a keepalive and when it is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    pub(crate) keepalive_interval: Tick,
    pub(crate) stall_timeout: Tick,
    /// None: the stream has no lifetime.
    pub(crate) lifetime_ends_at: Option<Tick>,
    /// When the person's token was issued.
    pub(crate) issued_at: Millis,
    /// When the person's token expires, in wall-clock time: a monotonic clock does not show that the machine slept or
    /// that its clock was set.
    pub(crate) expires_at: Millis,
}

impl Deadlines {
    /// The close code of a deadline that has passed. None if no deadline has passed.
    fn passed_deadline(&self, now: Tick, wall: Millis) -> Option<Close> {
        if wall >= self.expires_at {
            Some(Close::TokenExpired)
        } else {
            self.lifetime_ends_at.filter(|at| now >= *at).map(|_| Close::Lifetime)
        }
    }

    /// The time at which the stream is closed at the latest, calculated from the current time.
    pub(crate) fn ends_at(&self, now: Tick, wall: Millis) -> Tick {
        let expires = now.saturating_add(self.expires_at.saturating_sub(wall));
        self.lifetime_ends_at.map_or(expires, |at| at.min(expires))
    }

    /// Time between two checks of a stream, short enough to notice a stall in time.
    pub(crate) fn check_interval(&self) -> Tick {
        (self.stall_timeout / 4).max(1)
    }
}

pub(crate) struct ConnectionState {
    deadlines: Deadlines,
    peer: Option<ConnectionControl>,
    waker: Mutex<Option<Waker>>,
    /// The code of a [`Close`], or 0.
    close_code: AtomicU16,
    /// When the socket is closed if the close frame was not sent by then.
    cut_at: AtomicU64,
    is_keepalive_due: AtomicBool,
    last_written: AtomicU64,
    /// Since when written bytes wait for the reader; 0 when the reader has taken all of them.
    unread_since: AtomicU64,
    /// The bytes that the peer had taken at the previous check.
    bytes_taken: AtomicU64,
    is_disconnected: AtomicBool,
}

impl ConnectionState {
    pub(crate) fn new(deadlines: Deadlines, peer: Option<ConnectionControl>, now: Tick) -> Self {
        Self {
            deadlines,
            peer,
            waker: Mutex::new(None),
            close_code: AtomicU16::new(0),
            cut_at: AtomicU64::new(Tick::MAX),
            is_keepalive_due: AtomicBool::new(false),
            last_written: AtomicU64::new(now),
            unread_since: AtomicU64::new(0),
            bytes_taken: AtomicU64::new(0),
            is_disconnected: AtomicBool::new(false),
        }
    }

    pub(crate) fn deadlines(&self) -> Deadlines {
        self.deadlines
    }

    /// Registers the waker of the stream. Called before the stream looks for messages, so that none is missed.
    pub(crate) fn register_waker(&self, waker: &Waker) {
        let mut registered = lock(&self.waker);
        if !registered.as_ref().is_some_and(|registered| registered.will_wake(waker)) {
            *registered = Some(waker.clone());
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = &*lock(&self.waker) {
            waker.wake_by_ref();
        }
    }

    /// Makes the stream send a close frame and end. Only the first close code counts.
    pub(crate) fn close(&self, close: Close, now: Tick) {
        if self.close_code.compare_exchange(0, close.code(), Ordering::AcqRel, Ordering::Acquire).is_ok() {
            // Counted here and not with the close frame, which a stalled reader never takes.
            metrics::counter!("sse_closed_total", "code" => close.code().to_string()).increment(1);
            self.cut_at.store(now + CLOSE_TIMEOUT, Ordering::Release);
            if let Some(peer) = &self.peer {
                peer.lift_send_limit();
            }
            self.wake();
        }
    }

    pub(crate) fn pending_close(&self) -> Option<Close> {
        match self.close_code.load(Ordering::Acquire) {
            0 => None,
            code => Close::from_code(code),
        }
    }

    /// Records that bytes were written to the connection.
    pub(crate) fn record_write(&self, now: Tick) {
        self.last_written.store(now, Ordering::Relaxed);
        self.unread_since.store(now.max(1), Ordering::Relaxed);
    }

    /// Records that the connection has taken all bytes and asks for more.
    pub(crate) fn record_drained(&self) {
        self.unread_since.store(0, Ordering::Relaxed);
    }

    /// Whether a keepalive is due; resets it.
    pub(crate) fn take_keepalive(&self) -> bool {
        self.is_keepalive_due.load(Ordering::Relaxed) && self.is_keepalive_due.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn mark_disconnected(&self) {
        self.is_disconnected.store(true, Ordering::Release);
        *lock(&self.waker) = None;
    }

    /// Applies the deadlines. Returns when to check again, or None when the connection is gone.
    pub(crate) fn check_deadlines(&self, now: Tick, wall: Millis) -> Option<Tick> {
        if self.is_disconnected.load(Ordering::Acquire) {
            return None;
        }
        if self.pending_close().is_some() {
            return self.enforce_close_timeout(now);
        }
        if let Some(close) = self.deadlines.passed_deadline(now, wall) {
            self.close(close, now);
            return Some(now + CLOSE_TIMEOUT);
        }
        let mut unread_since = self.unread_since.load(Ordering::Relaxed);
        if self.has_progressed() && unread_since != 0 {
            unread_since = now;
            self.unread_since.store(now, Ordering::Relaxed);
        }
        if unread_since != 0 && now >= unread_since + self.deadlines.stall_timeout {
            self.close(Close::TooSlow, now);
            return Some(now + CLOSE_TIMEOUT);
        }
        let mut keepalive_at = self.last_written.load(Ordering::Relaxed) + self.deadlines.keepalive_interval;
        if now >= keepalive_at {
            // A keepalive would wait behind the bytes that the reader has not taken.
            if unread_since == 0 {
                self.is_keepalive_due.store(true, Ordering::Relaxed);
                self.wake();
            }
            keepalive_at = now + self.deadlines.keepalive_interval;
        }
        let ends_at = self.deadlines.ends_at(now, wall);
        let stalls_at =
            if unread_since == 0 { Tick::MAX } else { unread_since + self.deadlines.stall_timeout };
        Some(keepalive_at.min(stalls_at).min(ends_at).min(now + self.deadlines.check_interval()))
    }

    /// Whether the peer has taken bytes since the previous check.
    fn has_progressed(&self) -> bool {
        let taken = self.peer.as_ref().map_or(0, ConnectionControl::bytes_written);
        self.bytes_taken.swap(taken, Ordering::Relaxed) != taken
    }

    /// Closes the socket of a stream that did not send its close frame in time.
    fn enforce_close_timeout(&self, now: Tick) -> Option<Tick> {
        let cut_at = self.cut_at.load(Ordering::Acquire);
        if now < cut_at {
            return Some(cut_at);
        }
        self.peer.as_ref()?.abort_request();
        None
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    /// A stream whose token expires at 100,000 ms of wall-clock time.
    fn connection() -> ConnectionState {
        let deadlines = Deadlines {
            keepalive_interval: 15_000,
            stall_timeout: 30_000,
            lifetime_ends_at: None,
            issued_at: 0,
            expires_at: 100_000,
        };
        ConnectionState::new(deadlines, None, 1_000)
    }

    #[test]
    fn a_silent_stream_gets_a_keepalive_and_a_busy_stream_does_not() {
        let connection = connection();
        assert_eq!(connection.check_deadlines(2_000, 0), Some(9_500));
        assert_eq!(connection.check_deadlines(9_500, 0), Some(16_000));
        assert!(!connection.take_keepalive());
        assert_eq!(connection.check_deadlines(16_000, 0), Some(23_500));
        assert!(connection.take_keepalive() && !connection.take_keepalive());
        connection.record_write(20_000);
        connection.record_drained();
        assert_eq!(connection.check_deadlines(31_000, 0), Some(35_000));
        assert!(!connection.take_keepalive());
    }

    #[test]
    fn a_reader_that_takes_no_bytes_is_closed_as_too_slow() {
        let connection = connection();
        connection.record_write(10_000);
        assert_eq!(connection.check_deadlines(25_000, 0), Some(32_500));
        assert!(connection.pending_close().is_none() && !connection.take_keepalive());
        assert_eq!(connection.check_deadlines(39_000, 0), Some(40_000));
        connection.check_deadlines(40_000, 0);
        assert_eq!(connection.pending_close(), Some(Close::TooSlow));
    }

    #[test]
    fn a_reader_that_takes_bytes_stays_open() {
        let connection = connection();
        connection.record_write(10_000);
        connection.record_write(35_000);
        connection.check_deadlines(40_000, 0);
        assert_eq!(connection.pending_close(), None);
    }

    #[test]
    fn a_token_expires_by_wall_clock_time() {
        let connection = connection();
        assert_eq!(connection.check_deadlines(2_000, 95_000), Some(7_000));
        assert_eq!(connection.pending_close(), None);
        connection.check_deadlines(2_100, 100_000);
        assert_eq!(
            connection.pending_close(),
            Some(Close::TokenExpired),
            "although hardly any monotonic time has passed"
        );
    }

    #[test]
    fn the_first_close_code_stays_and_a_disconnected_stream_is_no_longer_checked() {
        let connection = connection();
        assert_eq!(connection.check_deadlines(5_000, 100_000), Some(10_000));
        connection.close(Close::Draining, 5_500);
        assert_eq!(connection.pending_close(), Some(Close::TokenExpired));
        connection.mark_disconnected();
        assert_eq!(connection.check_deadlines(6_000, 100_001), None);
    }
}
