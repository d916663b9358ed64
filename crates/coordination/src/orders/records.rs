//! Revocations in the records, beside the engine that carries orders: they still count while that engine is away, and
//! are written back to it when it has lost its data.

use bongsu_kernel::{Clock, Id, Millis};
use bongsu_sql::{self as sql, Query, Records, Transaction, query};

use super::REVOCATION_LIFE;
use crate::Error;

static REVOKE: Query = query!("revoke", mysql);
static REVOKED: Query = query!("revoked");
static FORGET: Query = query!("forget_revocations");
static AFTER: Query = query!("revocations_after");

/// All of them, for the test that every database understands them.
pub static QUERIES: &[&Query] = &[&REVOKE, &REVOKED, &FORGET, &AFTER];

/// See the module.
pub struct RevocationRecords {
    records: Records,
    clock: Clock,
}

struct Revocation {
    user: Id,
    issued_before: Millis,
    now: Millis,
}

/// Which revocations are asked for.
struct PageAfter {
    /// Empty: from the first user on.
    user: String,
    now: Millis,
    limit: usize,
}

impl RevocationRecords {
    pub fn new(records: Records, clock: Clock) -> Self {
        Self { records, clock }
    }

    pub(super) async fn store(&self, user: &Id, issued_before: Millis) -> Result<(), Error> {
        let revocation = Revocation { user: user.clone(), issued_before, now: self.clock.now() };
        Ok(self.records.write(revocation, store).await?)
    }

    pub(super) async fn find(&self, user: &Id) -> Result<Option<Millis>, Error> {
        let asked = Revocation { user: user.clone(), issued_before: 0, now: self.clock.now() };
        Ok(self.records.read(asked, find).await?)
    }

    /// The revocations of the next users, in the order of their ids.
    pub(super) async fn after(&self, user: Option<&Id>, limit: usize) -> Result<Vec<(Id, Millis)>, Error> {
        let user = user.map_or_else(String::new, |user| user.as_str().to_owned());
        let asked = PageAfter { user, now: self.clock.now(), limit };
        Ok(self.records.read(asked, page).await?)
    }
}

fn store<'t>(given: &'t Revocation, tx: &'t mut Transaction<'_>) -> sql::Boxed<'t, Result<(), sql::Error>> {
    Box::pin(async move {
        let life = u64::try_from(REVOCATION_LIFE.as_millis()).unwrap_or(u64::MAX);
        tx.run(&FORGET, &[("now", given.now.into())]).await?;
        let arguments = [
            ("user", (&given.user).into()),
            ("before", given.issued_before.into()),
            ("expires", given.now.saturating_add(life).into()),
        ];
        tx.run(&REVOKE, &arguments).await?;
        Ok(())
    })
}

fn find<'t>(
    given: &'t Revocation,
    tx: &'t mut Transaction<'_>,
) -> sql::Boxed<'t, Result<Option<Millis>, sql::Error>> {
    Box::pin(async move {
        let arguments = [("user", (&given.user).into()), ("now", given.now.into())];
        tx.row(&REVOKED, &arguments).await?.map(|row| row.count(0)).transpose()
    })
}

fn page<'t>(
    given: &'t PageAfter,
    tx: &'t mut Transaction<'_>,
) -> sql::Boxed<'t, Result<Vec<(Id, Millis)>, sql::Error>> {
    Box::pin(async move {
        let arguments =
            [("after", given.user.as_str().into()), ("now", given.now.into()), ("limit", given.limit.into())];
        let rows = tx.rows(&AFTER, &arguments).await?;
        rows.iter().map(|row| Ok((row.id(0)?, row.count(1)?))).collect()
    })
}
