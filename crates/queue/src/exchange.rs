//! The exchange between a consumer and the database: one transaction writes the outcomes of handled messages and reads
//! the next messages.
//!
//! An ordered message is taken only if no message of its key waits before it. Otherwise it waits, too: behind a parked
//! message until that one is finished, behind a missing number until the number arrives or [`GAP_TIMEOUT`] has passed.
//! A message is thus looked at a constant number of times, however many messages of its key wait.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Error, Row, Transaction};

use crate::store::{self, list};
use crate::{Queue, QueueDelivery};

/// How long a message waits for a missing number before it, in milliseconds. Then the number counts as lost.
pub(crate) const GAP_TIMEOUT: Millis = 30_000;
/// Messages that wait behind another one and become ready when that one is finished.
const RELEASE_SIZE: usize = 500;
/// Messages that become ready in one exchange because their time has come.
const MAX_DUE: usize = 500;
/// Characters of a reason that are stored.
const MAX_REASON_LEN: usize = 1_000;
/// The time of messages that do not become ready by themselves.
const NEVER_READY: i64 = i64::MAX;

/// What a consumer writes and reads in one transaction.
#[derive(Default)]
pub(crate) struct Request {
    pub(crate) queue: String,
    /// The number of the consumer; the request is refused if another consumer has started since.
    pub(crate) fence: u64,
    pub(crate) now: Millis,
    pub(crate) outcomes: Outcomes,
    /// Rows that the consumer holds.
    pub(crate) held: Vec<i64>,
    pub(crate) busy_keys: HashMap<Id, BusyKey>,
    /// Messages of one key that the consumer holds at most.
    pub(crate) max_of_key: usize,
    /// Messages to read; 0 to write only.
    pub(crate) limit: usize,
    /// Bytes of messages to read. At least one message is read.
    pub(crate) max_bytes: u64,
}

/// What became of messages. Writing outcomes again changes nothing.
#[derive(Clone, Default)]
pub(crate) struct Outcomes {
    /// Rows that were handled.
    pub(crate) done: Vec<i64>,
    pub(crate) parked: Vec<ParkedMessage>,
    pub(crate) given_up: Vec<FailedMessage>,
    /// The last number of each key that was handled or given up.
    pub(crate) sequences: BTreeMap<Id, u64>,
    /// Keys of which the consumer held no message any more at some time.
    pub(crate) idle_keys: Vec<Id>,
}

impl Outcomes {
    pub(crate) fn len(&self) -> usize {
        self.done.len() + self.parked.len() + self.given_up.len()
    }

    /// The rows that have an outcome.
    pub(crate) fn rows(&self) -> impl Iterator<Item = i64> {
        let parked = self.parked.iter().map(|message| message.row);
        self.done.iter().copied().chain(parked).chain(self.given_up.iter().map(|message| message.row))
    }

    /// Adds outcomes that were not written, before those that were added since.
    pub(crate) fn restore(&mut self, unwritten: &Self) {
        let added = std::mem::replace(self, unwritten.clone());
        self.done.extend(added.done);
        self.parked.extend(added.parked);
        self.given_up.extend(added.given_up);
        self.sequences.extend(added.sequences);
        self.idle_keys.extend(added.idle_keys);
    }
}

/// A key of which the consumer holds messages.
pub(crate) struct BusyKey {
    /// The number of the last message; 0: without numbers.
    pub(crate) last_sequence: u64,
    pub(crate) messages: usize,
}

#[derive(Clone)]
pub(crate) struct ParkedMessage {
    pub(crate) row: i64,
    pub(crate) attempts: u64,
    pub(crate) until: Millis,
}

#[derive(Clone)]
pub(crate) struct FailedMessage {
    pub(crate) row: i64,
    pub(crate) attempts: u64,
    pub(crate) reason: String,
}

#[derive(Debug)]
pub(crate) enum Response {
    Messages {
        deliveries: Vec<QueueDelivery>,
        /// More messages can be handled now, or may be.
        has_more: bool,
    },
    /// Another consumer has started.
    Fenced,
}

/// A message that can be handled, without its payload.
struct ReadyRow {
    id: i64,
    key: Option<Id>,
    sequence: u64,
    size: u64,
}

impl ReadyRow {
    fn read(row: &Row) -> Result<Self, Error> {
        let key = if row.int(3)? == 1 { Some(row.id(1)?) } else { None };
        Ok(Self { id: row.int(0)?, key, sequence: row.count(2)?, size: row.count(4)? })
    }
}

/// Raises the number of the queue's consumer, so that earlier consumers are refused.
pub(crate) async fn take_over(queue: &Arc<Queue>, tx: &mut Transaction<'_>) -> Result<u64, Error> {
    tx.run(&store::FENCE_RAISE, &[("queue", (&*queue.name).into())]).await?;
    fence(&queue.name, tx).await
}

async fn fence(queue: &str, tx: &mut Transaction<'_>) -> Result<u64, Error> {
    let row = tx.row(&store::FENCE, &[("queue", queue.into())]).await?;
    row.map_or(Ok(0), |row| row.count(0))
}

pub(crate) async fn exchange(request: &Request, tx: &mut Transaction<'_>) -> Result<Response, Error> {
    if fence(&request.queue, tx).await? != request.fence {
        return Ok(Response::Fenced);
    }
    write_outcomes(request, tx).await?;
    if request.limit == 0 {
        return Ok(Response::Messages { deliveries: Vec::new(), has_more: false });
    }
    let has_due = make_due_ready(request, tx).await?;
    let arguments = [
        ("queue", request.queue.as_str().into()),
        ("held", list(&request.held)?.into()),
        ("limit", request.limit.into()),
    ];
    let rows = tx.rows(&store::READY, &arguments).await?;
    let has_more = rows.len() == request.limit || has_due;
    let mut rows = rows.iter().map(ReadyRow::read).collect::<Result<Vec<_>, _>>()?;
    // Numbered messages of a key are looked at in the order of their numbers.
    rows.sort_by_key(|row| (row.sequence, row.id));
    let taken = choose(request, &rows, tx).await?;
    Ok(Response::Messages { deliveries: read_messages(&taken, tx).await?, has_more })
}

async fn write_outcomes(request: &Request, tx: &mut Transaction<'_>) -> Result<(), Error> {
    let queue = request.queue.as_str();
    for FailedMessage { row, attempts, reason } in &request.outcomes.given_up {
        let reason: String = reason.chars().filter(|c| !c.is_control()).take(MAX_REASON_LEN).collect();
        let arguments = [
            ("id", (*row).into()),
            ("attempts", (*attempts).into()),
            ("reason", reason.into()),
            ("now", request.now.into()),
        ];
        tx.run(&store::DEAD_LETTER_ADD, &arguments).await?;
    }
    let finished: Vec<i64> = request
        .outcomes
        .done
        .iter()
        .copied()
        .chain(request.outcomes.given_up.iter().map(|failed| failed.row))
        .collect();
    if !finished.is_empty() {
        tx.run(&store::FINISH, &[("ids", list(&finished)?.into())]).await?;
    }
    for ParkedMessage { row, attempts, until } in &request.outcomes.parked {
        let arguments = [("id", (*row).into()), ("attempts", (*attempts).into()), ("until", (*until).into())];
        tx.run(&store::PARK, &arguments).await?;
    }
    put_sequences(request, request.outcomes.sequences.iter().map(|(key, last)| (key.as_str(), *last)), tx)
        .await?;
    for (key, (sequence, _)) in waiting(queue, request.outcomes.idle_keys.iter(), tx).await? {
        if request.outcomes.sequences.get(&key).is_some_and(|last| sequence > last + 1) {
            // The next number is still missing.
            continue;
        }
        let arguments = [("queue", queue.into()), ("key", (&key).into()), ("limit", RELEASE_SIZE.into())];
        let rows = tx.rows(&store::WAITING_IDS, &arguments).await?;
        let ids = rows.iter().map(|row| row.int(0)).collect::<Result<Vec<_>, _>>()?;
        tx.run(&store::MAKE_READY, &[("ids", list(&ids)?.into())]).await?;
    }
    Ok(())
}

async fn put_sequences<'a>(
    request: &Request,
    sequences: impl Iterator<Item = (&'a str, u64)>,
    tx: &mut Transaction<'_>,
) -> Result<(), Error> {
    let sequences: Vec<(&str, u64)> = sequences.collect();
    if sequences.is_empty() {
        return Ok(());
    }
    let arguments = [
        ("queue", request.queue.as_str().into()),
        ("sequences", list(&sequences)?.into()),
        ("now", request.now.into()),
    ];
    tx.run(&store::SEQUENCES_PUT, &arguments).await.map(drop)
}

/// Of each key with waiting messages, the number and row id of the first one.
async fn waiting<'a>(
    queue: &str,
    keys: impl Iterator<Item = &'a Id>,
    tx: &mut Transaction<'_>,
) -> Result<HashMap<Id, (u64, i64)>, Error> {
    let keys: HashSet<&str> = keys.map(Id::as_str).collect();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let arguments = [("queue", queue.into()), ("keys", list(&keys)?.into())];
    let rows = tx.rows(&store::WAITING, &arguments).await?;
    let first = |row: &Row| {
        let Some(id) = row.maybe_int(2)? else { return Ok(None) };
        Ok(Some((row.id(0)?, (row.count(1)?, id))))
    };
    rows.iter().filter_map(|row| first(row).transpose()).collect()
}

/// Makes messages ready whose time has come. A message that waited for a missing number does not wait for it again.
async fn make_due_ready(request: &Request, tx: &mut Transaction<'_>) -> Result<bool, Error> {
    let arguments =
        [("queue", request.queue.as_str().into()), ("now", request.now.into()), ("limit", MAX_DUE.into())];
    let rows = tx.rows(&store::DUE, &arguments).await?;
    if rows.is_empty() {
        return Ok(false);
    }
    let (mut ids, mut skipped) = (Vec::with_capacity(rows.len()), BTreeMap::new());
    for row in &rows {
        ids.push(row.int(0)?);
        let (sequence, is_ordered, attempts) = (row.count(2)?, row.int(3)?, row.count(4)?);
        if sequence > 0 && is_ordered == 1 && attempts == 0 {
            let key = row.id(1)?;
            tracing::warn!(queue = request.queue, %key, sequence, "messages before this one are missing; continuing without them");
            metrics::counter!("queue_gaps_total").increment(1);
            let last = skipped.entry(key).or_insert(sequence - 1);
            *last = (*last).min(sequence - 1);
        }
    }
    put_sequences(request, skipped.iter().map(|(key, last)| (key.as_str(), *last)), tx).await?;
    tx.run(&store::MAKE_READY, &[("ids", list(&ids)?.into())]).await?;
    Ok(true)
}

/// Chooses the rows that the consumer takes, and makes the others wait. Removes repeated messages.
async fn choose(request: &Request, rows: &[ReadyRow], tx: &mut Transaction<'_>) -> Result<Vec<i64>, Error> {
    let keys = || rows.iter().filter_map(|row| row.key.as_ref());
    let mut waiting = waiting(&request.queue, keys(), tx).await?;
    let mut last_sequences = last_sequences(request, rows, tx).await?;
    let mut messages_of: HashMap<&Id, usize> =
        request.busy_keys.iter().map(|(key, busy)| (key, busy.messages)).collect();
    let (mut taken, mut left, mut bytes) = (Vec::new(), Vec::new(), 0);
    let (mut behind, mut missing, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let is_full = bytes + row.size > request.max_bytes && !taken.is_empty();
        let Some(key) = &row.key else {
            if !is_full {
                bytes += row.size;
                taken.push(row.id);
            }
            continue;
        };
        let last = last_sequences.get(key).copied().unwrap_or(0);
        let messages = messages_of.entry(key).or_default();
        let place = (row.sequence, row.id);
        if row.sequence > 0 && row.sequence <= last {
            repeated.push(row.id);
        } else if waiting.get(key).is_some_and(|first| *first < place) {
            behind.push(row.id);
        } else if row.sequence > 0 && row.sequence > last + 1 {
            missing.push(row.id);
            let first = waiting.entry(key.clone()).or_insert(place);
            *first = (*first).min(place);
        } else if is_full || *messages >= request.max_of_key {
            // Later messages of the key are left, too.
            *messages = request.max_of_key;
            left.push(row.id);
        } else {
            bytes += row.size;
            *messages += 1;
            if row.sequence > 0 {
                last_sequences.insert(key.clone(), row.sequence);
            }
            taken.push(row.id);
        }
    }
    if taken.is_empty() {
        // The messages in front are all of keys that take no more: they make room for those of other keys.
        behind.append(&mut left);
    }
    hold(&behind, NEVER_READY, tx).await?;
    hold(&missing, i64::try_from(request.now + GAP_TIMEOUT).unwrap_or(NEVER_READY), tx).await?;
    if !repeated.is_empty() {
        tx.run(&store::FINISH, &[("ids", list(&repeated)?.into())]).await?;
    }
    Ok(taken)
}

/// The last number of each key with numbered messages: of those that the consumer holds, or of those that were finished.
async fn last_sequences(
    request: &Request,
    rows: &[ReadyRow],
    tx: &mut Transaction<'_>,
) -> Result<HashMap<Id, u64>, Error> {
    let numbered = rows.iter().filter(|row| row.sequence > 0).filter_map(|row| row.key.as_ref());
    let (mut known, mut unknown) = (HashMap::new(), HashSet::new());
    for key in numbered {
        match request.busy_keys.get(key).filter(|busy| busy.last_sequence > 0) {
            Some(busy) => drop(known.insert(key.clone(), busy.last_sequence)),
            None => drop(unknown.insert(key.as_str())),
        }
    }
    if !unknown.is_empty() {
        let arguments = [("queue", request.queue.as_str().into()), ("keys", list(&unknown)?.into())];
        for row in tx.rows(&store::SEQUENCES, &arguments).await? {
            known.insert(row.id(0)?, row.count(1)?);
        }
    }
    Ok(known)
}

async fn hold(ids: &[i64], until: i64, tx: &mut Transaction<'_>) -> Result<(), Error> {
    if ids.is_empty() {
        return Ok(());
    }
    tx.run(&store::HOLD, &[("ids", list(ids)?.into()), ("until", until.into())]).await.map(drop)
}

/// Reads messages in the order of their rows in the list.
async fn read_messages(ids: &[i64], tx: &mut Transaction<'_>) -> Result<Vec<QueueDelivery>, Error> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = tx.rows(&store::MESSAGES, &[("ids", list(ids)?.into())]).await?;
    let mut deliveries = HashMap::with_capacity(rows.len());
    for row in &rows {
        let delivery = QueueDelivery::read(row)?;
        deliveries.insert(delivery.row, delivery);
    }
    Ok(ids.iter().filter_map(|id| deliveries.remove(id)).collect())
}
