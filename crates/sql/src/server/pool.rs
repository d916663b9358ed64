//! Connections that wait for work, so many at most.
//!
//! A [`Session`] is a connection on loan. It goes back only by [`Pool::put_back`]; dropped in any other way, by an error,
//! a timeout or a panic, its connection is closed and the server undoes what was under way. While the server is away
//! everybody is told so at once, and only the watch tries to reach it. A few places are kept for what everybody else depends on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::CONNECT;
use super::link::{Begin, Fault, Link};
use crate::query::Written;
use crate::{Address, Error, Options, Row, Value};

/// Connections that are kept for loops of which there are few, and which others wait for.
const OWN: usize = 3;

/// Whose places a transaction takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Those of all who ask.
    Everybody,
    /// Those that are kept free of them.
    Own,
}

pub(crate) struct Pool {
    address: Address,
    places: Arc<Semaphore>,
    own_places: Arc<Semaphore>,
    idle: Mutex<Vec<Link>>,
    away: AtomicBool,
    /// Why it is away.
    why: Mutex<String>,
}

/// A connection on which a transaction was begun.
pub(crate) struct Session {
    pub(crate) link: Link,
    /// What went wrong on it last, if anything.
    pub(crate) fault: Option<Fault>,
    /// From here on only the server knows whether the change is kept.
    pub(crate) commit_sent: bool,
    _place: OwnedSemaphorePermit,
}

impl Session {
    pub(crate) async fn run(&mut self, written: &Written, values: &[&Value]) -> Result<u64, Error> {
        let done = self.link.run(written, values).await;
        done.map_err(|fault| self.remember(fault))
    }

    pub(crate) async fn rows(&mut self, written: &Written, values: &[&Value]) -> Result<Vec<Row>, Error> {
        let done = self.link.rows(written, values).await;
        done.map_err(|fault| self.remember(fault))
    }

    fn remember(&mut self, fault: Fault) -> Error {
        self.fault = Some(fault.clone());
        fault.into()
    }
}

impl Pool {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            address: options.address.clone(),
            places: Arc::new(Semaphore::new(options.most_connections)),
            own_places: Arc::new(Semaphore::new(OWN)),
            idle: Mutex::default(),
            away: AtomicBool::new(false),
            why: Mutex::default(),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn is_away(&self) -> bool {
        self.away.load(Ordering::Acquire)
    }

    pub(crate) fn set_there(&self) {
        self.away.store(false, Ordering::Release);
    }

    /// What waits is of no use any more: the server has closed it, or cannot be reached by it.
    pub(crate) fn set_away(&self, fault: &Fault) {
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = fault.to_string();
        self.away.store(true, Ordering::Release);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// A connection with a transaction begun on it.
    pub(crate) async fn begin(&self, how: Begin, lane: Lane, deadline: Instant) -> Result<Session, Error> {
        if self.is_away() {
            return Err(Error::Away(self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()));
        }
        let begun = timeout_at(deadline, async {
            let places = if lane == Lane::Own { &self.own_places } else { &self.places };
            let place = places.clone().acquire_owned().await.map_err(|_| Error::Closed)?;
            let session = |link| Session { link, fault: None, commit_sent: false, _place: place };
            // One that the server has closed meanwhile costs nobody an answer: nothing was asked of it yet.
            while let Some(mut link) = self.next_idle() {
                if link.begin(how).await.is_ok() {
                    return Ok(session(link));
                }
            }
            let mut link = self.connect().await?;
            link.begin(how).await.map_err(Error::from)?;
            Ok(session(link))
        });
        begun.await.unwrap_or_else(|_| {
            Err(Error::Away("no connection was free or could be begun on in time".to_owned()))
        })
    }

    pub(crate) fn put_back(&self, session: Session) {
        if !self.is_away() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(session.link);
        }
    }

    fn next_idle(&self) -> Option<Link> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn connect(&self) -> Result<Link, Error> {
        let late = || Fault::Broken(format!("no answer within {} s", CONNECT.as_secs()));
        let connected = timeout(CONNECT, async {
            let mut link = Link::connect(&self.address).await?;
            link.limit().await?;
            Ok(link)
        });
        match connected.await.unwrap_or_else(|_| Err(late())) {
            Ok(link) => Ok(link),
            Err(fault) => {
                // A server that is full, or that lets nobody else in, is there: the connections that we have go on.
                if matches!(fault, Fault::Broken(_)) {
                    self.set_away(&fault);
                }
                Err(Error::Away(fault.to_string()))
            }
        }
    }
}
