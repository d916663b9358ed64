//! Follow-up records of which no inbox entries can be made: kept byte for byte, with the reason, until an operator has them
//! tried again or drops them.
//!
//! A record becomes a dead letter before it leaves its queue. A hub that dies between the two finds the record again, and
//! it stays one dead letter.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bongsu_kernel::Millis;
use bongsu_live::log::Pending;
use bongsu_part::DeadLetter;
use bongsu_sql::{Boxed, Error, Row, Transaction, once};
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
        let now = self.clock().now();
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
        self.records().write(new, keep).await?;
        metrics::counter!("inbox_dead_letters_total").increment(1);
        tracing::error!(subject, reason, attempts, "moved a follow-up record to the dead letters");
        Ok(())
    }

    pub async fn dead_letter_count(&self) -> Result<u64, Error> {
        fn count<'t>((): &'t (), tx: &'t mut Transaction<'_>) -> Boxed<'t, Result<u64, Error>> {
            Box::pin(async move {
                let counted = tx.row(&store::DEAD_LETTER_COUNT, &[]).await?;
                counted.map_or(Ok(0), |row| row.count(0))
            })
        }
        self.records().read((), count).await
    }

    /// At most so many after an id, by their ids.
    pub async fn dead_letters(&self, after: i64, limit: usize) -> Result<Vec<DeadLetter>, Error> {
        fn read<'t>(
            (after, limit): &'t (i64, usize),
            tx: &'t mut Transaction<'_>,
        ) -> Boxed<'t, Result<Vec<DeadLetter>, Error>> {
            Box::pin(async move {
                let page = [("after", (*after).into()), ("limit", (*limit).into())];
                tx.rows(&store::DEAD_LETTERS, &page).await?.iter().map(read_letter).collect()
            })
        }
        self.records().read((after, limit), read).await
    }

    /// Makes the entries of dead letters after all, and says of how many. The others stay, with the new reason.
    pub async fn redrive_dead_letters(&self, ids: &[i64]) -> Result<u64, Error> {
        fn read<'t>(id: &'t i64, tx: &'t mut Transaction<'_>) -> Boxed<'t, Result<Option<Vec<u8>>, Error>> {
            Box::pin(async move {
                let row = tx.row(&store::DEAD_LETTER, &[("id", (*id).into())]).await?;
                row.map(|row| decode(row.text(0)?)).transpose()
            })
        }
        fn note<'t>(
            (id, reason): &'t (i64, String),
            tx: &'t mut Transaction<'_>,
        ) -> Boxed<'t, Result<u64, Error>> {
            Box::pin(async move {
                let noted = [("id", (*id).into()), ("reason", reason.as_str().into())];
                tx.run(&store::DEAD_LETTER_FAILED, &noted).await
            })
        }
        let Some(rooms) = self.rooms() else { return Ok(0) };
        let mut redriven = 0;
        for id in ids {
            let Some(record) = self.records().read(*id, read).await? else { continue };
            let pending = Pending { key: String::new(), record };
            match self.derive_one(rooms, pending.read()).await {
                Ok(()) => redriven += u64::from(self.drop_dead_letter(*id).await?),
                Err(Failure::Outage(error)) => return Err(error),
                Err(failure) => {
                    let reason = plain(&failure.to_string(), MAX_REASON_LEN);
                    self.records().write((*id, reason), note).await?;
                }
            }
        }
        tracing::info!(?ids, redriven, "tried dead letters of the inbox again");
        Ok(redriven)
    }

    /// Forgets a dead letter; false when there is none of this id.
    pub async fn drop_dead_letter(&self, id: i64) -> Result<bool, Error> {
        fn remove<'t>(id: &'t i64, tx: &'t mut Transaction<'_>) -> Boxed<'t, Result<bool, Error>> {
            Box::pin(
                async move { Ok(tx.run(&store::DEAD_LETTER_REMOVE, &[("id", (*id).into())]).await? > 0) },
            )
        }
        self.records().write(id, remove).await
    }
}

fn keep<'t>(new: &'t NewLetter, tx: &'t mut Transaction<'_>) -> Boxed<'t, Result<(), Error>> {
    Box::pin(async move {
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
    })
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
