//! The figures of the inbox on one kind of database.

use crate::generator::Outcome;
use crate::stats::Latency;
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InboxReport {
    pub(crate) database: &'static str,
    pub(crate) notify: Vec<NotifyReport>,
    pub(crate) reading: ReadingReport,
    pub(crate) live: LiveReport,
    pub(crate) idle: IdleReport,
}

/// Callers that send their next request as soon as the previous one is answered.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NotifyReport {
    pub(crate) targets: u32,
    pub(crate) callers: usize,
    pub(crate) per_second: f64,
    pub(crate) entries_per_second: f64,
    pub(crate) latency: Latency,
    pub(crate) refused: u64,
}

/// Reads from inboxes, at a given rate.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadingReport {
    pub(crate) rows: u64,
    pub(crate) people: u32,
    pub(crate) rate: u32,
    /// Latency of the unread count.
    pub(crate) unread: Latency,
    /// Latency of a page with the newest 20 entries.
    pub(crate) list: Latency,
    pub(crate) refused: u64,
}

/// Notifications with one connected target each, at a given rate.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LiveReport {
    pub(crate) people: u32,
    pub(crate) rate: u32,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IdleReport {
    pub(crate) streams: usize,
    pub(crate) before_kib: u64,
    pub(crate) after_kib: u64,
    pub(crate) per_stream_kib: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) work: Option<WorkReport>,
    pub(crate) closed_streams: usize,
}

/// The work of a database server.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkReport {
    /// What the server counts: PostgreSQL transactions, MariaDB statements.
    pub(crate) unit: &'static str,
    pub(crate) per_stream_opened: f64,
    pub(crate) per_second_idle: f64,
}

impl InboxReport {
    /// Requests that were not answered with the expected status.
    pub(crate) fn refused(&self) -> u64 {
        self.notify.iter().map(|row| row.refused).sum::<u64>() + self.reading.refused
    }

    pub(crate) fn print(&self) {
        let name = self.database;
        for row in &self.notify {
            println!(
                "inbox     {name}, {} callers notify {} each: {:.0}/s, {:.0} entries/s   {}",
                row.callers,
                row.targets,
                row.per_second,
                row.entries_per_second,
                format_latency(row.latency)
            );
        }
        let reading = &self.reading;
        println!("inbox     {name}, {} rows, count: {}", reading.rows, format_latency(reading.unread));
        println!("inbox     {name}, {} rows, list:  {}", reading.rows, format_latency(reading.list));
        let live = &self.live;
        println!(
            "inbox     {name}, {} streams, {} notifications/s, to the stream: {}",
            live.people,
            live.rate,
            format_latency(live.outcome.delivery_latency)
        );
        let idle = &self.idle;
        println!(
            "inbox     {name}, {} idle streams: {} -> {} KiB, {:.2} KiB each",
            idle.streams, idle.before_kib, idle.after_kib, idle.per_stream_kib
        );
        if let Some(work) = &idle.work {
            println!(
                "inbox     {name}, {} {} per opened stream, {}/s while all are idle",
                work.per_stream_opened, work.unit, work.per_second_idle
            );
        }
    }
}

fn format_latency(latency: Latency) -> String {
    format!("p50 {:.2} p95 {:.2} p99 {:.2} ms", latency.p50_ms, latency.p95_ms, latency.p99_ms)
}
