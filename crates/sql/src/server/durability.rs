//! Checks whether the server syncs a change to its disk before it acknowledges the COMMIT.

use bongsu_kernel::findings::Findings;

use super::connection::{ServerConnection, ServerError};
use crate::{Dialect, Row};

const POSTGRES_SETTINGS: &str = "SELECT current_setting('synchronous_commit'), current_setting('fsync')";
/// As numbers in text form, because some servers show a switch as 1 and others as ON.
const MYSQL_SETTINGS: &str = "SELECT CAST(@@innodb_flush_log_at_trx_commit + 0 AS CHAR), CAST(@@log_bin + 0 AS CHAR), \
     CAST(@@sync_binlog + 0 AS CHAR)";

const ASYNC_COMMIT: &str = "database: synchronous_commit is off, so a PostgreSQL that is killed may lose the last changes that were acknowledged";
const FSYNC_OFF: &str =
    "database: fsync is off, so a PostgreSQL whose machine fails may lose or damage everything";
const ASYNC_FLUSH: &str = "database: innodb_flush_log_at_trx_commit is not 1, so a server that is killed may lose the last changes that were acknowledged";
const ASYNC_BINLOG: &str =
    "database: sync_binlog is not 1, so replicas of a server that is killed may lack changes that it has";

/// Reads the settings, unless the findings are fresh.
pub(crate) async fn check(findings: &Findings, connection: &mut ServerConnection) -> Result<(), ServerError> {
    if findings.are_fresh() {
        return Ok(());
    }
    let dialect = connection.dialect();
    let query = if dialect == Dialect::Postgres { POSTGRES_SETTINGS } else { MYSQL_SETTINGS };
    let rows = connection.query_raw(query).await?;
    let settings = rows.first().map(texts).unwrap_or_default();
    let warnings =
        if dialect == Dialect::Postgres { postgres_warnings(&settings) } else { mysql_warnings(&settings) };
    findings.update(warnings);
    Ok(())
}

fn texts(row: &Row) -> Vec<&str> {
    (0..row.0.len()).map(|column| row.maybe_text(column).ok().flatten().unwrap_or_default()).collect()
}

fn postgres_warnings(settings: &[&str]) -> Vec<&'static str> {
    let unsafe_if = |index: usize, warning| (settings.get(index) == Some(&"off")).then_some(warning);
    [unsafe_if(0, ASYNC_COMMIT), unsafe_if(1, FSYNC_OFF)].into_iter().flatten().collect()
}

fn mysql_warnings(settings: &[&str]) -> Vec<&'static str> {
    let is = |index: usize, value: &str| settings.get(index) == Some(&value);
    let flush = (!is(0, "1")).then_some(ASYNC_FLUSH);
    let binlog = (is(1, "1") && !is(2, "1")).then_some(ASYNC_BINLOG);
    [flush, binlog].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_do_not_sync_are_warned_about() {
        assert!(postgres_warnings(&["on", "on"]).is_empty());
        assert!(postgres_warnings(&["remote_apply", "on"]).is_empty());
        assert_eq!(postgres_warnings(&["off", "off"]), [ASYNC_COMMIT, FSYNC_OFF]);
        assert!(mysql_warnings(&["1", "0", "0"]).is_empty(), "there is no binary log to sync");
        assert!(mysql_warnings(&["1", "1", "1"]).is_empty());
        assert_eq!(mysql_warnings(&["2", "1", "0"]), [ASYNC_FLUSH, ASYNC_BINLOG]);
    }
}
