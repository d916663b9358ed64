//! Recording what happened, in the transaction that makes it happen.

use bongsu_kernel::Id;
use bongsu_kernel::json::Object;
use bongsu_kernel::trace::TraceParent;
use bongsu_sql::{Error, Transaction, Value};

use crate::store;

/// Something that happened to an event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub event_type: &'a str,
    pub payload: &'a Object,
    /// The event whose followers are told.
    pub target: &'a Id,
    /// The trace that it belongs to, as W3C writes it.
    pub traceparent: Option<&'a str>,
}

/// Writes it down. It counts with the transaction: once that is committed everybody is told, and never before.
pub async fn record(tx: &mut Transaction<'_>, event: Event<'_>) -> Result<(), Error> {
    // A trace that is not well-formed must not cost the event.
    let trace = event.traceparent.and_then(TraceParent::parse);
    let arguments = [
        ("event_type", event.event_type.into()),
        ("payload", event.payload.as_str().into()),
        ("target", event.target.into()),
        ("traceparent", Value::Text(trace.map(|trace| trace.as_str().to_owned()))),
    ];
    tx.run(&store::RECORD, &arguments).await.map(drop)
}
