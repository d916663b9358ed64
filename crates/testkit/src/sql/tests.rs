//! Tests of starting, killing and pausing database servers.

use super::*;
use crate::tier;

async fn check_that_commits_survive_a_kill(flavour: Flavour) {
    if !tier::needs_engine(flavour.name()) {
        return;
    }
    let server = Server::start(flavour).await;
    let url = server.database();
    let name = Server::database_name(&url).to_owned();
    server.execute(&name, "CREATE TABLE t (n INT)");
    server.execute(&name, "INSERT INTO t VALUES (1), (2)");
    server.kill9().await;
    assert!(server.try_execute(&name, "SELECT 1").is_err());
    server.restart().await;
    assert_eq!(server.execute(&name, "SELECT n FROM t ORDER BY n"), "1\n2");
    assert_ne!(server.database(), url);
    server.pause();
    server.resume();
    assert_eq!(server.execute("", "SELECT 1"), "1");
}

#[tokio::test]
async fn postgres_outlives_a_kill() {
    check_that_commits_survive_a_kill(Flavour::Postgres).await;
}

#[tokio::test]
async fn mariadb_outlives_a_kill() {
    check_that_commits_survive_a_kill(Flavour::MariaDb).await;
}
