//! The open store, as the parts share it: one writer, a few readers, one folder.

use std::sync::Arc;

use bongsu_kernel::task::Supervisor;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::{Database, Error, Job, Readers, Writer, WriterState};

/// Connections that read beside the writer.
const READERS: usize = 4;

/// Cheap to clone.
#[derive(Clone)]
pub struct Store {
    writer: Writer,
    readers: Readers,
    // Holds the folder until the last query is done.
    _database: Arc<Database>,
}

impl Store {
    /// Starts on an open database. The writer's thread is given back for joining at shutdown.
    pub fn start(database: Database, supervisor: &Supervisor) -> Result<(Self, WriterState), Error> {
        let alarm = supervisor.clone();
        let (writer, state) = database.writer(move || alarm.fail("database-writer"))?;
        let readers = database.readers(READERS)?;
        Ok((Self { writer, readers, _database: Arc::new(database) }, state))
    }

    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    pub fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Changes something, as a part of the group that is written next, and gives what the change gave once it is
    /// durable. It may be called again, after everything the first call did was rolled back.
    pub async fn write<T: Send + 'static>(
        &self,
        change: impl FnMut(&Connection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.writer.submit(Box::new(Change { change, given: None, reply })).await?;
        answer.await.unwrap_or(Err(Error::Closed))
    }
}

struct Change<F, T> {
    change: F,
    given: Option<T>,
    reply: oneshot::Sender<Result<T, Error>>,
}

impl<F: FnMut(&Connection) -> Result<T, Error> + Send, T: Send> Job for Change<F, T> {
    fn apply(&mut self, connection: &mut Connection) -> Result<(), Error> {
        self.given = Some((self.change)(connection)?);
        Ok(())
    }

    fn committed(self: Box<Self>) {
        // A caller that went away does not need the answer.
        let _ = self.reply.send(self.given.ok_or(Error::Closed));
    }

    fn failed(self: Box<Self>, error: &Error) {
        let _ = self.reply.send(Err(error.clone()));
    }
}
