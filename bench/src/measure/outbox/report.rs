//! The figures of the outbox on one kind of database.

use crate::generator::Outcome;
use crate::stats::{Latency, rounded};
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OutboxReport {
    pub(crate) database: &'static str,
    pub(crate) inserts: InsertReport,
    pub(crate) live: LiveReport,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) viewers: Vec<ViewersReport>,
    pub(crate) tailed: TailedReport,
}

/// Latency of commits: without a hub, and while a hub runs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InsertReport {
    pub(crate) rate: u32,
    pub(crate) alone: Latency,
    pub(crate) beside: Latency,
}

/// Viewers of one event, with rows at a given rate.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LiveReport {
    pub(crate) viewers: usize,
    pub(crate) rate: u32,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

/// The work of a database server, including the commits of the writers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ViewersReport {
    pub(crate) viewers: usize,
    pub(crate) unit: &'static str,
    pub(crate) per_second: f64,
    pub(crate) missing: u64,
}

/// Writers that commit rows without a pause.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TailedReport {
    pub(crate) rows: u32,
    pub(crate) writers: usize,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

impl OutboxReport {
    pub(crate) fn missing(&self) -> u64 {
        let viewers: u64 = self.viewers.iter().map(|row| row.missing).sum();
        self.live.outcome.faults() + self.tailed.outcome.faults() + viewers
    }

    /// The work for the largest number of viewers, divided by the work for the smallest.
    pub(crate) fn work_ratio(&self) -> Option<f64> {
        let (few, many) = (self.viewers.first()?, self.viewers.last()?);
        Some(rounded(many.per_second / few.per_second.max(0.1), 2))
    }

    pub(crate) fn print(&self) {
        let name = self.database;
        let format_latency = |latency: Latency| {
            format!("p50 {:.2} p95 {:.2} p99 {:.2} ms", latency.p50_ms, latency.p95_ms, latency.p99_ms)
        };
        let inserts = &self.inserts;
        println!("outbox    {name}, {} commits/s, alone:    {}", inserts.rate, format_latency(inserts.alone));
        println!(
            "outbox    {name}, {} commits/s, with hub: {}",
            inserts.rate,
            format_latency(inserts.beside)
        );
        let live = &self.live;
        println!(
            "outbox    {name}, {} viewers, {} commits/s, commit to viewer: {}",
            live.viewers,
            live.rate,
            format_latency(live.outcome.delivery_latency)
        );
        for row in &self.viewers {
            println!("outbox    {name}, {} viewers: {} {}/s", row.viewers, row.per_second, row.unit);
        }
        let outcome = &self.tailed.outcome;
        println!(
            "outbox    {name}, {} writers, {} rows per commit: {} rows, {:.0}/s delivered   {}",
            self.tailed.writers,
            self.tailed.rows,
            outcome.published,
            outcome.delivered_per_second,
            format_latency(outcome.delivery_latency)
        );
    }
}
