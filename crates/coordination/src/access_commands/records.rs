//! Revocations in the records, beside the engine that carries access commands. They still apply while that engine is
//! unavailable, and are written back to it when it has lost its data.

use bongsu_kernel::{Clock, Id, Millis};
use bongsu_sql::{self as sql, Query, Records, Transaction, query};

use super::REVOCATION_RETENTION;
use crate::Error;

static REVOKE: Query = query!("revoke", mysql);
static REVOKED: Query = query!("revoked");
static FORGET: Query = query!("forget_revocations");
static AFTER: Query = query!("revocations_after");

/// Every query of this crate, for the test that prepares all queries on every database.
pub static QUERIES: &[&Query] = &[&REVOKE, &REVOKED, &FORGET, &AFTER];

/// The revocations table of the records.
pub struct RevocationRecords {
    records: Records,
    clock: Clock,
}

impl RevocationRecords {
    pub fn new(records: Records, clock: Clock) -> Self {
        Self { records, clock }
    }

    pub(super) async fn store(&self, user: &Id, issued_before: Millis) -> Result<(), Error> {
        Ok(self.records.write((user.clone(), issued_before, self.clock.now()), revoke).await?)
    }

    pub(super) async fn find(&self, user: &Id) -> Result<Option<Millis>, Error> {
        Ok(self.records.read((user.clone(), self.clock.now()), find_revocation).await?)
    }

    /// The next revocations after `user`, ordered by user id; the first ones if `user` is None.
    pub(super) async fn after(&self, user: Option<&Id>, limit: usize) -> Result<Vec<(Id, Millis)>, Error> {
        let after = user.map_or_else(String::new, |user| user.as_str().to_owned());
        Ok(self.records.read((after, self.clock.now(), limit), revocations_after).await?)
    }
}

/// Deletes expired revocations and stores a new one.
async fn revoke(
    (user, before, now): &(Id, Millis, Millis),
    tx: &mut Transaction<'_>,
) -> Result<(), sql::Error> {
    let retention = u64::try_from(REVOCATION_RETENTION.as_millis()).unwrap_or(u64::MAX);
    tx.run(&FORGET, &[("now", (*now).into())]).await?;
    let expires = now.saturating_add(retention);
    let arguments = [("user", user.into()), ("before", (*before).into()), ("expires", expires.into())];
    tx.run(&REVOKE, &arguments).await?;
    Ok(())
}

async fn find_revocation(
    (user, now): &(Id, Millis),
    tx: &mut Transaction<'_>,
) -> Result<Option<Millis>, sql::Error> {
    let row = tx.row(&REVOKED, &[("user", user.into()), ("now", (*now).into())]).await?;
    row.map(|row| row.count(0)).transpose()
}

async fn revocations_after(
    (after, now, limit): &(String, Millis, usize),
    tx: &mut Transaction<'_>,
) -> Result<Vec<(Id, Millis)>, sql::Error> {
    let arguments = [("after", after.as_str().into()), ("now", (*now).into()), ("limit", (*limit).into())];
    let rows = tx.rows(&AFTER, &arguments).await?;
    rows.iter().map(|row| Ok((row.id(0)?, row.count(1)?))).collect()
}
