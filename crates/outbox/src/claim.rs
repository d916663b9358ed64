//! Claiming rows for a worker, in the order of their targets, and saying what became of them.
//!
//! A worker looks through the rows once, and remembers those of its own that were not done. What may be done it claims by
//! key, those only that nobody else has claimed meanwhile; of a target, none behind one that it did not get. Rows that were
//! given up and are to be tried again are outside that order, and named in a table of their own.

use std::collections::{BTreeMap, HashMap, HashSet};

use bongsu_kernel::Millis;
use bongsu_kernel::trace::TraceParent;
use bongsu_sql::{Error, Records, Transaction};

use crate::store::{self, list};
use crate::worker::{Handler, LEASE, millis};
use crate::{Outbox, Row};

/// So many rows are claimed at once.
const MOST: usize = 200;
/// So many are looked through by one question, and so many questions are asked for one claim.
const WINDOW: usize = 1_000;
const WINDOWS: usize = 50;
/// So many that are not done are remembered; then nothing further is looked through.
const MOST_OPEN: usize = 50_000;
/// So often others are looked for when somebody holds all that was found.
const ROUNDS: usize = 8;

/// A row that is this worker's until a time.
#[derive(Debug)]
pub(crate) struct Claimed {
    pub(crate) row: Row,
    /// How often it has failed.
    pub(crate) attempts: u64,
    pub(crate) until: Millis,
}

/// What becomes of a row.
pub(crate) struct Ending {
    id: i64,
    /// Tells this claim from others.
    until: Millis,
    attempts: u64,
    available_at: Millis,
    then: Then,
}

enum Then {
    Done,
    Again,
    GivenUp(String),
}

impl Ending {
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(self.then, Then::GivenUp(_))
    }
}

impl Claimed {
    fn ends(&self, then: Then, attempts: u64, available_at: Millis) -> Ending {
        Ending { id: self.row.id, until: self.until, attempts, available_at, then }
    }

    pub(crate) fn done(&self, now: Millis) -> Ending {
        self.ends(Then::Done, self.attempts, now)
    }

    /// As if it had not been claimed.
    pub(crate) fn given_back(&self, now: Millis) -> Ending {
        self.ends(Then::Again, self.attempts, now)
    }

    pub(crate) fn tried_again(&self, attempts: u64, at: Millis) -> Ending {
        self.ends(Then::Again, attempts, at)
    }

    pub(crate) fn given_up(&self, attempts: u64, reason: String, now: Millis) -> Ending {
        self.ends(Then::GivenUp(reason), attempts, now)
    }
}

/// A row that somebody could claim, by its id and target; nobody's target for one outside the order.
type Candidate = (i64, Option<String>);

/// How far a worker has looked through the rows.
#[derive(Default)]
pub(crate) struct Progress {
    /// In which database: one that was restored is looked through anew.
    era: u64,
    looked_to: u64,
    /// What is this worker's and was not done yet, by position.
    open: BTreeMap<u64, Open>,
}

struct Open {
    id: i64,
    target: String,
}

/// What may be done now: of each target only what nothing is waited for before.
struct Found {
    now: Millis,
    waits: HashSet<String>,
    rows: Vec<Candidate>,
}

impl Found {
    fn add(&mut self, open: &Open, available_at: Millis) {
        if available_at > self.now {
            self.waits.insert(open.target.clone());
        } else if !self.is_full() && !self.waits.contains(&open.target) {
            self.rows.push((open.id, Some(open.target.clone())));
        }
    }

    fn is_full(&self) -> bool {
        self.rows.len() >= MOST
    }
}

impl Outbox {
    /// Claims what may be done now.
    pub(crate) async fn claim(
        &self,
        progress: &mut Progress,
        handler: &dyn Handler,
    ) -> Result<Vec<Claimed>, Error> {
        let era = self.era();
        if progress.era != era {
            *progress = Progress { era, ..Progress::default() };
        }
        let now = self.0.clock.now();
        let mut candidates = self.redriven(now, handler).await?;
        let mut held = HashSet::new();
        for _ in 0..ROUNDS {
            candidates.extend(self.look(progress, now, handler, held.clone()).await?);
            if candidates.is_empty() {
                break;
            }
            let targets: Vec<String> = candidates.iter().filter_map(|(_, target)| target.clone()).collect();
            let wish = Wish { candidates: std::mem::take(&mut candidates), now, until: now + millis(LEASE) };
            let claimed = self.records().write(wish, claim).await?;
            if !claimed.is_empty() {
                return Ok(claimed);
            }
            held.extend(targets);
        }
        Ok(Vec::new())
    }

    async fn redriven(&self, now: Millis, handler: &dyn Handler) -> Result<Vec<Candidate>, Error> {
        let rows = self.records().read(now, redriven).await?;
        let (own, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, kind)| handler.wants(kind));
        if !others.is_empty() {
            // Whoever does something about them finds them as they find others.
            let others = others.into_iter().map(|(id, _)| id).collect();
            self.records().write(others, forget_redriven).await?;
        }
        Ok(own.into_iter().map(|(id, _)| (id, None)).collect())
    }

    /// What may be done now, first of what was not done when it was looked through, then of what has come since. Targets that
    /// somebody holds are passed over.
    async fn look(
        &self,
        progress: &mut Progress,
        now: Millis,
        handler: &dyn Handler,
        held: HashSet<String>,
    ) -> Result<Vec<Candidate>, Error> {
        let mut found = Found { now, waits: held, rows: Vec::new() };
        let known: Vec<(u64, i64)> =
            progress.open.iter().map(|(position, open)| (*position, open.id)).collect();
        for some in known.chunks(WINDOW) {
            let ids: Vec<i64> = some.iter().map(|(_, id)| *id).collect();
            let undone = self.records().read(ids, undone).await?;
            for (position, id) in some {
                match (undone.get(id), progress.open.get(position)) {
                    (Some(available_at), Some(open)) => found.add(open, *available_at),
                    _ => drop(progress.open.remove(position)),
                }
            }
            if found.is_full() {
                return Ok(found.rows);
            }
        }
        for _ in 0..WINDOWS {
            if progress.open.len() >= MOST_OPEN {
                break;
            }
            let rows = self.records().read(progress.looked_to, window).await?;
            let is_last = rows.len() < WINDOW;
            for row in rows {
                progress.looked_to = row.position;
                if row.is_undone && handler.wants(&row.kind) {
                    let open = Open { id: row.id, target: row.target };
                    found.add(&open, row.available_at);
                    progress.open.insert(row.position, open);
                }
                if found.is_full() {
                    return Ok(found.rows);
                }
            }
            if is_last || !found.rows.is_empty() {
                break;
            }
        }
        Ok(found.rows)
    }

    pub(crate) async fn end(&self, endings: Vec<Ending>) -> Result<(), Error> {
        let (done, rest): (Vec<_>, Vec<_>) =
            endings.into_iter().partition(|ending| matches!(ending.then, Then::Done));
        if let Some(Ending { until, available_at, .. }) = done.first() {
            let ids = done.iter().map(|ending| ending.id).collect();
            let done = Done { ids, until: *until, now: *available_at };
            self.records().write(done, mark_done).await?;
        }
        for ending in rest {
            end(self.records(), ending).await?;
        }
        Ok(())
    }
}

async fn redriven(now: &Millis, tx: &mut Transaction<'_>) -> Result<Vec<(i64, String)>, Error> {
    let rows = tx.rows(&store::REDRIVEN, &[("now", (*now).into()), ("most", MOST.into())]).await?;
    rows.iter().map(|row| Ok((row.int(0)?, row.maybe_text(1)?.unwrap_or_default().to_owned()))).collect()
}

#[expect(clippy::ptr_arg, reason = "a question takes what it was given by reference")]
async fn forget_redriven(ids: &Vec<i64>, tx: &mut Transaction<'_>) -> Result<u64, Error> {
    tx.run(&store::REDRIVEN_REMOVE, &[("ids", list(ids)?.into())]).await
}

/// Of some rows those that are not done, and when they may be.
#[expect(clippy::ptr_arg, reason = "a question takes what it was given by reference")]
async fn undone(ids: &Vec<i64>, tx: &mut Transaction<'_>) -> Result<HashMap<i64, Millis>, Error> {
    let rows = tx.rows(&store::UNDONE, &[("ids", list(ids)?.into())]).await?;
    rows.iter().map(|row| Ok((row.int(0)?, u64::try_from(row.int(1)?).unwrap_or_default()))).collect()
}

/// As much of a row as tells whether there is something to do.
struct Seen {
    position: u64,
    id: i64,
    target: String,
    kind: String,
    is_undone: bool,
    available_at: Millis,
}

async fn window(after: &u64, tx: &mut Transaction<'_>) -> Result<Vec<Seen>, Error> {
    let wanted = [("after", (*after).into()), ("most", WINDOW.into())];
    let rows = tx.rows(&store::WINDOW, &wanted).await?;
    let seen = |row: &bongsu_sql::Row| {
        Ok(Seen {
            position: row.count(0)?,
            id: row.int(1)?,
            target: row.text(2)?.to_owned(),
            kind: row.maybe_text(3)?.unwrap_or_default().to_owned(),
            is_undone: matches!(row.text(4)?, "PENDING" | "PROCESSING"),
            available_at: u64::try_from(row.int(5)?).unwrap_or_default(),
        })
    };
    rows.iter().map(seen).collect()
}

struct Wish {
    candidates: Vec<Candidate>,
    now: Millis,
    until: Millis,
}

async fn claim(wish: &Wish, tx: &mut Transaction<'_>) -> Result<Vec<Claimed>, Error> {
    let ids: Vec<i64> = wish.candidates.iter().map(|(id, _)| *id).collect();
    let held = [("ids", list(&ids)?.into()), ("now", wish.now.into())];
    let held = tx.rows(&store::CLAIM_HOLD, &held).await?;
    let mut held = held
        .iter()
        .map(|row| {
            let trace = row.maybe_text(7)?.and_then(TraceParent::parse);
            let attempts = u64::try_from(row.int(6)?).unwrap_or_default();
            let row = Row { trace, ..Row::read(row)? };
            Ok((row.id, Claimed { row, attempts, until: wish.until }))
        })
        .collect::<Result<HashMap<_, _>, Error>>()?;
    // Of a target nothing behind what somebody else has, or has just had.
    let (mut missed, mut claimed) = (HashSet::new(), Vec::with_capacity(held.len()));
    for (id, target) in &wish.candidates {
        match held.remove(id) {
            Some(row) if !target.as_ref().is_some_and(|target| missed.contains(target)) => {
                claimed.push(row);
            }
            _ => missed.extend(target.as_ref()),
        }
    }
    let ids: Vec<i64> = claimed.iter().map(|claimed| claimed.row.id).collect();
    tx.run(&store::CLAIM, &[("ids", list(&ids)?.into()), ("until", wish.until.into())]).await?;
    Ok(claimed)
}

struct Done {
    ids: Vec<i64>,
    until: Millis,
    now: Millis,
}

async fn mark_done(done: &Done, tx: &mut Transaction<'_>) -> Result<(), Error> {
    let ids = list(&done.ids)?;
    let arguments = [("ids", ids.clone().into()), ("until", done.until.into()), ("now", done.now.into())];
    tx.run(&store::CLAIM_DONE, &arguments).await?;
    tx.run(&store::REDRIVEN_REMOVE, &[("ids", ids.into())]).await.map(drop)
}

async fn end(records: &Records, ending: Ending) -> Result<(), Error> {
    async fn change(ending: &Ending, tx: &mut Transaction<'_>) -> Result<(), Error> {
        let status = match &ending.then {
            Then::Done => "DONE",
            Then::Again => "PENDING",
            Then::GivenUp(_) => "FAILED",
        };
        let arguments = [
            ("id", ending.id.into()),
            ("until", ending.until.into()),
            ("status", status.into()),
            ("attempts", ending.attempts.into()),
            ("available_at", ending.available_at.into()),
        ];
        let changed = tx.run(&store::CLAIM_END, &arguments).await?;
        if let (Then::GivenUp(reason), true) = (&ending.then, changed > 0) {
            let reason: String = reason.chars().take(store::REASON).collect();
            tx.run(&store::FAILURE_PUT, &[("failures", list(&[(ending.id, reason)])?.into())]).await?;
            tx.run(&store::REDRIVEN_REMOVE, &[("ids", list(&[ending.id])?.into())]).await?;
        }
        Ok(())
    }
    records.write(ending, change).await
}
