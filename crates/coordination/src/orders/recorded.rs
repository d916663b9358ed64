//! Orders that are also in the records, for when the engine that carries them is away: what needs only the records goes on,
//! and whoever was revoked stays out all the same.

use std::sync::Arc;

use bongsu_kernel::{Clock, Id, Millis};
use bongsu_sql::{self as sql, Query, Records, Transaction, query};

use super::{Order, Orders, REVOCATION_LIFE};
use crate::{Boxed, Error};

static REVOKE: Query = query!("revoke", mysql);
static REVOKED: Query = query!("revoked");
static FORGET: Query = query!("forget_revocations");

/// All of them, for the test that every database understands them.
pub static QUERIES: &[&Query] = &[&REVOKE, &REVOKED, &FORGET];

/// See the module.
pub struct RecordedOrders {
    orders: Arc<dyn Orders>,
    records: Records,
    clock: Clock,
}

struct Revocation {
    user: Id,
    before: Millis,
    now: Millis,
}

impl RecordedOrders {
    pub fn new(orders: Arc<dyn Orders>, records: Records, clock: Clock) -> Self {
        Self { orders, records, clock }
    }
}

impl Orders for RecordedOrders {
    /// First in the records: an order that was given is in both, and one that was not may be given again.
    fn give(&self, order: Order) -> Boxed<'_, Result<(), Error>> {
        Box::pin(async move {
            if let Order::Revoke { user, issued_before } = &order {
                let now = self.clock.now();
                let revocation = Revocation { user: user.clone(), before: *issued_before, now };
                self.records.write(revocation, revoke).await?;
            }
            self.orders.give(order).await
        })
    }

    fn is_current(&self) -> bool {
        self.orders.is_current()
    }

    fn catch_up(&self) -> Boxed<'_, Result<(), Error>> {
        self.orders.catch_up()
    }

    fn revoked_before<'a>(&'a self, user: &'a Id) -> Boxed<'a, Result<Option<Millis>, Error>> {
        Box::pin(async move {
            match self.orders.revoked_before(user).await {
                Ok(before) => Ok(before),
                Err(_) => {
                    let asked = Revocation { user: user.clone(), before: 0, now: self.clock.now() };
                    Ok(self.records.read(asked, revoked).await?)
                }
            }
        })
    }
}

fn revoke<'t>(given: &'t Revocation, tx: &'t mut Transaction<'_>) -> sql::Boxed<'t, Result<(), sql::Error>> {
    Box::pin(async move {
        let life = u64::try_from(REVOCATION_LIFE.as_millis()).unwrap_or(u64::MAX);
        tx.run(&FORGET, &[("now", given.now.into())]).await?;
        let arguments = [
            ("user", (&given.user).into()),
            ("before", given.before.into()),
            ("expires", given.now.saturating_add(life).into()),
        ];
        tx.run(&REVOKE, &arguments).await?;
        Ok(())
    })
}

fn revoked<'t>(
    given: &'t Revocation,
    tx: &'t mut Transaction<'_>,
) -> sql::Boxed<'t, Result<Option<Millis>, sql::Error>> {
    Box::pin(async move {
        let arguments = [("user", (&given.user).into()), ("now", given.now.into())];
        tx.row(&REVOKED, &arguments).await?.map(|row| row.count(0)).transpose()
    })
}
