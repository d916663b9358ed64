//! The tail: reads on by position, once for everybody in this process, and hands rows to the hub.
//!
//! Positions are given in the order in which they become visible, so whoever sees one has seen all before it. While the
//! database is away the tail waits and goes on where it was; one that was restored shows in the row at the last position.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bongsu_kernel::random;
use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_sql::{Boxed, Dialect, Error, Records, Transaction};

use crate::{Outbox, Row, store};

/// What is read at once: so many rows, and about so many bytes.
const MOST: usize = 500;
const BYTES: usize = 1 << 20;
/// Where somebody says when there is more, it is looked for only this often.
const SELDOM: Duration = Duration::from_secs(1);
const OFTEN: Duration = Duration::from_millis(40);
/// While the database is away it is tried again after so long, and longer each time.
const AGAIN: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// What is remembered of targets that nobody follows any more is let go of so often.
const TIDY: Duration = Duration::from_secs(60);

/// Somebody who reads rows in their order, each once.
pub struct Tail {
    records: Records,
    seen: Seen,
}

/// How far a tail has come: the position, and the row that had it, if it was read.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    position: u64,
    row: Option<Mark>,
}

/// What tells a row from another one that has its position: in a restored database that may have its id as well, but was
/// written at another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    id: i64,
    created_at: u64,
}

/// What a tail found.
#[derive(Debug)]
pub enum Read {
    /// The next rows, none when there are no more for now, and how many positions are still ahead.
    Rows { rows: Vec<Row>, behind: u64 },
    /// The database is not the one it was: it was restored from a copy. What was read from it may not be there any more.
    Restored,
}

impl Tail {
    /// From the beginning.
    pub fn from_start(records: Records) -> Self {
        Self { records, seen: Seen::default() }
    }

    /// From now on.
    pub async fn from_now(records: Records) -> Result<Self, Error> {
        let (position, _) = records.read(0, head).await?;
        Ok(Self { records, seen: Seen { position, row: None } })
    }

    /// Reads on. After an error it stands where it stood.
    pub async fn read_on(&mut self) -> Result<Read, Error> {
        let (read, seen) = self.records.read(self.seen, after).await?;
        self.seen = seen;
        Ok(read)
    }
}

/// The last position that was given, and the row that has the one that somebody remembers.
fn head<'t>(
    remembered: &'t u64,
    tx: &'t mut Transaction<'_>,
) -> Boxed<'t, Result<(u64, Option<Mark>), Error>> {
    Box::pin(async move {
        let row = tx.row(&store::HEAD, &[("remembered", (*remembered).into())]).await?;
        let row = row.ok_or_else(|| Error::Failed("bongsu_outbox_head is empty".to_owned()))?;
        let created_at = u64::try_from(row.maybe_int(2)?.unwrap_or_default()).unwrap_or_default();
        Ok((row.count(0)?, row.maybe_int(1)?.map(|id| Mark { id, created_at })))
    })
}

fn after<'t>(seen: &'t Seen, tx: &'t mut Transaction<'_>) -> Boxed<'t, Result<(Read, Seen), Error>> {
    Box::pin(async move {
        let (head, there) = head(&seen.position, tx).await?;
        // One that is gone was too old; another one in its place never was there before.
        let is_another = seen.row.is_some() && there.is_some() && there != seen.row;
        if head < seen.position || is_another {
            return Ok((Read::Restored, Seen { position: head, row: None }));
        }
        if head == seen.position {
            let seen = Seen { row: seen.row.or(there), ..*seen };
            return Ok((Read::Rows { rows: Vec::new(), behind: 0 }, seen));
        }
        let wanted = [("after", seen.position.into()), ("most", MOST.into()), ("bytes", BYTES.into())];
        let rows = tx.rows(&store::TAIL, &wanted).await?;
        let rows = rows.iter().map(Row::read).collect::<Result<Vec<_>, _>>()?;
        let mark = |row: &Row| Mark { id: row.id, created_at: row.created_at };
        let last = rows.last().map(|row| Seen { position: row.position, row: Some(mark(row)) });
        // What is between is gone already.
        let last = last.unwrap_or(Seen { position: head, row: None });
        Ok((Read::Rows { rows, behind: head.saturating_sub(last.position) }, last))
    })
}

impl Outbox {
    pub(crate) async fn start_tail(&self, supervisor: &Supervisor) -> Result<(), Error> {
        let heard = self.clone();
        let is_told = self.records().heed(store::CHANNEL, supervisor, move || heard.0.sequenced.notify_one());
        // On the embedded file the sequencer is in this process.
        let is_told = is_told || self.records().dialect() == Dialect::Sqlite;
        let pause = if is_told { SELDOM } else { OFTEN };
        let tail = Tail::from_now(self.records().own_lane()).await?;
        self.0.reached.store(tail.seen.position, Ordering::Release);
        let (outbox, stop, tail) = (self.clone(), supervisor.stop(), Arc::new(tokio::sync::Mutex::new(tail)));
        supervisor.spawn("outbox-tail", OnEnd::Restart, move || {
            let (outbox, stop, tail) = (outbox.clone(), stop.clone(), tail.clone());
            async move {
                let mut tail = tail.lock().await;
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = outbox.follow(&mut tail, pause) => {}
                }
            }
        });
        Ok(())
    }

    /// Hands rows to the hub for as long as the process runs.
    async fn follow(&self, tail: &mut Tail, pause: Duration) {
        let (mut again, mut tidied) = (AGAIN, Instant::now());
        loop {
            let wait = match tail.read_on().await {
                Ok(Read::Rows { rows, behind }) => {
                    metrics::gauge!("outbox_tail_lag_rows").set(behind as f64);
                    self.hand_over(&rows);
                    if !rows.is_empty() {
                        self.0.arrived.notify_one();
                    }
                    self.0.reached.store(tail.seen.position, Ordering::Release);
                    again = AGAIN;
                    if behind > 0 { Duration::ZERO } else { pause }
                }
                Ok(Read::Restored) => {
                    tracing::warn!("the outbox is not the one it was: streams begin anew");
                    self.lose_all();
                    self.0.reached.store(tail.seen.position, Ordering::Release);
                    Duration::ZERO
                }
                Err(error) => {
                    if again == AGAIN {
                        tracing::warn!(%error, "the outbox cannot be read for now");
                    }
                    again = (again * 2).min(LONGEST);
                    let spread = u64::try_from(again.as_millis() / 2).unwrap_or_default();
                    tokio::time::sleep(again - Duration::from_millis(random::between(0, spread))).await;
                    continue;
                }
            };
            if tidied.elapsed() > TIDY {
                tidied = Instant::now();
                self.tidy();
            }
            if !wait.is_zero() {
                tokio::select! {
                    () = self.0.sequenced.notified() => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
        }
    }
}
