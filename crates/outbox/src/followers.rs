//! Looking again at the rights of those who follow.
//!
//! A right that ends has its row in the order of the others, where streams end. Not every way to take a right leaves one:
//! MariaDB says nothing when a table is emptied, a partition can be dropped, and somebody may switch triggers off. Those
//! who follow without a right are found here. At the second look they are ended, so that no change is met halfway; who
//! will still meet the row is ended there, however far behind they are.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Close, Id};
use bongsu_live::{Ender, LiveStream};
use bongsu_sql::{Error, Transaction};

use crate::Outbox;
use crate::store::{self, list};

/// It is looked so often, at so many at once.
const PAUSE: Duration = Duration::from_secs(30);
const MOST: usize = 5_000;

/// Everybody who follows something here.
#[derive(Default)]
pub(crate) struct Followers(Mutex<Open>);

#[derive(Default)]
struct Open {
    last: u64,
    streams: HashMap<u64, Follower>,
}

struct Follower {
    right: Right,
    ender: Ender,
    /// There was no right at the last look.
    is_doubted: bool,
}

/// What a stream stands on, and what is looked at.
#[derive(Clone)]
struct Right {
    /// Of the stream.
    number: u64,
    event: Id,
    person: Id,
    /// The position that was reached when it began: a row after it is met in the order.
    since: u64,
}

impl Followers {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever was looked at and had no right is ended if that is not the first time.
    fn judge(&self, looked_at: &[Right], without: &HashSet<u64>) {
        let mut open = self.open();
        for Right { number, event, person, .. } in looked_at {
            let Some(follower) = open.streams.get_mut(number) else { continue };
            let has_none = without.contains(number);
            if has_none && follower.is_doubted {
                tracing::warn!(%event, %person, "a right ended without a row of the outbox");
                follower.ender.end(Close::Withdrawn);
            }
            follower.is_doubted = has_none;
        }
    }
}

/// Somebody's place among those who follow, while it is held.
struct Following {
    outbox: Outbox,
    number: u64,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.outbox.0.followers.open().streams.remove(&self.number);
    }
}

impl Outbox {
    /// The rights of this stream are looked at again for as long as it lives.
    pub(crate) fn watched(&self, stream: LiveStream, event: Id, person: Id) -> LiveStream {
        let (since, ender) = (self.reached(), stream.ender());
        let mut open = self.0.followers.open();
        open.last += 1;
        let number = open.last;
        let right = Right { number, event, person, since };
        open.streams.insert(number, Follower { right, ender, is_doubted: false });
        drop(open);
        stream.holding(Following { outbox: self.clone(), number })
    }

    pub(crate) fn start_looking_again(&self, supervisor: &Supervisor) {
        supervisor.every("outbox-rights", PAUSE, self, |outbox| async move { outbox.look_again().await });
    }

    async fn look_again(&self) {
        let rights: Vec<Right> =
            self.0.followers.open().streams.values().map(|follower| follower.right.clone()).collect();
        for some in rights.chunks(MOST) {
            let asked = (Arc::<[Right]>::from(some), self.0.options.has_membership_query);
            match self.records().read(asked, without_right).await {
                Ok(without) => self.0.followers.judge(some, &without),
                // That it is away is said elsewhere.
                Err(error) if error.may_pass() => tracing::debug!(%error, "rights cannot be looked at"),
                Err(error) => tracing::warn!(%error, "rights cannot be looked at again"),
            }
        }
    }
}

async fn without_right(
    (rights, has_query): &(Arc<[Right]>, bool),
    tx: &mut Transaction<'_>,
) -> Result<HashSet<u64>, Error> {
    // As text, always: an id that looks like a number is none.
    let listed: Vec<(u64, &str, &str, u64)> = rights
        .iter()
        .map(|right| (right.number, right.event.as_str(), right.person.as_str(), right.since))
        .collect();
    let query = if *has_query { &store::WITHOUT_RIGHT_BY_QUERY } else { &store::WITHOUT_RIGHT };
    let rows = tx.rows(query, &[("followers", list(&listed)?.into())]).await?;
    rows.iter().map(|row| row.count(0)).collect()
}
