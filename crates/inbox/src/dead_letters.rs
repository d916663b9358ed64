//! Dead letters of the inbox: follow-up records whose entries cannot be made. Each record is kept byte for byte, with
//! the reason, until an operator redrives or deletes the dead letter.
//!
//! A record is stored as a dead letter before it is removed from its queue. After a crash between the two steps the
//! record is found again, and its digest prevents a second dead letter.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bongsu_kernel::Millis;
use bongsu_live::log::PendingFollowUp;
use bongsu_part::{BoxFuture, DeadLetter, DeadLetters};
use bongsu_sql::{Error, Result, Row, Transaction, record_once};
use sha2::{Digest, Sha256};

use crate::materialize::MaterializeError;
use crate::{Inbox, store};

/// The scope of the once keys by which a record becomes a dead letter only once. Retention keeps the keys as long as
/// entries.
pub(crate) const SCOPE: &str = "inbox-dead-letters";
/// Characters of a subject or type that are stored.
const MAX_NAME_LEN: usize = 200;
/// Characters of a reason that are stored.
const MAX_REASON_LEN: usize = 1_000;

struct NewDeadLetter {
    /// The digest of the record.
    key: String,
    subject: String,
    event_type: String,
    /// In base64, because some databases store only UTF-8 text without NUL.
    record: String,
    attempts: u64,
    reason: String,
    created_at: Millis,
    now: Millis,
}

impl Inbox {
    /// Stores a given-up record as a dead letter. Returns when the dead letter is durable.
    pub(crate) async fn store_dead_letter(
        &self,
        pending: &PendingFollowUp,
        attempts: u64,
        reason: &str,
    ) -> Result<()> {
        let now = self.0.clock.now();
        let (subject, event_type, at) = match pending.decode() {
            Some(record) => (record.subject, record.event_type, record.timestamp),
            None => (pending.key.clone(), String::new(), now),
        };
        let new = NewDeadLetter {
            key: digest(pending).iter().map(|byte| format!("{byte:02x}")).collect(),
            subject: sanitize(&subject, MAX_NAME_LEN),
            event_type: sanitize(&event_type, MAX_NAME_LEN),
            record: STANDARD.encode(&pending.record),
            attempts,
            reason: sanitize(reason, MAX_REASON_LEN),
            created_at: at.min(now),
            now,
        };
        self.0.records.write(new, store_once).await?;
        metrics::counter!("inbox_dead_letters_total").increment(1);
        tracing::error!(subject, reason, attempts, "moved a follow-up record to the dead letters");
        Ok(())
    }
}

impl DeadLetters for Inbox {
    fn name(&self) -> &'static str {
        "follow-ups"
    }

    fn depth(&self) -> BoxFuture<'_, Result<u64>> {
        Box::pin(self.0.records.count(&store::DEAD_LETTER_COUNT))
    }

    fn list_after(&self, id: i64, limit: usize) -> BoxFuture<'_, Result<Vec<DeadLetter>>> {
        Box::pin(self.0.records.read((id, limit), read_after))
    }

    /// Makes the entries of dead letters, and removes these dead letters. One whose entries cannot be made stays, with
    /// the new reason.
    fn redrive(&self, ids: Vec<i64>) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async move {
            let Some(rooms) = &self.0.room_follow_ups else { return Ok(0) };
            let mut redriven = 0;
            for id in &ids {
                let Some(record) = self.0.records.read(*id, read_record).await? else { continue };
                let pending = PendingFollowUp { key: String::new(), record };
                match self.materialize_record(rooms, pending.decode()).await {
                    Ok(()) => redriven += u64::from(self.discard(*id).await?),
                    Err(MaterializeError::Outage(error)) => return Err(error),
                    Err(error) => {
                        let reason = sanitize(&error.to_string(), MAX_REASON_LEN);
                        self.0.records.write((*id, reason), record_failure).await?;
                    }
                }
            }
            tracing::info!(?ids, redriven, "redrove dead letters of the inbox");
            Ok(redriven)
        })
    }

    fn discard(&self, id: i64) -> BoxFuture<'_, Result<bool>> {
        Box::pin(self.0.records.write(id, remove))
    }
}

async fn read_after((after, limit): &(i64, usize), tx: &mut Transaction<'_>) -> Result<Vec<DeadLetter>> {
    let page = [("after", (*after).into()), ("limit", (*limit).into())];
    tx.rows(&store::DEAD_LETTERS, &page).await?.iter().map(read_letter).collect()
}

async fn read_record(id: &i64, tx: &mut Transaction<'_>) -> Result<Option<Vec<u8>>> {
    let row = tx.row(&store::DEAD_LETTER, &[("id", (*id).into())]).await?;
    row.map(|row| decode(row.text(0)?)).transpose()
}

async fn record_failure((id, reason): &(i64, String), tx: &mut Transaction<'_>) -> Result<u64> {
    let arguments = [("id", (*id).into()), ("reason", reason.as_str().into())];
    tx.run(&store::DEAD_LETTER_FAILED, &arguments).await
}

async fn remove(id: &i64, tx: &mut Transaction<'_>) -> Result<bool> {
    Ok(tx.run(&store::DEAD_LETTER_REMOVE, &[("id", (*id).into())]).await? > 0)
}

async fn store_once(new: &NewDeadLetter, tx: &mut Transaction<'_>) -> Result<()> {
    if record_once(tx, SCOPE, &new.key, new.now).await? {
        let arguments = [
            ("subject", new.subject.as_str().into()),
            ("type", new.event_type.as_str().into()),
            ("record", new.record.as_str().into()),
            ("attempts", new.attempts.into()),
            ("reason", new.reason.as_str().into()),
            ("created_at", new.created_at.into()),
        ];
        tx.run(&store::DEAD_LETTER_ADD, &arguments).await?;
    }
    Ok(())
}

/// Reads a row of the list. The key is the subject of the event, such as `room:42`; for a record that cannot be decoded
/// it is the record's key in the queue, and the kind is empty. Invalid UTF-8 in the payload is replaced.
fn read_letter(row: &Row) -> Result<DeadLetter> {
    let record = row.maybe_text(3)?.map(decode).transpose()?;
    Ok(DeadLetter {
        id: row.int(0)?,
        key: row.text(1)?.to_owned(),
        kind: row.text(2)?.to_owned(),
        payload: record.map(|record| String::from_utf8_lossy(&record).into_owned()),
        attempts: row.count(4)?,
        reason: row.text(5)?.to_owned(),
        created_at: row.count(6)?,
    })
}

fn decode(record: &str) -> Result<Vec<u8>> {
    STANDARD
        .decode(record)
        .map_err(|error| Error::Failed(format!("the record of a dead letter is not valid base64: {error}")))
}

/// The hash that identifies a record by its key in the queue and its bytes.
pub(crate) fn digest(pending: &PendingFollowUp) -> [u8; 32] {
    Sha256::new()
        .chain_update(&pending.key)
        .chain_update("\n")
        .chain_update(&pending.record)
        .finalize()
        .into()
}

/// Replaces control characters, which not every database stores, and cuts the text to `max_len` characters.
fn sanitize(text: &str, max_len: usize) -> String {
    let replace = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(replace).take(max_len).collect()
}
