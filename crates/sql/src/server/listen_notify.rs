//! LISTEN/NOTIFY of PostgreSQL: wakes readers when a process has written.
//!
//! A notification is only a hint: it contains no data, and may be lost with its connection. So readers read
//! the tables, and poll them without a notification as well.

use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use sqlx::postgres::{PgListener, PgPoolOptions};

use super::Server;
use crate::address::Login;

/// Time between the loss of the connection and the next attempt to listen.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl Server {
    /// Calls `on_notify` after every notification of a channel, and after a reconnect. Returns false on servers without
    /// notifications.
    pub(crate) fn listen_notify(
        &self,
        channel: &'static str,
        supervisor: &Supervisor,
        on_notify: impl Fn() + Clone + Send + Sync + 'static,
    ) -> bool {
        let Login::Postgres(options) = &self.0.pool.address().login else { return false };
        let state = ((**options).clone(), on_notify);
        supervisor.run("database-notifications", &state, move |(options, on_notify)| async move {
            // The listener's own connection. The listener opens it again after a loss.
            let pool = PgPoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
            let pool = pool.connect_lazy_with(options);
            loop {
                if let Err(error) = listen(&pool, channel, &on_notify).await {
                    tracing::debug!(%error, channel, "failed to listen for notifications; retrying");
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
        });
        true
    }
}

async fn listen(pool: &sqlx::PgPool, channel: &str, on_notify: &impl Fn()) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(channel).await?;
    loop {
        // Called at first, after each batch of notifications, and after a reconnect, which may have lost
        // notifications.
        on_notify();
        listener.try_recv().await?;
        while listener.next_buffered().is_some() {}
    }
}
