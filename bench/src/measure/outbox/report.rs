//! The figures of the outbox on one database.

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

/// What programs wait for, when there is nobody else, and beside a hub.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InsertReport {
    pub(crate) rate: u32,
    pub(crate) alone: Latency,
    pub(crate) beside: Latency,
}

/// Viewers of one event, and rows at a pace.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LiveReport {
    pub(crate) viewers: usize,
    pub(crate) rate: u32,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

/// What a database server is asked, the programs' own commits included.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ViewersReport {
    pub(crate) viewers: usize,
    pub(crate) unit: &'static str,
    pub(crate) per_second: f64,
    pub(crate) missing: u64,
}

/// As many rows as programs can commit.
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

    /// For the most viewers against the fewest.
    pub(crate) fn work_ratio(&self) -> Option<f64> {
        let (few, many) = (self.viewers.first()?, self.viewers.last()?);
        Some(rounded(many.per_second / few.per_second.max(0.1), 2))
    }

    pub(crate) fn print(&self) {
        let name = self.database;
        let spoken = |latency: Latency| {
            format!("p50 {:.2} p95 {:.2} p99 {:.2} ms", latency.p50_ms, latency.p95_ms, latency.p99_ms)
        };
        let inserts = &self.inserts;
        println!("outbox    {name}, {} commits/s, alone:    {}", inserts.rate, spoken(inserts.alone));
        println!("outbox    {name}, {} commits/s, with hub: {}", inserts.rate, spoken(inserts.beside));
        let live = &self.live;
        println!(
            "outbox    {name}, {} viewers, {} commits/s, commit to viewer: {}",
            live.viewers,
            live.rate,
            spoken(live.outcome.delivery_latency)
        );
        for row in &self.viewers {
            println!("outbox    {name}, {} viewers: {} {}/s", row.viewers, row.per_second, row.unit);
        }
        let told = &self.tailed.outcome;
        println!(
            "outbox    {name}, {} writers with {} rows each time: {} rows, {:.0}/s told   {}",
            self.tailed.writers,
            self.tailed.rows,
            told.published,
            told.delivered_per_second,
            spoken(told.delivery_latency)
        );
    }
}
