//! The measurements, one module each, and the run that executes them one after another.
//! Each measurement starts its own servers, so that it does not affect the next one.

mod cpu;
mod database;
mod delivery;
mod fleet;
mod inbox;
mod kinds;
mod members;
mod memory;
mod outbox;
mod publish;
mod redis;
mod server;
mod sizes;
mod unread;

pub(crate) use cpu::CpuReport;
pub(crate) use delivery::DeliveryReport;
pub(crate) use fleet::FleetReport;
pub(crate) use inbox::InboxReport;
pub(crate) use kinds::KindsReport;
pub(crate) use members::MembersReport;
pub(crate) use memory::MemoryReport;
pub(crate) use outbox::OutboxReport;
pub(crate) use publish::PublishReport;
pub(crate) use unread::UnreadReport;

use crate::Result;
use crate::args::{PARTS, Part, ReferenceOptions, RunOptions};
use crate::process::{bench_dir, raise_descriptor_limit};
use crate::report::Report;
use server::HubStarter;
use sizes::Sizes;
use std::path::PathBuf;

/// Runs the selected measurements and writes the report. Returns true when no limit is missed.
pub(crate) fn run(options: &RunOptions) -> Result<bool> {
    let descriptors = raise_descriptor_limit();
    let sizes = Sizes::for_run(options);
    let hubs = HubStarter::new(options)?;
    let mut report = Report::new(options);
    for part in &options.parts {
        match part {
            Part::Publish => report.publish = Some(publish::measure(&hubs, &sizes)?),
            Part::Members => report.members = Some(members::measure(&hubs, &sizes)?),
            Part::Delivery => report.delivery = Some(delivery::measure(&hubs, &sizes)?),
            Part::Cpu => report.cpu = Some(cpu::measure(&hubs, &sizes)?),
            Part::Fleet => report.fleet = Some(fleet::measure(&hubs, &sizes)?),
            Part::Inbox => report.inbox = Some(inbox::measure(&hubs, &sizes)?),
            Part::Outbox => report.outbox = Some(outbox::measure(&hubs, &sizes, options.users)?),
            Part::Unread => report.unread = Some(unread::measure(&hubs, &sizes)?),
            Part::Kinds => report.kinds = Some(kinds::measure(&hubs, &sizes)?),
            Part::Memory => report.memory = Some(memory::measure(&hubs, &sizes, descriptors)?),
        }
    }
    report.check_limits();
    report.write(&report_path(options)?)?;
    report.print();
    Ok(report.meets_limits())
}

/// Measures the bare loop alone, as the reference of the machine.
pub(crate) fn reference(options: &ReferenceOptions) -> Result<()> {
    raise_descriptor_limit();
    let sizes = Sizes::for_reference(options);
    let rounds = cpu::measure_reference(&sizes, options.frame_bytes)?;
    rounds.print("bare loop");
    Ok(())
}

/// The path of the report. Only a full run replaces the report that the documentation shows.
fn report_path(options: &RunOptions) -> Result<PathBuf> {
    let is_full = !options.quick && options.parts.len() == PARTS.len();
    Ok(match &options.out {
        Some(path) => path.clone(),
        None if is_full => PathBuf::from("docs/bench.json"),
        None => bench_dir()?.join("report.json"),
    })
}

fn progress(text: &str) {
    eprintln!("{text}");
}
