//! How safe what the server keeps is: whether it syncs before it says that a change is kept.

use bongsu_kernel::findings::Findings;

use super::link::{Fault, Link};
use crate::{Dialect, Row};

const POSTGRES: &str = "SELECT current_setting('synchronous_commit'), current_setting('fsync')";
/// Numbers, as text: whether a switch is 1 or ON differs between servers otherwise.
const MYSQL: &str = "SELECT CAST(@@innodb_flush_log_at_trx_commit + 0 AS CHAR), CAST(@@log_bin + 0 AS CHAR), \
     CAST(@@sync_binlog + 0 AS CHAR)";

const LATE_COMMIT: &str = "database: synchronous_commit is off, so a PostgreSQL that is killed may lose the last changes that were acknowledged";
const NO_SYNC: &str =
    "database: fsync is off, so a PostgreSQL whose machine fails may lose or damage everything";
const LATE_FLUSH: &str = "database: innodb_flush_log_at_trx_commit is not 1, so a server that is killed may lose the last changes that were acknowledged";
const LATE_BINLOG: &str =
    "database: sync_binlog is not 1, so replicas of a server that is killed may lack changes that it has";

/// Looks at the settings, unless that was a moment ago.
pub(crate) async fn look(findings: &Findings, link: &mut Link) -> Result<(), Fault> {
    if findings.are_fresh() {
        return Ok(());
    }
    let dialect = link.dialect();
    let question = if dialect == Dialect::Postgres { POSTGRES } else { MYSQL };
    let rows = link.ask(question).await?;
    let settings = rows.first().map(texts).unwrap_or_default();
    let warnings = if dialect == Dialect::Postgres { postgres(&settings) } else { mysql(&settings) };
    findings.found(warnings);
    Ok(())
}

fn texts(row: &Row) -> Vec<&str> {
    (0..row.0.len()).map(|at| row.maybe_text(at).ok().flatten().unwrap_or_default()).collect()
}

fn postgres(settings: &[&str]) -> Vec<&'static str> {
    let unsafe_if = |at: usize, warning| (settings.get(at) == Some(&"off")).then_some(warning);
    [unsafe_if(0, LATE_COMMIT), unsafe_if(1, NO_SYNC)].into_iter().flatten().collect()
}

fn mysql(settings: &[&str]) -> Vec<&'static str> {
    let is = |at: usize, wanted: &str| settings.get(at) == Some(&wanted);
    let flush = (!is(0, "1")).then_some(LATE_FLUSH);
    let binlog = (is(1, "1") && !is(2, "1")).then_some(LATE_BINLOG);
    [flush, binlog].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_synced_is_safe() {
        assert!(postgres(&["on", "on"]).is_empty());
        assert!(postgres(&["remote_apply", "on"]).is_empty());
        assert_eq!(postgres(&["off", "off"]), [LATE_COMMIT, NO_SYNC]);
        assert!(mysql(&["1", "0", "0"]).is_empty(), "there is no binary log to sync");
        assert!(mysql(&["1", "1", "1"]).is_empty());
        assert_eq!(mysql(&["2", "1", "0"]), [LATE_FLUSH, LATE_BINLOG]);
    }
}
