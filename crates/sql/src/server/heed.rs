//! Hearing of what others have written, where the server tells: PostgreSQL's notifications.
//!
//! They are a wake-up and nothing more: one may be lost with its connection, so whoever hears looks by itself, and also
//! without having heard anything now and then.

use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use sqlx::postgres::{PgListener, PgPoolOptions};

use super::Server;
use crate::address::Login;

/// After the connection was lost it is made again.
const AGAIN: Duration = Duration::from_secs(1);

impl Server {
    /// Calls when somebody has notified a channel, and when that may have been missed. False where servers do not tell.
    pub(crate) fn heed(
        &self,
        channel: &'static str,
        supervisor: &Supervisor,
        heard: impl Fn() + Clone + Send + Sync + 'static,
    ) -> bool {
        let Login::Postgres(options) = &self.0.pool.address().login else { return false };
        let state = ((**options).clone(), heard);
        supervisor.run("database-notifications", &state, move |(options, heard)| async move {
            // One connection of its own, which the listener makes again when it was lost.
            let pool = PgPoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
            let pool = pool.connect_lazy_with(options);
            loop {
                if let Err(error) = listen(&pool, channel, &heard).await {
                    tracing::debug!(%error, channel, "the database does not tell what is new for now");
                }
                tokio::time::sleep(AGAIN).await;
            }
        });
        true
    }
}

async fn listen(pool: &sqlx::PgPool, channel: &str, heard: &impl Fn()) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(channel).await?;
    loop {
        // Between two connections nothing was heard.
        heard();
        listener.try_recv().await?;
        while listener.next_buffered().is_some() {}
    }
}
