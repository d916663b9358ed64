//! The tail: reads on by position, once for everybody in this process, and hands rows to the hub.
//!
//! Positions are given in the order in which they become visible, so whoever sees one has seen all before it. While the
//! database is away the tail waits and goes on where it was; one that was restored shows in the row at the last position.
//! Such a database gives ids again that clients have: it is noted there which those are, so that they mean nothing to anybody.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use bongsu_kernel::Millis;
use bongsu_kernel::task::Supervisor;
use bongsu_sql::{Dialect, Error, Records, Transaction};

use crate::retention::position_at;
use crate::retries::Retries;
use crate::worker::millis;
use crate::{Outbox, Row, store};

/// What is read at once: so many rows, and about so many bytes.
const MOST: usize = 500;
const BYTES: usize = 1 << 20;
/// Where somebody says when there is more, it is looked for only this often.
const SELDOM: Duration = Duration::from_secs(1);
const OFTEN: Duration = Duration::from_millis(40);
/// What is remembered of targets that nobody follows any more is let go of so often.
const TIDY: Duration = Duration::from_secs(60);
/// So far the clocks of a fleet may be apart.
const CLOCKS: Duration = Duration::from_secs(60);

/// Somebody who reads rows in their order, each once.
pub struct Tail {
    records: Records,
    seen: Seen,
    /// The largest id that anybody may have been told.
    largest: i64,
    /// When the database was last found to be the one it was.
    sound: Instant,
}

/// How far a tail has come: the position, the row that had it, and how often somebody had noted that the database was
/// restored; the latter two once they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) position: u64,
    row: Option<Mark>,
    notes: Option<u64>,
}

/// What tells a row from another one that has its position: in a restored database that may have its id as well, but was
/// written at another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    id: i64,
    created_at: u64,
}

/// What a tail found.
#[derive(Debug)]
pub enum Read {
    /// The next rows, none when there are no more for now, and how many positions are still ahead.
    Rows { rows: Vec<Row>, behind: u64 },
    /// The database is not the one it was: it was restored from a copy. What was read from it may not be there any more.
    /// Somebody may have noted that already.
    Restored { is_noted: bool },
}

impl Tail {
    /// From the beginning.
    pub fn from_start(records: Records) -> Self {
        Self { records, seen: Seen::default(), largest: 0, sound: Instant::now() }
    }

    /// From now on.
    pub async fn from_now(records: Records) -> Result<Self, Error> {
        let sound = Instant::now();
        let (seen, largest) = records.read((), now).await?;
        Ok(Self { records, seen, largest, sound })
    }

    /// Reads on. After an error it stands where it stood, and in a database that was restored until it [begins
    /// anew](Self::begin_anew).
    pub async fn read_on(&mut self) -> Result<Read, Error> {
        let asked = Instant::now();
        let (read, seen) = self.records.read(self.seen, after).await?;
        if let Read::Rows { rows, .. } = &read {
            self.seen = seen;
            self.largest = rows.iter().map(|row| row.id).fold(self.largest, i64::max);
            self.sound = asked;
        }
        Ok(read)
    }

    /// In a database that was restored: notes which ids it gives a second time, for everybody, and goes on from now. Whoever
    /// had not come far enough to notice does so by that note, and has nothing to add.
    pub async fn begin_anew(&mut self, now: Millis, is_noted: bool) -> Result<(), Error> {
        let since = now.saturating_sub(millis(self.sound.elapsed() + CLOCKS));
        let again = (!is_noted).then_some(Again { since, largest: self.largest });
        self.seen = self.records.write(again, note_again).await?;
        self.sound = Instant::now();
        Ok(())
    }
}

/// Where the order stands, and the largest id.
async fn now((): &(), tx: &mut Transaction<'_>) -> Result<(Seen, i64), Error> {
    let Head { position, notes, .. } = head(0, tx).await?;
    let largest = tx.row(&store::LARGEST, &[]).await?;
    let largest = largest.map(|row| row.maybe_int(0)).transpose()?.flatten();
    Ok((Seen { position, row: None, notes: Some(notes) }, largest.unwrap_or_default()))
}

/// What a database gives again that was restored.
struct Again {
    /// What had its position by then is what it was.
    since: Millis,
    largest: i64,
}

async fn note_again(again: &Option<Again>, tx: &mut Transaction<'_>) -> Result<Seen, Error> {
    if let Some(again) = again {
        let position = position_at(again.since, tx).await?;
        let noted = [("position", position.into()), ("largest", again.largest.into())];
        tx.run(&store::AGAIN_PUT, &noted).await?;
    }
    Ok(now(&(), tx).await?.0)
}

/// Where the order stands.
struct Head {
    position: u64,
    /// The row that has the position that somebody remembers.
    there: Option<Mark>,
    notes: u64,
}

impl Head {
    /// Whether this may be the database in which somebody came so far.
    fn is_beyond(&self, seen: &Seen) -> bool {
        // One that is gone was too old; another one in its place never was there before.
        let is_another = seen.row.is_some() && self.there.is_some() && self.there != seen.row;
        self.position >= seen.position && !is_another
    }

    /// Whether somebody has noted since that it was restored.
    fn is_noted(&self, seen: &Seen) -> bool {
        seen.notes.is_some_and(|notes| notes != self.notes)
    }
}

async fn head(remembered: u64, tx: &mut Transaction<'_>) -> Result<Head, Error> {
    let row = tx.row(&store::HEAD, &[("remembered", remembered.into())]).await?;
    let row = row.ok_or_else(|| Error::Failed("bongsu_outbox_head is empty".to_owned()))?;
    let created_at = u64::try_from(row.maybe_int(2)?.unwrap_or_default()).unwrap_or_default();
    let there = row.maybe_int(1)?.map(|id| Mark { id, created_at });
    Ok(Head { position: row.count(0)?, there, notes: row.count(3)? })
}

/// Whether nothing shows that the database is another one than that in which a tail came so far.
pub(crate) async fn is_sound(seen: &Seen, tx: &mut Transaction<'_>) -> Result<bool, Error> {
    let head = head(seen.position, tx).await?;
    Ok(head.is_beyond(seen) && !head.is_noted(seen))
}

async fn after(seen: &Seen, tx: &mut Transaction<'_>) -> Result<(Read, Seen), Error> {
    let head = head(seen.position, tx).await?;
    let is_beyond = head.is_beyond(seen);
    if !is_beyond || head.is_noted(seen) {
        return Ok((Read::Restored { is_noted: is_beyond }, *seen));
    }
    let notes = Some(head.notes);
    if head.position == seen.position {
        let seen = Seen { row: seen.row.or(head.there), notes, ..*seen };
        return Ok((Read::Rows { rows: Vec::new(), behind: 0 }, seen));
    }
    let wanted = [("after", seen.position.into()), ("most", MOST.into()), ("bytes", BYTES.into())];
    let rows = tx.rows(&store::TAIL, &wanted).await?;
    let rows = rows.iter().map(Row::read).collect::<Result<Vec<_>, _>>()?;
    let mark = |row: &Row| Mark { id: row.id, created_at: row.created_at };
    let last = rows.last().map(|row| Seen { position: row.position, row: Some(mark(row)), notes });
    // What is between is gone already.
    let last = last.unwrap_or(Seen { position: head.position, row: None, notes });
    Ok((Read::Rows { rows, behind: head.position.saturating_sub(last.position) }, last))
}

impl Outbox {
    pub(crate) async fn start_tail(&self, supervisor: &Supervisor) -> Result<(), Error> {
        let heard = self.clone();
        let is_told = self.records().heed(store::CHANNEL, supervisor, move || heard.0.sequenced.notify_one());
        // On the embedded file the sequencer is in this process.
        let is_told = is_told || self.records().dialect() == Dialect::Sqlite;
        let pause = if is_told { SELDOM } else { OFTEN };
        let tail = Tail::from_now(self.records().own_lane()).await?;
        self.saw(tail.seen);
        self.has_told(tail.seen.position);
        let state = (self.clone(), Arc::new(tokio::sync::Mutex::new(tail)));
        supervisor.run("outbox-tail", &state, move |(outbox, tail)| async move {
            outbox.follow(&mut *tail.lock().await, pause).await;
        });
        Ok(())
    }

    /// How far the tail has come. The hub is told of it right afterwards: whoever follows an event and then asks here misses
    /// nothing in between.
    pub(crate) fn seen(&self) -> Seen {
        *self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saw(&self, seen: Seen) {
        *self.0.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    /// The position up to which the hub was told everything.
    pub fn reached(&self) -> u64 {
        self.0.reached.load(Ordering::Acquire)
    }

    fn has_told(&self, position: u64) {
        self.0.reached.store(position, Ordering::Release);
    }

    async fn read_on(&self, tail: &mut Tail) -> Result<Read, Error> {
        let read = tail.read_on().await?;
        if let Read::Restored { is_noted } = read {
            // Before streams end, whose clients come back at once.
            tail.begin_anew(self.0.clock.now(), is_noted).await?;
        }
        Ok(read)
    }

    /// Hands rows to the hub for as long as the process runs.
    async fn follow(&self, tail: &mut Tail, pause: Duration) {
        let (mut retries, mut tidied) = (Retries::of(&self.0.tail), Instant::now());
        loop {
            let wait = match self.read_on(tail).await {
                Ok(Read::Rows { rows, behind }) => {
                    metrics::gauge!("outbox_tail_lag_rows").set(behind as f64);
                    self.saw(tail.seen);
                    self.hand_over(&rows);
                    if !rows.is_empty() {
                        self.0.arrived.notify_one();
                    }
                    self.has_told(tail.seen.position);
                    retries.worked();
                    if behind > 0 { Duration::ZERO } else { pause }
                }
                Ok(Read::Restored { .. }) => {
                    tracing::warn!("the outbox is not the one it was: streams begin anew");
                    self.saw(tail.seen);
                    self.lose_all();
                    self.has_told(tail.seen.position);
                    Duration::ZERO
                }
                Err(error) => {
                    retries.failed(&error).await;
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
