//! PostgreSQL: how values go in and come out, and what its errors mean.

use sqlx::postgres::{PgArguments, PgConnection, PgDatabaseError, PgRow, PgSeverity, PgValueRef};
use sqlx::{AssertSqlSafe, Column, Executor, Row as _, TypeInfo, ValueRef, postgres::Postgres};

use super::link::{Fault, driver};
use super::numeric;
use crate::query::Written;
use crate::{Row, Value};

/// Of this database only; the number is the letters of our name.
pub(crate) const CLAIM_ALONE: &str = "SELECT pg_try_advisory_lock(108230733165429)::int::bigint";
pub(crate) const CLAIM_SHARED: &str = "SELECT pg_try_advisory_lock_shared(108230733165429)::int::bigint";
pub(crate) const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
pub(crate) const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";
/// One snapshot for all that is asked, which READ COMMITTED would not give. It costs a round trip before the first
/// question, and one after the answer was given.
pub(crate) const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// A backend that waits for a lock does not notice that its client has gone, and a hub that stands still would hold its
/// locks for as long.
const LIMITS: &str = "SET statement_timeout = 5000; SET idle_in_transaction_session_timeout = 10000";

pub(crate) async fn limit(link: &mut PgConnection) -> Result<(), Fault> {
    say(link, LIMITS).await
}

driver!(Postgres, PgConnection, PgArguments, PgRow);

#[expect(clippy::needless_pass_by_value, reason = "the other driver takes it apart")]
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
        ("NUMERIC", Some(bytes)) => Some(Value::Int(Some(numeric::whole(bytes)?))),
        ("TEXT" | "VARCHAR" | "CHAR" | "NAME" | "JSON" | "UNKNOWN", None) => Some(Value::Text(None)),
        ("TEXT" | "VARCHAR" | "CHAR" | "NAME" | "JSON" | "UNKNOWN", Some(bytes)) => {
            Some(Value::Text(Some(std::str::from_utf8(bytes).ok()?.to_owned())))
        }
        _ => None,
    }
}

/// The classes of <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
pub(crate) fn judge(error: &sqlx::Error) -> Fault {
    let Some(told) = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>())
    else {
        return Fault::of_driver(error);
    };
    let text = format!("{} ({})", told.message(), told.code());
    match told.code() {
        "40001" | "40P01" => Fault::Conflict(text),
        "53300" => Fault::Full(text),
        // No such user, wrong password, no such database, not allowed to connect.
        "28000" | "28P01" | "3D000" | "42501" if is_fatal(told) => Fault::Denied(text),
        // A statement that took too long; a lock that was waited for; a server that has become a standby, that is full,
        // or whose tables were changed under a prepared statement.
        "57014" | "55P03" | "25006" | "53100" | "53200" | "0A000" | "26000" => Fault::Broken(text),
        code if is_fatal(told) || code.starts_with("57P") || code.starts_with("08") => Fault::Broken(text),
        _ => Fault::Refused(text),
    }
}

fn is_fatal(error: &PgDatabaseError) -> bool {
    matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic)
}
