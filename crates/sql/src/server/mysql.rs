//! MariaDB and MySQL: how values go in and come out, and what their errors mean.

use sqlx::mysql::{MySql, MySqlArguments, MySqlConnection, MySqlDatabaseError, MySqlRow, MySqlValueRef};
use sqlx::{AssertSqlSafe, Column, Decode, Executor, Row as _, TypeInfo, ValueRef};

use super::link::{Fault, driver};
use super::numeric;
use crate::query::Written;
use crate::{Row, Value};

/// Such names are the whole server's, and 64 characters long at most.
pub(crate) const CLAIM_ALONE: &str = "SELECT GET_LOCK(CONCAT('bongsu:', MD5(DATABASE())), 0)";
/// Nothing that several can have: who is there already is seen, who comes alone later is not kept out.
pub(crate) const CLAIM_SHARED: &str = "SELECT IS_FREE_LOCK(CONCAT('bongsu:', MD5(DATABASE())))";
pub(crate) const TIME: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000";
/// Writing is READ COMMITTED for the whole connection, see [`limit`].
pub(crate) const BEGIN_WRITE: &str = "START TRANSACTION READ WRITE";
/// One snapshot for all that is asked; at READ COMMITTED the server would pass over that word. Both statements travel
/// together: it costs a round trip before the first question, and one after the answer was given.
pub(crate) const BEGIN_READ: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
     START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";

const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
/// A server works on for a client that has gone, and a hub that stands still would hold its locks. Each server has words
/// of its own for that.
const MARIADB_LIMITS: &str =
    "SET SESSION max_statement_time = 5, innodb_lock_wait_timeout = 4, idle_transaction_timeout = 10";
const MYSQL_LIMITS: &str = "SET SESSION max_execution_time = 5000, innodb_lock_wait_timeout = 4";

pub(crate) async fn limit(link: &mut MySqlConnection) -> Result<(), Fault> {
    say(link, ISOLATION).await?;
    match say(link, MARIADB_LIMITS).await {
        Err(Fault::Refused(_)) => say(link, MYSQL_LIMITS).await,
        done => done,
    }
}

driver!(MySql, MySqlConnection, MySqlArguments, MySqlRow);

fn value(kind: &str, raw: MySqlValueRef<'_>) -> Option<Value> {
    let is_null = raw.is_null();
    let int = |number: Option<i64>| (is_null || number.is_some()).then_some(Value::Int(number));
    let text = |raw| <&str as Decode<'_, MySql>>::decode(raw).ok();
    match kind {
        "BOOLEAN" | "TINYINT" | "SMALLINT" | "MEDIUMINT" | "INT" | "BIGINT" => {
            int(<i64 as Decode<'_, MySql>>::decode(raw).ok())
        }
        unsigned if unsigned.ends_with(" UNSIGNED") => {
            int(<u64 as Decode<'_, MySql>>::decode(raw).ok().and_then(|number| number.try_into().ok()))
        }
        "DECIMAL" => int(text(raw).and_then(numeric::whole_of_text)),
        "NULL" => Some(Value::Text(None)),
        // Text that is compared by its bytes is named like bytes.
        "CHAR" | "VARCHAR" | "TINYTEXT" | "TEXT" | "MEDIUMTEXT" | "LONGTEXT" | "JSON" | "ENUM" | "BINARY"
        | "VARBINARY" | "TINYBLOB" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" => {
            let text = text(raw).map(str::to_owned);
            (is_null || text.is_some()).then_some(Value::Text(text))
        }
        _ => None,
    }
}

/// The numbers of <https://mariadb.com/kb/en/mariadb-error-codes/>, which MySQL shares where both have them.
pub(crate) fn judge(error: &sqlx::Error) -> Fault {
    let Some(told) =
        error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>())
    else {
        return Fault::of_driver(error);
    };
    let text = format!("{} ({})", told.message(), told.number());
    match told.number() {
        // A deadlock, a lock that was waited for.
        1213 | 1205 => Fault::Conflict(text),
        // Too many connections, of all or of this user.
        1040 | 1203 | 1226 => Fault::Full(text),
        // Wrong user or password, not allowed, no such database.
        1044 | 1045 | 1049 | 1130 | 1698 => Fault::Denied(text),
        // Shutting down, interrupted, killed, too slow, read only, full, not ready (Galera).
        1053 | 1317 | 1927 | 1969 | 3024 | 4031 | 1290 | 1836 | 1021 | 1114 | 1047 | 1152 | 1158..=1161 => {
            Fault::Broken(text)
        }
        _ => Fault::Refused(text),
    }
}
