//! A pool of connections that read while the writer writes.
//!
//! Each connection runs one query at a time, on a SQLite snapshot of the committed data. When all are busy, callers
//! wait.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use bongsu_kernel::lock;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::Error;

/// Cheap to clone.
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

    /// Runs a query on a blocking thread, because it may wait for the disk.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| Error::Closed)?;
        let free = self.free.clone();
        let read = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let mut connection = lock(&free).pop().ok_or(Error::Closed)?;
            // The connection returns to the pool also when the query panics.
            let result = std::panic::catch_unwind(AssertUnwindSafe(|| query(&mut connection)));
            lock(&free).push(connection);
            match result {
                Ok(result) => result.map_err(Error::from),
                Err(_) => Err(Error::Failed("a query panicked".to_owned())),
            }
        });
        read.await.map_err(|error| Error::Failed(error.to_string()))?
    }
}
