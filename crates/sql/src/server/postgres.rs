//! PostgreSQL: how values are bound and read, and how errors are classified.

use sqlx::postgres::{PgArguments, PgConnection, PgDatabaseError, PgRow, PgSeverity, PgValueRef};
use sqlx::{AssertSqlSafe, Column, Executor, Row as _, TypeInfo, ValueRef, postgres::Postgres};

use super::connection::{ServerError, driver};
use super::numeric;
use crate::query::RenderedQuery;
use crate::{Row, Value};

/// Advisory locks belong to one database. The number is the ASCII code of `bongsu`.
pub(crate) const TRY_LOCK_EXCLUSIVE: &str = "SELECT pg_try_advisory_lock(108230733165429)::int::bigint";
pub(crate) const TRY_LOCK_SHARED: &str = "SELECT pg_try_advisory_lock_shared(108230733165429)::int::bigint";
pub(crate) const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
pub(crate) const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
/// One snapshot for all queries, which READ COMMITTED does not give. Costs a round trip before the first query, and one
/// after the result.
pub(crate) const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// Limits of 5 s for a statement and 10 s for an idle transaction, because a backend that waits for a lock does not
/// notice that its client has disconnected, and a hub that hangs would keep its locks.
const LIMITS: &str = "SET statement_timeout = 5000; SET idle_in_transaction_session_timeout = 10000";

pub(crate) async fn set_limits(connection: &mut PgConnection) -> Result<(), ServerError> {
    execute_raw(connection, LIMITS).await
}

driver!(Postgres, PgConnection, PgArguments, PgRow);

#[expect(
    clippy::needless_pass_by_value,
    reason = "the same signature as in `mysql`, which consumes the value"
)]
fn value(kind: &str, raw: PgValueRef<'_>) -> Option<Value> {
    let bytes = if raw.is_null() { None } else { Some(raw.as_bytes().ok()?) };
    let number = |bytes: &[u8]| match *bytes {
        [a] => Some(i64::from(a)),
        [a, b] => Some(i64::from(i16::from_be_bytes([a, b]))),
        [a, b, c, d] => Some(i64::from(i32::from_be_bytes([a, b, c, d]))),
        [a, b, c, d, e, f, g, h] => Some(i64::from_be_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    };
    match (kind, bytes) {
        ("INT8" | "INT4" | "INT2" | "BOOL" | "NUMERIC", None) => Some(Value::Int(None)),
        ("INT8" | "INT4" | "INT2" | "BOOL", Some(bytes)) => Some(Value::Int(Some(number(bytes)?))),
        ("NUMERIC", Some(bytes)) => Some(Value::Int(Some(numeric::parse_binary(bytes)?))),
        ("TEXT" | "VARCHAR" | "CHAR" | "NAME" | "JSON" | "UNKNOWN", None) => Some(Value::Text(None)),
        ("TEXT" | "VARCHAR" | "CHAR" | "NAME" | "JSON" | "UNKNOWN", Some(bytes)) => {
            Some(Value::Text(Some(std::str::from_utf8(bytes).ok()?.to_owned())))
        }
        _ => None,
    }
}

/// Classifies by the error codes of <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
pub(crate) fn classify_error(error: &sqlx::Error) -> ServerError {
    let Some(server_error) =
        error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>())
    else {
        return ServerError::from_driver(error);
    };
    let text = format!("{} ({})", server_error.message(), server_error.code());
    match server_error.code() {
        "40001" | "40P01" => ServerError::Conflict(text),
        "53300" => ServerError::TooManyConnections(text),
        // Unknown user, wrong password, unknown database, no permission to connect.
        "28000" | "28P01" | "3D000" | "42501" if is_fatal(server_error) => ServerError::AccessDenied(text),
        // Timeout of a statement or of a lock, a server that became a standby, no disk space or memory, a prepared
        // statement that is invalid since its tables were changed.
        "57014" | "55P03" | "25006" | "53100" | "53200" | "0A000" | "26000" => ServerError::Broken(text),
        code if is_fatal(server_error) || code.starts_with("57P") || code.starts_with("08") => {
            ServerError::Broken(text)
        }
        _ => ServerError::Rejected(text),
    }
}

fn is_fatal(error: &PgDatabaseError) -> bool {
    matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic)
}
