//! The open embedded database, shared by all parts: one writer, a few readers, one folder.

use std::sync::Arc;

use bongsu_kernel::task::Supervisor;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{Database, Error, Job, Readers, Writer, WriterThread};

/// Number of connections that only read.
const READER_COUNT: usize = 4;

/// Cheap to clone.
#[derive(Clone)]
pub struct Store {
    writer: Writer,
    readers: Readers,
    // Keeps the folder locked until the last clone is dropped.
    _database: Arc<Database>,
}

impl Store {
    /// Starts the writer and the readers of a database. Returns the writer's thread, to be joined at shutdown.
    pub fn start(database: Database, supervisor: &Supervisor) -> Result<(Self, WriterThread), Error> {
        let on_panic = supervisor.clone();
        let (writer, thread) = database.writer(move || on_panic.fail("database-writer"))?;
        let readers = database.readers(READER_COUNT)?;
        Ok((Self { writer, readers, _database: Arc::new(database) }, thread))
    }

    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Runs a change in the next group of the writer, and returns its result once it is durable. The change may be
    /// called again after its first call was rolled back.
    pub async fn write<T: Send + 'static>(
        &self,
        change: impl FnMut(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.writer.submit(Box::new(ChangeJob { change, result: None, reply })).await?;
        answer.await.unwrap_or(Err(Error::Closed))
    }
}

struct ChangeJob<F, T> {
    change: F,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, Error>>,
}

impl<F: FnMut(&Connection) -> Result<T, Error> + Send, T: Send> Job for ChangeJob<F, T> {
    fn apply(&mut self, connection: &mut Connection) -> Result<(), Error> {
        self.result = Some((self.change)(connection)?);
        Ok(())
    }

    fn committed(self: Box<Self>) {
        // An error means that the caller was dropped.
        let _ = self.reply.send(self.result.ok_or(Error::Closed));
    }

    fn failed(self: Box<Self>, error: &Error) {
        let _ = self.reply.send(Err(error.clone()));
    }
}
