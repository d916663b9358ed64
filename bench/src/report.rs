//! The report: figures as JSON for the documentation, a table for people, and the limits that decide the exit code.
//! A limit is something that was promised; what was not is measured and shown.

use crate::Result;
use crate::args::RunOptions;
use crate::measure::{
    CpuReport, DeliveryReport, FleetReport, InboxReport, KindsReport, MembersReport, MemoryReport,
    OutboxReport, PublishReport, UnreadReport,
};
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Published and durable events a second with 256 publishers.
const LEAST_PUBLISHED_PER_SECOND: f64 = 20_000.0;
/// Publishes a second to an open room, against those to a registered one.
const MOST_FOR_MEMBERS: f64 = 1.2;
/// CPU per delivery against the bare loop, paced.
const MOST_CPU_RATIO: f64 = 1.25;
/// CPU per delivery to a WebSocket against an event stream, and to a person against a room with one reader.
const MOST_KIND_RATIO: f64 = 1.2;
/// Resident memory per idle stream of one room.
const MOST_KIB_PER_STREAM: f64 = 2.0;
/// Resident memory of a hub with many clients that read nothing, and how long another person waits for a page meanwhile.
const MOST_MIB_UNREAD: f64 = 200.0;
const MOST_MS_BESIDE_UNREAD: f64 = 1_000.0;

/// From a notice's being saved to its frame at the person, in 95 of 100 cases.
const MOST_MS_TO_STREAM: f64 = 100.0;

/// Rows that are told a second, from their being committed on.
const LEAST_TAILED_PER_SECOND: f64 = 5_000.0;
/// From a commit to a viewer, in 95 of 100 cases.
const MOST_MS_FROM_COMMIT: f64 = 50.0;
/// What a database is asked for the most viewers, against one.
const MOST_MORE_WORK: f64 = 1.2;

/// One, and what the hubs ask beside it.
const MOST_SCRIPTS: f64 = 1.05;

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

    /// Holds what was measured against the limits; what was not measured is not judged.
    pub(crate) fn judge(&mut self) {
        let mut checks = Vec::new();
        let mut check = |name: String, value: f64, bound: Bound, limit: f64| {
            let kept = match bound {
                Bound::AtLeast => value >= limit,
                Bound::AtMost => value <= limit,
            };
            checks.push(Check { name, value, bound, limit, kept });
        };
        if let Some(rows) = &self.publish {
            if let Some(most) = rows.last() {
                let name = format!("published/s, {} publishers", most.publishers);
                check(name, most.per_second, Bound::AtLeast, LEAST_PUBLISHED_PER_SECOND);
            }
            let refused: u64 = rows.iter().map(|row| row.refused).sum();
            check("publishes not answered 200".into(), refused as f64, Bound::AtMost, 0.0);
        }
        if let Some(members) = &self.members {
            let name = format!("published/s, open room : {} members", members.members);
            check(name, members.ratio, Bound::AtMost, MOST_FOR_MEMBERS);
            let refused = members.refused as f64;
            check("publishes to these not answered 200".into(), refused, Bound::AtMost, 0.0);
        }
        for row in self.delivery.iter().flatten() {
            let outcome = &row.outcome;
            let place = format!("{} x {}", row.rooms, row.subscribers_per_room);
            check(format!("events missing, {place}"), outcome.missing as f64, Bound::AtMost, 0.0);
            check(format!("events repeated, {place}"), outcome.repeated as f64, Bound::AtMost, 0.0);
            let other = outcome.faults() - outcome.missing - outcome.repeated;
            check(format!("refusals, resets, closed streams, {place}"), other as f64, Bound::AtMost, 0.0);
        }
        if let Some(cpu) = &self.cpu {
            check("CPU per delivery, hub : bare loop".into(), cpu.ratio, Bound::AtMost, MOST_CPU_RATIO);
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
            check(name, kinds.socket_ratio, Bound::AtMost, MOST_KIND_RATIO);
            let name = "CPU per delivery, personal : room of one".into();
            check(name, kinds.personal_ratio, Bound::AtMost, MOST_KIND_RATIO);
            check("faults in the rounds by kind".into(), kinds.faults() as f64, Bound::AtMost, 0.0);
        }
        if let Some(rows) = &self.memory {
            if let Some(row) = rows.first() {
                let name = format!("KiB per idle stream, {} in one room", row.streams);
                check(name, row.per_stream_kib, Bound::AtMost, MOST_KIB_PER_STREAM);
            }
            let closed: usize = rows.iter().map(|row| row.closed_streams).sum();
            check("idle streams closed by the hub".into(), closed as f64, Bound::AtMost, 0.0);
        }
        for row in self.unread.iter().flatten() {
            let place = format!("{} unread, {} people, {}", row.requests, row.people, row.protocol);
            check(format!("MiB, {place}"), row.peak_mib, Bound::AtMost, MOST_MIB_UNREAD);
            let name = format!("ms for another's page, {place}");
            check(name, row.page_ms_during, Bound::AtMost, MOST_MS_BESIDE_UNREAD);
        }
        if let Some(fleet) = &self.fleet {
            let name = format!("published/s through Redis, {} publishers", fleet.publishers);
            check(name, fleet.published_per_second, Bound::AtLeast, LEAST_PUBLISHED_PER_SECOND);
            check(
                "publishes through Redis not answered 200".into(),
                fleet.refused as f64,
                Bound::AtMost,
                0.0,
            );
            check("scripts for each publish".into(), fleet.scripts_per_publish, Bound::AtMost, MOST_SCRIPTS);
            check("faults over two hubs".into(), fleet.across.faults() as f64, Bound::AtMost, 0.0);
            check("idle rooms' streams closed".into(), fleet.idle.closed_streams as f64, Bound::AtMost, 0.0);
        }
        for row in self.inbox.iter().flatten() {
            let (place, live) = (row.database, &row.live.outcome);
            let name = format!("ms to a personal stream, p95, {place}");
            check(name, live.delivery_latency.p95_ms, Bound::AtMost, MOST_MS_TO_STREAM);
            check(format!("faults on personal streams, {place}"), live.faults() as f64, Bound::AtMost, 0.0);
            let closed = row.idle.closed_streams;
            check(format!("idle personal streams closed, {place}"), closed as f64, Bound::AtMost, 0.0);
            check(format!("inbox requests refused, {place}"), row.refused() as f64, Bound::AtMost, 0.0);
        }
        for row in self.outbox.iter().flatten() {
            let place = row.database;
            check(format!("rows of the outbox missing, {place}"), row.missing() as f64, Bound::AtMost, 0.0);
            if let Some(ratio) = row.work_ratio() {
                check(format!("work for most viewers : one, {place}"), ratio, Bound::AtMost, MOST_MORE_WORK);
            }
            // Promised for this one.
            if place == "PostgreSQL" {
                let told = &row.tailed.outcome;
                check(
                    format!("rows/s told, {place}"),
                    told.delivered_per_second,
                    Bound::AtLeast,
                    LEAST_TAILED_PER_SECOND,
                );
                let latency = row.live.outcome.delivery_latency;
                check(
                    format!("ms from commit to viewer, p95, {place}"),
                    latency.p95_ms,
                    Bound::AtMost,
                    MOST_MS_FROM_COMMIT,
                );
            }
        }
        self.checks = checks;
    }

    pub(crate) fn is_kept(&self) -> bool {
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
                "publish   {:>4} publishers {:>9.0}/s   p50 {:.2} p95 {:.2} p99 {:.2} ms",
                row.publishers, row.per_second, latency.p50_ms, latency.p95_ms, latency.p99_ms
            );
        }
        if let Some(members) = &self.members {
            members.print();
        }
        for row in self.delivery.iter().flatten() {
            let (outcome, latency) = (&row.outcome, row.outcome.delivery_latency);
            println!(
                "delivery  {} x {}, {} publishes/s asked, {:.0} done, {:.0} deliveries/s   p50 {:.2} p95 {:.2} p99 {:.2} ms",
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
                "unread    {} requests of {} people, {}: {} -> {} MiB, peak {} MiB; another's page {} -> {} ms",
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
        report.judge();
        report
    }

    #[test]
    fn a_missed_limit_is_not_kept_and_what_was_not_measured_is_not_judged() {
        assert!(report_with(MOST_KIB_PER_STREAM).is_kept());
        let missed = report_with(MOST_KIB_PER_STREAM + 0.01);
        assert!(!missed.is_kept());
        assert_eq!(missed.checks.len(), 2);
        assert!(!serde_json::to_string(&missed).unwrap().contains("publish"));
    }
}
