//! Reading beside the writer: a few connections, each used by one reader at a time.
//!
//! SQLite's snapshots let them see all that is committed and nothing else. Who comes when all are busy waits.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::Error;

/// A bounded pool. Cheap to clone.
#[derive(Clone)]
pub struct Readers {
    free: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(crate) fn new(connections: Vec<Connection>) -> Self {
        let permits = Arc::new(Semaphore::new(connections.len()));
        Self { free: Arc::new(Mutex::new(connections)), permits }
    }

    /// Runs a query on a thread where waiting for the disk holds nobody up.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| Error::Closed)?;
        let free = self.free.clone();
        let read = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let mut connection =
                free.lock().unwrap_or_else(PoisonError::into_inner).pop().ok_or(Error::Closed)?;
            // A query that panics must not take its connection with it: others wait for it.
            let result = std::panic::catch_unwind(AssertUnwindSafe(|| query(&mut connection)));
            free.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            match result {
                Ok(result) => result.map_err(Error::from),
                Err(_) => Err(Error::Failed("a query panicked".to_owned())),
            }
        });
        read.await.map_err(|error| Error::Failed(error.to_string()))?
    }
}
