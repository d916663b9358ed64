//! One direction of one connection: reads a piece, passes it on, and does what the faults of the moment say.
//!
//! Bytes move only while the faults are locked for reading. Who changes them has the lock for writing, and so knows
//! that nothing passes by the old rules when the change is made.

use std::io;
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};
use tokio::time::{Instant, sleep_until};

use super::link::Link;
use super::messages::Filter;
use super::{Direction, Faults};

/// The longest read, and with it all that a direction keeps in memory (beside a message that is being looked at).
const READ: usize = 16 * 1024;

struct Pump<'a> {
    link: &'a Link,
    direction: Direction,
    /// Read, looked through, and not passed on yet.
    held: Vec<u8>,
    filter: Filter,
    /// The sender has ended.
    ended: bool,
    next_read: Instant,
}

/// What has to happen before there is something to do.
enum Wait {
    Readable,
    Writable,
    Until(Instant),
    OtherFaults,
    Nothing,
    Done,
}

/// Passes bytes of one direction until its sender ends; an error when the connection broke.
pub(super) async fn pump(link: &Link, direction: Direction) -> io::Result<()> {
    let (from, to) = link.ends(direction);
    let mut faults = link.shared.faults.subscribe();
    let mut pump = Pump {
        link,
        direction,
        held: Vec::new(),
        filter: Filter::default(),
        ended: false,
        next_read: Instant::now(),
    };
    loop {
        let wait = pump.step(&faults.borrow_and_update())?;
        let ready = async {
            match wait {
                Wait::Readable => from.readable().await,
                Wait::Writable => to.writable().await,
                Wait::Until(time) => {
                    sleep_until(time).await;
                    Ok(())
                }
                Wait::OtherFaults => std::future::pending().await,
                Wait::Nothing | Wait::Done => Ok(()),
            }
        };
        tokio::select! {
            ready = ready => ready?,
            // The sender of faults lives as long as the proxy.
            _ = faults.changed() => continue,
        }
        if matches!(wait, Wait::Done) {
            return Ok(());
        }
        // Others have their turn, also when this direction always has something to do.
        tokio::task::yield_now().await;
    }
}

impl Pump<'_> {
    fn step(&mut self, faults: &Faults) -> io::Result<Wait> {
        if self.link.silent(self.direction, faults) {
            return self.swallow();
        }
        if faults.pauses(self.direction) {
            return Ok(Wait::OtherFaults);
        }
        if !self.held.is_empty() {
            return self.pass_on(faults);
        }
        if self.ended {
            // One that has gone meanwhile needs no end.
            let _ = shutdown(self.link.ends(self.direction).1, Shutdown::Write);
            self.link.finish(self.direction)?;
            return Ok(Wait::Done);
        }
        if faults.bytes_per_second.is_some() && self.next_read > Instant::now() {
            return Ok(Wait::Until(self.next_read));
        }
        self.read(faults)
    }

    fn read(&mut self, faults: &Faults) -> io::Result<Wait> {
        let mut piece = [0; READ];
        let most = faults.bytes_per_second.map_or(READ, |speed| (speed as usize / 10).clamp(1, READ));
        match self.link.ends(self.direction).0.try_read(&mut piece[..most]) {
            Ok(0) => {
                self.ended = true;
                self.filter.finish(&mut self.held);
            }
            Ok(count) => {
                if let Some(speed) = faults.bytes_per_second {
                    self.next_read = Instant::now() + Duration::from_secs_f64(count as f64 / speed as f64);
                }
                match self.direction {
                    Direction::ToServer => self.held.extend_from_slice(&piece[..count]),
                    Direction::ToClient => {
                        self.filter.feed(&piece[..count], &self.link.shared.wanted, &mut self.held);
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Wait::Readable),
            Err(error) => return Err(error),
        }
        Ok(Wait::Nothing)
    }

    fn pass_on(&mut self, faults: &Faults) -> io::Result<Wait> {
        match self.link.ends(self.direction).1.try_write(&self.held) {
            Ok(count) => {
                self.held.drain(..count);
                Ok(Wait::Nothing)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Wait::Writable),
            // The receiver has gone, and the sender must not hear of it.
            Err(_) if self.link.silent(self.direction.reverse(), faults) => {
                self.link.lose(self.direction);
                Ok(Wait::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    /// Takes what comes and passes nothing on.
    fn swallow(&mut self) -> io::Result<Wait> {
        if !self.held.is_empty() || self.filter.is_holding() {
            self.held.clear();
            self.link.lose(self.direction);
        }
        if self.ended {
            self.link.finish(self.direction)?;
            return Ok(Wait::OtherFaults);
        }
        match self.link.ends(self.direction).0.try_read(&mut [0; READ]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Wait::Readable),
            // An end does not arrive either. Unless something was lost it may, once the fault has ended.
            Ok(0) | Err(_) => self.ended = true,
            Ok(_) => self.link.lose(self.direction),
        }
        Ok(Wait::Nothing)
    }
}
