//! What was done once is not done again: the only de-duplication in SQL.

use bongsu_kernel::Millis;

use crate::{Error, Query, Records, Transaction, query};

/// Characters of a key at most, all ASCII. A scope has 64 at most.
pub const MOST_KEY: usize = 192;
const MOST_SCOPE: usize = 64;

static ONCE: Query = query!("once", mysql);
static FORGET_ONCE: Query = query!("forget_once", mysql);

pub(crate) static QUERIES: &[&Query] = &[&ONCE, &FORGET_ONCE];

/// Whether this is the first time, in this scope, for this key. It counts with the transaction: undone, it was not.
///
/// Of several transactions with the same key at once one goes on; the others wait until it is known how that one ends,
/// and are told "not the first" only after it was kept.
pub async fn once(tx: &mut Transaction<'_>, scope: &str, key: &str, now: Millis) -> Result<bool, Error> {
    // Some servers would rather shorten or change what does not fit.
    let fits = |text: &str, most| text.len() <= most && text.is_ascii() && !text.contains('\0');
    if !fits(scope, MOST_SCOPE) || !fits(key, MOST_KEY) {
        return Err(Error::Failed(format!("a key of {scope} is too long or not ASCII")));
    }
    let arguments = [("scope", scope.into()), ("key", key.into()), ("at", now.into())];
    Ok(tx.run(&ONCE, &arguments).await? == 1)
}

/// Forgets what was done before a time, `at_most` of it: a small step, to be taken again while it removes as many. Says
/// how many it removed.
pub async fn forget_before(
    records: &Records,
    scope: &str,
    before: Millis,
    at_most: usize,
) -> Result<u64, Error> {
    async fn forget(
        (scope, before, at_most): &(String, Millis, usize),
        tx: &mut Transaction<'_>,
    ) -> Result<u64, Error> {
        let arguments =
            [("scope", scope.as_str().into()), ("before", (*before).into()), ("most", (*at_most).into())];
        tx.run(&FORGET_ONCE, &arguments).await
    }
    records.write((scope.to_owned(), before, at_most), forget).await
}
