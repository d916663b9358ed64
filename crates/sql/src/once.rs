//! Deduplication by keys in the table `bongsu_once`: the key of an operation is recorded in the transaction of the
//! operation.

use bongsu_kernel::Millis;

use crate::{Error, Query, Records, Result, Transaction, query};

/// The maximum length of a key, in ASCII characters.
pub const MAX_ONCE_KEY_LEN: usize = 192;
/// The maximum length of a scope, in ASCII characters.
const MAX_SCOPE_LEN: usize = 64;

static ONCE: Query = query!("once", mysql);
static DELETE_ONCE: Query = query!("forget_once", mysql);

pub(crate) static QUERIES: &[&Query] = &[&ONCE, &DELETE_ONCE];

/// Records a key in a scope, and returns whether the key is new. A rollback of the transaction removes the key again.
///
/// Of several concurrent transactions with the same key, one continues. The others wait until it ends, and get false
/// only if it was committed.
pub async fn record_once(tx: &mut Transaction<'_>, scope: &str, key: &str, now: Millis) -> Result<bool> {
    // Checked here, because some servers truncate or convert a value that does not fit, without an error.
    let fits = |text: &str, max_len| text.len() <= max_len && text.is_ascii() && !text.contains('\0');
    if !fits(scope, MAX_SCOPE_LEN) || !fits(key, MAX_ONCE_KEY_LEN) {
        return Err(Error::Failed(format!("a key of the scope {scope} is too long or not ASCII")));
    }
    let arguments = [("scope", scope.into()), ("key", key.into()), ("at", now.into())];
    Ok(tx.run(&ONCE, &arguments).await? == 1)
}

/// Deletes up to `limit` keys that were recorded before a time, the oldest first, and returns how many it deleted. To
/// delete all of them, callers repeat the call until it deletes fewer than `limit`.
pub async fn delete_once_keys_before(
    records: &Records,
    scope: &str,
    before: Millis,
    limit: usize,
) -> Result<u64> {
    async fn delete(
        (scope, before, limit): &(String, Millis, usize),
        tx: &mut Transaction<'_>,
    ) -> Result<u64> {
        let arguments =
            [("scope", scope.as_str().into()), ("before", (*before).into()), ("limit", (*limit).into())];
        tx.run(&DELETE_ONCE, &arguments).await
    }
    records.write((scope.to_owned(), before, limit), delete).await
}
