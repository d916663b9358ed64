//! The report: figures as JSON for the documentation, a table for people, and the limits that decide the exit code.
//! Limits exist only for figures that the project guarantees; all other figures are only reported.

use crate::Result;
use crate::args::RunOptions;
use crate::measure::{
    CpuReport, DeliveryReport, FleetReport, InboxReport, KindsReport, MembersReport, MemoryReport,
    OutboxReport, PublishReport, UnreadReport,
};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Durable publishes per second with 256 publishers.
const MIN_PUBLISHED_PER_SECOND: f64 = 20_000.0;
/// Publishes per second to an open room, divided by those to a registered room.
const MAX_MEMBERS_RATIO: f64 = 1.2;
/// CPU time per delivery at a given rate, divided by that of the bare loop.
const MAX_CPU_RATIO: f64 = 1.25;
/// CPU time per delivery to a WebSocket divided by that to an SSE stream, and to a personal stream divided by that to a
/// room with one reader.
const MAX_KIND_RATIO: f64 = 1.2;
/// Resident memory per idle stream of one room.
const MAX_KIB_PER_STREAM: f64 = 2.0;
/// Peak resident memory of a hub with many clients that do not read.
const MAX_MIB_UNREAD: f64 = 200.0;
/// Latency of another person's page at the same time.
const MAX_MS_BESIDE_UNREAD: f64 = 1_000.0;

/// 95th percentile of the time from the sending of a notification to its frame at the target.
const MAX_MS_TO_STREAM: f64 = 100.0;

/// Outbox rows delivered per second.
const MIN_TAILED_PER_SECOND: f64 = 5_000.0;
/// 95th percentile of the time from a commit to its frame at a viewer.
const MAX_MS_FROM_COMMIT: f64 = 50.0;
/// Work of the database for the largest number of viewers, divided by that for one viewer.
const MAX_WORK_RATIO: f64 = 1.2;

/// Scripts per publish: one for the publish itself, and a margin for periodic scripts of the hubs.
const MAX_SCRIPTS_PER_PUBLISH: f64 = 1.05;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    quick: bool,
    cores: usize,
    kernel: String,
    users: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) publish: Option<Vec<PublishReport>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) members: Option<MembersReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delivery: Option<Vec<DeliveryReport>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<CpuReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kinds: Option<KindsReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<Vec<MemoryReport>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unread: Option<Vec<UnreadReport>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fleet: Option<FleetReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inbox: Option<Vec<InboxReport>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outbox: Option<Vec<OutboxReport>>,
    checks: Vec<Check>,
}

#[derive(Serialize)]
struct Check {
    name: String,
    value: f64,
    bound: Bound,
    limit: f64,
    kept: bool,
}

#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
enum Bound {
    AtLeast,
    AtMost,
}

impl Report {
    pub(crate) fn new(options: &RunOptions) -> Self {
        Self {
            quick: options.quick,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            users: options.users,
            publish: None,
            members: None,
            delivery: None,
            cpu: None,
            kinds: None,
            memory: None,
            unread: None,
            fleet: None,
            inbox: None,
            outbox: None,
            checks: Vec::new(),
        }
    }

    /// Compares the figures with the limits. A measurement that did not run has no check.
    pub(crate) fn check_limits(&mut self) {
        let mut checks = Vec::new();
        let mut check = |name: String, value: f64, bound: Bound, limit: f64| {
            let kept = match bound {
                Bound::AtLeast => value >= limit,
                Bound::AtMost => value <= limit,
            };
            checks.push(Check { name, value, bound, limit, kept });
        };
        if let Some(rows) = &self.publish {
            if let Some(largest) = rows.last() {
                let name = format!("published/s, {} publishers", largest.publishers);
                check(name, largest.per_second, Bound::AtLeast, MIN_PUBLISHED_PER_SECOND);
            }
            let refused: u64 = rows.iter().map(|row| row.refused).sum();
            check("publishes not answered 200".into(), refused as f64, Bound::AtMost, 0.0);
        }
        if let Some(members) = &self.members {
            let name = format!("published/s, open room : {} members", members.members);
            check(name, members.ratio, Bound::AtMost, MAX_MEMBERS_RATIO);
            let refused = members.refused as f64;
            check("publishes to these not answered 200".into(), refused, Bound::AtMost, 0.0);
        }
        for row in self.delivery.iter().flatten() {
            let outcome = &row.outcome;
            let label = format!("{} x {}", row.rooms, row.subscribers_per_room);
            check(format!("events missing, {label}"), outcome.missing as f64, Bound::AtMost, 0.0);
            check(format!("events repeated, {label}"), outcome.repeated as f64, Bound::AtMost, 0.0);
            let other = outcome.faults() - outcome.missing - outcome.repeated;
            check(format!("refusals, resets, closed streams, {label}"), other as f64, Bound::AtMost, 0.0);
        }
        if let Some(cpu) = &self.cpu {
            check("CPU per delivery, hub : bare loop".into(), cpu.ratio, Bound::AtMost, MAX_CPU_RATIO);
            check("faults in the hub's rounds".into(), cpu.hub.faults() as f64, Bound::AtMost, 0.0);
            check(
                "faults in the bare loop's rounds".into(),
                cpu.bare_loop.faults() as f64,
                Bound::AtMost,
                0.0,
            );
        }
        if let Some(kinds) = &self.kinds {
            let name = "CPU per delivery, WebSocket : event stream".into();
            check(name, kinds.socket_ratio, Bound::AtMost, MAX_KIND_RATIO);
            let name = "CPU per delivery, personal : room of one".into();
            check(name, kinds.personal_ratio, Bound::AtMost, MAX_KIND_RATIO);
            check("faults in the rounds by kind".into(), kinds.faults() as f64, Bound::AtMost, 0.0);
        }
        if let Some(rows) = &self.memory {
            if let Some(row) = rows.first() {
                let name = format!("KiB per idle stream, {} in one room", row.streams);
                check(name, row.per_stream_kib, Bound::AtMost, MAX_KIB_PER_STREAM);
            }
            let closed: usize = rows.iter().map(|row| row.closed_streams).sum();
            check("idle streams closed by the hub".into(), closed as f64, Bound::AtMost, 0.0);
        }
        for row in self.unread.iter().flatten() {
            let label = format!("{} unread, {} people, {}", row.requests, row.people, row.protocol);
            check(format!("MiB, {label}"), row.peak_mib, Bound::AtMost, MAX_MIB_UNREAD);
            let name = format!("ms for another's page, {label}");
            check(name, row.page_ms_during, Bound::AtMost, MAX_MS_BESIDE_UNREAD);
        }
        if let Some(fleet) = &self.fleet {
            let name = format!("published/s through Redis, {} publishers", fleet.publishers);
            check(name, fleet.published_per_second, Bound::AtLeast, MIN_PUBLISHED_PER_SECOND);
            check(
                "publishes through Redis not answered 200".into(),
                fleet.refused as f64,
                Bound::AtMost,
                0.0,
            );
            check(
                "scripts for each publish".into(),
                fleet.scripts_per_publish,
                Bound::AtMost,
                MAX_SCRIPTS_PER_PUBLISH,
            );
            check("faults over two hubs".into(), fleet.across.faults() as f64, Bound::AtMost, 0.0);
            check("idle rooms' streams closed".into(), fleet.idle.closed_streams as f64, Bound::AtMost, 0.0);
        }
        for row in self.inbox.iter().flatten() {
            let (label, live) = (row.database, &row.live.outcome);
            let name = format!("ms to a personal stream, p95, {label}");
            check(name, live.delivery_latency.p95_ms, Bound::AtMost, MAX_MS_TO_STREAM);
            check(format!("faults on personal streams, {label}"), live.faults() as f64, Bound::AtMost, 0.0);
            let closed = row.idle.closed_streams;
            check(format!("idle personal streams closed, {label}"), closed as f64, Bound::AtMost, 0.0);
            check(format!("inbox requests refused, {label}"), row.refused() as f64, Bound::AtMost, 0.0);
        }
        for row in self.outbox.iter().flatten() {
            let label = row.database;
            check(format!("rows of the outbox missing, {label}"), row.missing() as f64, Bound::AtMost, 0.0);
            if let Some(ratio) = row.work_ratio() {
                check(format!("work for most viewers : one, {label}"), ratio, Bound::AtMost, MAX_WORK_RATIO);
            }
            // The limits are guaranteed for PostgreSQL only.
            if label == "PostgreSQL" {
                let outcome = &row.tailed.outcome;
                check(
                    format!("rows/s told, {label}"),
                    outcome.delivered_per_second,
                    Bound::AtLeast,
                    MIN_TAILED_PER_SECOND,
                );
                let latency = row.live.outcome.delivery_latency;
                check(
                    format!("ms from commit to viewer, p95, {label}"),
                    latency.p95_ms,
                    Bound::AtMost,
                    MAX_MS_FROM_COMMIT,
                );
            }
        }
        self.checks = checks;
    }

    pub(crate) fn meets_limits(&self) -> bool {
        self.checks.iter().all(|check| check.kept)
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    pub(crate) fn print(&self) {
        for row in self.publish.iter().flatten() {
            let latency = row.latency;
            println!(
                "publish   {:>4} publishers {:>9.0}/s   {:.1} CPU s per million   p50 {:.2} p95 {:.2} p99 {:.2} ms",
                row.publishers,
                row.per_second,
                row.cpu_per_million,
                latency.p50_ms,
                latency.p95_ms,
                latency.p99_ms
            );
        }
        if let Some(members) = &self.members {
            members.print();
        }
        for row in self.delivery.iter().flatten() {
            let (outcome, latency) = (&row.outcome, row.outcome.delivery_latency);
            println!(
                "delivery  {} x {}, {} publishes/s planned, {:.0} actual, {:.0} deliveries/s   p50 {:.2} p95 {:.2} p99 {:.2} ms",
                row.rooms,
                row.subscribers_per_room,
                row.rate,
                outcome.published_per_second,
                outcome.delivered_per_second,
                latency.p50_ms,
                latency.p95_ms,
                latency.p99_ms
            );
        }
        if let Some(cpu) = &self.cpu {
            cpu.hub.print("hub");
            cpu.bare_loop.print("bare loop");
        }
        if let Some(kinds) = &self.kinds {
            kinds.print();
        }
        for row in self.memory.iter().flatten() {
            println!(
                "memory    {} idle streams in {} rooms: {} -> {} KiB, {:.2} KiB each",
                row.streams, row.rooms, row.before_kib, row.after_kib, row.per_stream_kib
            );
        }
        for row in self.unread.iter().flatten() {
            println!(
                "unread    {} requests of {} persons, {}: {} -> {} MiB, peak {} MiB; another person's page {} -> {} ms",
                row.requests,
                row.people,
                row.protocol,
                row.before_mib,
                row.during_mib,
                row.peak_mib,
                row.page_ms_before,
                row.page_ms_during
            );
        }
        if let Some(fleet) = &self.fleet {
            fleet.print();
        }
        for row in self.inbox.iter().flatten() {
            row.print();
        }
        for row in self.outbox.iter().flatten() {
            row.print();
        }
        println!();
        for check in &self.checks {
            let bound = match check.bound {
                Bound::AtLeast => ">=",
                Bound::AtMost => "<=",
            };
            let verdict = if check.kept { "ok" } else { "MISSED" };
            println!("{:<48} {:>10} {bound} {:<8} {verdict}", check.name, check.value, check.limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn report_with(per_stream_kib: f64) -> Report {
        let mut report = Report::new(&RunOptions {
            hub: PathBuf::new(),
            out: None,
            parts: Vec::new(),
            quick: true,
            subscribers: 10,
            rooms_rate: 1,
            users: 1,
            hub_settings: Vec::new(),
        });
        let row = MemoryReport {
            streams: 10,
            rooms: 1,
            before_kib: 100,
            after_kib: 200,
            per_stream_kib,
            closed_streams: 0,
        };
        report.memory = Some(vec![row]);
        report.check_limits();
        report
    }

    #[test]
    fn a_missed_limit_fails_and_other_measurements_have_no_check() {
        assert!(report_with(MAX_KIB_PER_STREAM).meets_limits());
        let missed = report_with(MAX_KIB_PER_STREAM + 0.01);
        assert!(!missed.meets_limits());
        assert_eq!(missed.checks.len(), 2);
        assert!(!serde_json::to_string(&missed).unwrap().contains("publish"));
    }
}
