//! The exchange between a consumer and the database: one transaction writes the outcomes of handled messages and reads
//! the next messages.
//!
//! An ordered message is taken only if no message of its key waits before it. Otherwise it waits, too, until the key is
//! idle. A message is thus looked at a constant number of times, however many messages of its key wait.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Error, Row, Transaction};

use crate::store::{self, list};
use crate::{Queue, QueueDelivery};

/// Messages that wait behind another one and become ready when that one is finished.
const RELEASE_SIZE: usize = 500;
/// Messages that become ready in one exchange because their time has come.
const MAX_DUE: usize = 500;
/// Characters of a reason that are stored.
const MAX_REASON_LEN: usize = 1_000;
/// The time of messages that do not become ready by themselves.
const NEVER_READY: i64 = i64::MAX;

/// The outcomes that a consumer writes, and the limits of the messages that it reads, in one transaction.
#[derive(Default)]
pub(crate) struct Request {
    pub(crate) queue: String,
    /// The number of the consumer; the request is refused if another consumer has started since.
    pub(crate) fence: u64,
    pub(crate) now: Millis,
    pub(crate) outcomes: Outcomes,
    /// Rows that the consumer holds, without those that have an outcome.
    pub(crate) held: Vec<i64>,
    /// How many messages the consumer holds of each key.
    pub(crate) busy_keys: HashMap<Id, usize>,
    /// Messages of one key that the consumer holds at most.
    pub(crate) max_of_key: usize,
    /// Messages to read; 0 to write only.
    pub(crate) limit: usize,
    /// Bytes of messages to read. At least one message is read.
    pub(crate) max_bytes: u64,
}

/// The outcomes of handled messages. Writing outcomes again changes nothing.
#[derive(Clone, Default)]
pub(crate) struct Outcomes {
    /// Rows that were handled.
    pub(crate) done: Vec<i64>,
    pub(crate) parked: Vec<ParkedMessage>,
    pub(crate) given_up: Vec<FailedMessage>,
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
        self.idle_keys.extend(added.idle_keys);
    }
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
        /// All messages in front are of keys of which the consumer takes no more.
        is_blocked: bool,
    },
    /// Another consumer has started.
    Fenced,
}

/// A message that can be handled, without its payload.
struct ReadyRow {
    id: i64,
    key: Option<Id>,
    size: u64,
}

impl ReadyRow {
    fn read(row: &Row) -> Result<Self, Error> {
        let key = if row.int(2)? == 1 { Some(row.id(1)?) } else { None };
        Ok(Self { id: row.int(0)?, key, size: row.count(3)? })
    }
}

/// The rows that the consumer takes.
struct Choice {
    taken: Vec<i64>,
    /// Whether rows that could be handled were left to a later exchange.
    has_left: bool,
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
        return Ok(Response::Messages { deliveries: Vec::new(), has_more: false, is_blocked: false });
    }
    let has_due = make_due_ready(request, tx).await?;
    let arguments = [
        ("queue", request.queue.as_str().into()),
        ("held", list(&request.held)?.into()),
        ("limit", request.limit.into()),
    ];
    let rows = tx.rows(&store::READY, &arguments).await?;
    let rows = rows.iter().map(ReadyRow::read).collect::<Result<Vec<_>, _>>()?;
    let Choice { taken, has_left } = choose(request, &rows, tx).await?;
    Ok(Response::Messages {
        has_more: has_left || has_due || rows.len() == request.limit,
        is_blocked: taken.is_empty() && has_left,
        deliveries: read_messages(&taken, tx).await?,
    })
}

async fn write_outcomes(request: &Request, tx: &mut Transaction<'_>) -> Result<(), Error> {
    let queue = request.queue.as_str();
    let Outcomes { done, parked, given_up, idle_keys } = &request.outcomes;
    for FailedMessage { row, attempts, reason } in given_up {
        let reason: String = reason.chars().filter(|c| !c.is_control()).take(MAX_REASON_LEN).collect();
        let arguments = [
            ("id", (*row).into()),
            ("attempts", (*attempts).into()),
            ("reason", reason.into()),
            ("now", request.now.into()),
        ];
        tx.run(&store::DEAD_LETTER_ADD, &arguments).await?;
    }
    let finished: Vec<i64> = done.iter().copied().chain(given_up.iter().map(|message| message.row)).collect();
    if !finished.is_empty() {
        tx.run(&store::FINISH, &[("ids", list(&finished)?.into())]).await?;
    }
    for ParkedMessage { row, attempts, until } in parked {
        let arguments = [("id", (*row).into()), ("attempts", (*attempts).into()), ("until", (*until).into())];
        tx.run(&store::PARK, &arguments).await?;
    }
    for key in first_waiting(queue, idle_keys.iter(), tx).await?.into_keys() {
        let arguments = [("queue", queue.into()), ("key", (&key).into()), ("limit", RELEASE_SIZE.into())];
        let rows = tx.rows(&store::WAITING_IDS, &arguments).await?;
        make_ready(&rows, tx).await?;
    }
    Ok(())
}

/// Of each key with waiting messages, the row id of the first one.
async fn first_waiting<'a>(
    queue: &str,
    keys: impl Iterator<Item = &'a Id>,
    tx: &mut Transaction<'_>,
) -> Result<HashMap<Id, i64>, Error> {
    let keys: HashSet<&str> = keys.map(Id::as_str).collect();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    let arguments = [("queue", queue.into()), ("keys", list(&keys)?.into())];
    let rows = tx.rows(&store::WAITING, &arguments).await?;
    let first = |row: &Row| row.maybe_int(1)?.map(|id| Ok((row.id(0)?, id))).transpose();
    rows.iter().filter_map(|row| first(row).transpose()).collect()
}

/// Makes messages ready whose time has come. Returns whether there were any.
async fn make_due_ready(request: &Request, tx: &mut Transaction<'_>) -> Result<bool, Error> {
    let arguments =
        [("queue", request.queue.as_str().into()), ("now", request.now.into()), ("limit", MAX_DUE.into())];
    let rows = tx.rows(&store::DUE, &arguments).await?;
    make_ready(&rows, tx).await?;
    Ok(!rows.is_empty())
}

async fn make_ready(rows: &[Row], tx: &mut Transaction<'_>) -> Result<(), Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let ids = rows.iter().map(|row| row.int(0)).collect::<Result<Vec<_>, _>>()?;
    tx.run(&store::MAKE_READY, &[("ids", list(&ids)?.into())]).await.map(drop)
}

/// Chooses the rows that the consumer takes, and makes those wait that are behind a waiting message of their key.
async fn choose(request: &Request, rows: &[ReadyRow], tx: &mut Transaction<'_>) -> Result<Choice, Error> {
    let waiting = first_waiting(&request.queue, rows.iter().filter_map(|row| row.key.as_ref()), tx).await?;
    let mut messages_of: HashMap<&Id, usize> =
        request.busy_keys.iter().map(|(key, messages)| (key, *messages)).collect();
    let (mut taken, mut left, mut behind) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bytes, mut has_left) = (0, false);
    for row in rows {
        let is_full = bytes + row.size > request.max_bytes && !taken.is_empty();
        if let Some(key) = &row.key {
            let messages = messages_of.entry(key).or_default();
            if waiting.get(key).is_some_and(|first| *first < row.id) {
                behind.push(row.id);
                continue;
            }
            if is_full || *messages >= request.max_of_key {
                // Later messages of the key are left, too.
                *messages = request.max_of_key;
                left.push(row.id);
                continue;
            }
            *messages += 1;
        } else if is_full {
            has_left = true;
            continue;
        }
        bytes += row.size;
        taken.push(row.id);
    }
    has_left |= !left.is_empty();
    if taken.is_empty() {
        // The messages in front are all of keys that take no more: they make room for those of other keys.
        behind.append(&mut left);
    }
    if !behind.is_empty() {
        let arguments = [("ids", list(&behind)?.into()), ("until", NEVER_READY.into())];
        tx.run(&store::HOLD, &arguments).await?;
    }
    Ok(Choice { taken, has_left })
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
