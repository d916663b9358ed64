//! MariaDB and MySQL: how values are bound and read, and how errors are classified.

use sqlx::mysql::{MySql, MySqlArguments, MySqlConnection, MySqlDatabaseError, MySqlRow, MySqlValueRef};
use sqlx::{AssertSqlSafe, Column, Decode, Executor, Row as _, TypeInfo, ValueRef};

use super::connection::{ServerError, driver};
use super::numeric;
use crate::query::RenderedQuery;
use crate::{Row, Value};

/// Lock names are shared by all databases of a server and limited to 64 characters, so they contain a hash of the
/// database name.
pub(crate) const TRY_LOCK_EXCLUSIVE: &str = "SELECT GET_LOCK(CONCAT('bongsu:', MD5(DATABASE())), 0)";
/// The servers have no shared named locks. This only checks that no exclusive lock is held; it does not prevent a later
/// one.
pub(crate) const TRY_LOCK_SHARED: &str = "SELECT IS_FREE_LOCK(CONCAT('bongsu:', MD5(DATABASE())))";
pub(crate) const TIME: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000";
/// [`set_limits`] sets READ COMMITTED for the whole connection.
pub(crate) const BEGIN_WRITE: &str = "START TRANSACTION READ WRITE";
/// One snapshot for all queries, which needs REPEATABLE READ: at READ COMMITTED the server ignores WITH CONSISTENT
/// SNAPSHOT. Both statements are sent together. A read transaction costs a round trip before its first query, and one
/// after its result.
pub(crate) const BEGIN_READ: &str = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; \
     START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";

const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
/// Limits of 5 s for a statement, 4 s for a lock and 10 s for an idle transaction, because a server goes on
/// working for a client that has disconnected, and keeps the locks of a client that hangs. MySQL has the
/// statement limit only for SELECT, and no limit for idle transactions.
const MARIADB_LIMITS: &str =
    "SET SESSION max_statement_time = 5, innodb_lock_wait_timeout = 4, idle_transaction_timeout = 10";
const MYSQL_LIMITS: &str = "SET SESSION max_execution_time = 5000, innodb_lock_wait_timeout = 4";

pub(crate) async fn set_limits(connection: &mut MySqlConnection) -> Result<(), ServerError> {
    execute_raw(connection, ISOLATION).await?;
    match execute_raw(connection, MARIADB_LIMITS).await {
        Err(ServerError::Rejected(_)) => execute_raw(connection, MYSQL_LIMITS).await,
        result => result,
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
        "DECIMAL" => int(text(raw).and_then(numeric::parse_text)),
        "NULL" => Some(Value::Text(None)),
        // Text with a binary collation is reported as a binary type.
        "CHAR" | "VARCHAR" | "TINYTEXT" | "TEXT" | "MEDIUMTEXT" | "LONGTEXT" | "JSON" | "ENUM" | "BINARY"
        | "VARBINARY" | "TINYBLOB" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" => {
            let text = text(raw).map(str::to_owned);
            (is_null || text.is_some()).then_some(Value::Text(text))
        }
        _ => None,
    }
}

/// Classifies by the error numbers of <https://mariadb.com/kb/en/mariadb-error-codes/>. MySQL uses the same numbers for
/// the errors that both have.
pub(crate) fn classify_error(error: &sqlx::Error) -> ServerError {
    let Some(server_error) =
        error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>())
    else {
        return ServerError::from_driver(error);
    };
    let text = format!("{} ({})", server_error.message(), server_error.number());
    match server_error.number() {
        // Deadlock, timeout of a lock.
        1213 | 1205 => ServerError::Conflict(text),
        // Too many connections, in total or of this user.
        1040 | 1203 | 1226 => ServerError::TooManyConnections(text),
        // Wrong user or password, no permission, unknown database.
        1044 | 1045 | 1049 | 1130 | 1698 => ServerError::AccessDenied(text),
        // Shutdown, interrupted, killed, timeout of a statement, read-only, disk or table full, Galera node not ready,
        // network.
        1053 | 1317 | 1927 | 1969 | 3024 | 4031 | 1290 | 1836 | 1021 | 1114 | 1047 | 1152 | 1158..=1161 => {
            ServerError::Broken(text)
        }
        _ => ServerError::Rejected(text),
    }
}
