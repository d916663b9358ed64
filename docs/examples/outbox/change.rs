//! Adds a task to an event, and tells everybody who follows it: the task and what tells of it are committed together.
//! For programs that keep their records with `bongsu_sql`; others write the same row with their own driver.

use bongsu_kernel::Id;
use bongsu_kernel::json::Object;
use bongsu_outbox::{Event, record};
use bongsu_sql::{Error, Query, Records, Transaction};
use serde_json::json;

/// The same text for all three databases.
static ADD_TASK: Query = Query::new("add_task", ["INSERT INTO tasks (id, title) VALUES (:id, :title)"; 3]);

pub struct Task {
    pub id: String,
    pub title: String,
    pub event: Id,
}

/// A task without a title is taken back, and nobody is told.
pub async fn add_task(records: &Records, task: Task) -> Result<(), Error> {
    async fn change(task: &Task, tx: &mut Transaction<'_>) -> Result<(), Error> {
        tx.run(&ADD_TASK, &[("id", task.id.as_str().into()), ("title", task.title.as_str().into())]).await?;
        let payload = json!({"task_id": task.id, "title": task.title}).to_string();
        let payload = Object::from_stored(&payload).ok_or(Error::RolledBack)?;
        let event =
            Event { event_type: "task.added.v1", payload: &payload, target: &task.event, traceparent: None };
        record(tx, event).await?;
        if task.title.is_empty() { Err(Error::RolledBack) } else { Ok(()) }
    }
    records.write(task, change).await
}
