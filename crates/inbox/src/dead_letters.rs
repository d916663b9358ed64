//! Follow-up records of which no inbox entries can be made: kept byte for byte, with the reason, until an operator has them
//! tried again or drops them.
//!
//! A record becomes a dead letter before it leaves its queue. A hub that dies between the two finds the record again, and
//! it stays one dead letter.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bongsu_kernel::Millis;
use bongsu_live::log::Pending;
use bongsu_part::{Boxed, DeadLetter, DeadLetters};
use bongsu_sql::{Error, Row, Transaction, once};
use sha2::{Digest, Sha256};

use crate::derive::Failure;
use crate::{Inbox, store};

/// What became a dead letter is remembered under this scope as long as entries are kept.
pub(crate) const SCOPE: &str = "inbox-dead-letters";
/// Characters of a subject, a type and a reason that are kept.
const MAX_NAME_LEN: usize = 200;
const MAX_REASON_LEN: usize = 1_000;

struct NewLetter {
    key: String,
    subject: String,
    event_type: String,
    /// In base64: some databases keep only text that is UTF-8 and has no NUL.
    record: String,
    attempts: u64,
    reason: String,
    created_at: Millis,
    now: Millis,
}

impl Inbox {
    /// Keeps a record that is given up. Returns when that is durable.
    pub(crate) async fn keep_dead_letter(
        &self,
        pending: &Pending,
        attempts: u64,
        reason: &str,
    ) -> Result<(), Error> {
        let now = self.0.clock.now();
        let (subject, event_type, at) = match pending.read() {
            Some(record) => (record.subject, record.event_type, record.timestamp),
            None => (pending.key.clone(), String::new(), now),
        };
        let new = NewLetter {
            key: digest(pending).iter().map(|byte| format!("{byte:02x}")).collect(),
            subject: plain(&subject, MAX_NAME_LEN),
            event_type: plain(&event_type, MAX_NAME_LEN),
            record: STANDARD.encode(&pending.record),
            attempts,
            reason: plain(reason, MAX_REASON_LEN),
            created_at: at.min(now),
            now,
        };
        self.0.records.write(new, keep).await?;
        metrics::counter!("inbox_dead_letters_total").increment(1);
        tracing::error!(subject, reason, attempts, "moved a follow-up record to the dead letters");
        Ok(())
    }
}

impl DeadLetters for Inbox {
    fn name(&self) -> &'static str {
        "follow-ups"
    }

    fn depth(&self) -> Boxed<'_, Result<u64, Error>> {
        Box::pin(self.0.records.count(&store::DEAD_LETTER_COUNT))
    }

    fn after(&self, id: i64, most: usize) -> Boxed<'_, Result<Vec<DeadLetter>, Error>> {
        Box::pin(self.0.records.read((id, most), read_after))
    }

    /// Makes the entries of dead letters after all. A letter of which none can be made stays, with the new reason.
    fn redrive(&self, ids: Vec<i64>) -> Boxed<'_, Result<u64, Error>> {
        Box::pin(async move {
            let Some(rooms) = &self.0.rooms else { return Ok(0) };
            let mut redriven = 0;
            for id in &ids {
                let Some(record) = self.0.records.read(*id, read_record).await? else { continue };
                let pending = Pending { key: String::new(), record };
                match self.derive_one(rooms, pending.read()).await {
                    Ok(()) => redriven += u64::from(self.discard(*id).await?),
                    Err(Failure::Outage(error)) => return Err(error),
                    Err(failure) => {
                        let reason = plain(&failure.to_string(), MAX_REASON_LEN);
                        self.0.records.write((*id, reason), note_failure).await?;
                    }
                }
            }
            tracing::info!(?ids, redriven, "tried dead letters of the inbox again");
            Ok(redriven)
        })
    }

    fn discard(&self, id: i64) -> Boxed<'_, Result<bool, Error>> {
        Box::pin(self.0.records.write(id, remove))
    }
}

async fn read_after(
    (after, limit): &(i64, usize),
    tx: &mut Transaction<'_>,
) -> Result<Vec<DeadLetter>, Error> {
    let page = [("after", (*after).into()), ("limit", (*limit).into())];
    tx.rows(&store::DEAD_LETTERS, &page).await?.iter().map(read_letter).collect()
}

async fn read_record(id: &i64, tx: &mut Transaction<'_>) -> Result<Option<Vec<u8>>, Error> {
    let row = tx.row(&store::DEAD_LETTER, &[("id", (*id).into())]).await?;
    row.map(|row| decode(row.text(0)?)).transpose()
}

async fn note_failure((id, reason): &(i64, String), tx: &mut Transaction<'_>) -> Result<u64, Error> {
    let noted = [("id", (*id).into()), ("reason", reason.as_str().into())];
    tx.run(&store::DEAD_LETTER_FAILED, &noted).await
}

async fn remove(id: &i64, tx: &mut Transaction<'_>) -> Result<bool, Error> {
    Ok(tx.run(&store::DEAD_LETTER_REMOVE, &[("id", (*id).into())]).await? > 0)
}

async fn keep(new: &NewLetter, tx: &mut Transaction<'_>) -> Result<(), Error> {
    if once(tx, SCOPE, &new.key, new.now).await? {
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

/// Its key is the subject of the event, such as `room:42`, and how its keeper found the record when that is not readable; then
/// its kind is empty. What is no UTF-8 is replaced.
fn read_letter(row: &Row) -> Result<DeadLetter, Error> {
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

fn decode(record: &str) -> Result<Vec<u8>, Error> {
    STANDARD.decode(record).map_err(|error| Error::Failed(format!("a dead letter is not readable: {error}")))
}

/// Tells a record from all others.
pub(crate) fn digest(pending: &Pending) -> [u8; 32] {
    Sha256::new()
        .chain_update(&pending.key)
        .chain_update("\n")
        .chain_update(&pending.record)
        .finalize()
        .into()
}

/// Text that every database takes.
fn plain(text: &str, max_len: usize) -> String {
    let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(plain).take(max_len).collect()
}
