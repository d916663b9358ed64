//! Inserts an outbox row in the transaction of the change that it reports.

use bongsu_kernel::Id;
use bongsu_kernel::json::Object;
use bongsu_kernel::trace::TraceParent;
use bongsu_sql::{Result, Transaction, Value};

use crate::store;

/// The content of an outbox row: something that happened to an event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub event_type: &'a str,
    pub payload: &'a Object,
    /// The event whose streams receive the row.
    pub target: &'a Id,
    /// The W3C `traceparent` of the request that caused the row.
    pub traceparent: Option<&'a str>,
}

/// Inserts the row. Streams receive the row after the transaction commits, and never after a rollback.
pub async fn record(tx: &mut Transaction<'_>, event: Event<'_>) -> Result<()> {
    // A malformed trace is left out, so that it does not fail the transaction.
    let trace = event.traceparent.and_then(TraceParent::parse);
    let arguments = [
        ("event_type", event.event_type.into()),
        ("payload", event.payload.as_str().into()),
        ("target", event.target.into()),
        ("traceparent", Value::Text(trace.map(|trace| trace.as_str().to_owned()))),
    ];
    tx.run(&store::RECORD, &arguments).await.map(drop)
}
