//! The command line: four subcommands, one of them (`exec-guarded`) for the tool's own use.
//! Sizes and durations that belong to a measurement are in `measure::Sizes`; here is what a person may choose.

use clap::{Arg, ArgAction, ArgMatches, Command as Clap, value_parser};
use std::path::PathBuf;

pub(crate) enum Command {
    Run(RunOptions),
    Reference(ReferenceOptions),
    BareLoop(BareLoopOptions),
    ExecGuarded(Vec<String>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Publish,
    Members,
    Delivery,
    Cpu,
    Kinds,
    Memory,
    Unread,
    Fleet,
    Inbox,
    Outbox,
}

pub(crate) const PARTS: [(&str, Part); 10] = [
    ("publish", Part::Publish),
    ("members", Part::Members),
    ("delivery", Part::Delivery),
    ("cpu", Part::Cpu),
    ("kinds", Part::Kinds),
    ("memory", Part::Memory),
    ("unread", Part::Unread),
    ("fleet", Part::Fleet),
    ("inbox", Part::Inbox),
    ("outbox", Part::Outbox),
];

pub(crate) struct RunOptions {
    pub(crate) hub: PathBuf,
    pub(crate) out: Option<PathBuf>,
    pub(crate) parts: Vec<Part>,
    pub(crate) quick: bool,
    pub(crate) subscribers: usize,
    pub(crate) rooms_rate: u32,
    pub(crate) users: usize,
    pub(crate) hub_settings: Vec<(String, String)>,
}

pub(crate) struct ReferenceOptions {
    pub(crate) subscribers: usize,
    pub(crate) rate: u32,
    pub(crate) secs: u64,
    pub(crate) rounds: usize,
    pub(crate) frame_bytes: usize,
}

pub(crate) struct BareLoopOptions {
    pub(crate) port: u16,
    pub(crate) frame_bytes: usize,
    pub(crate) max_secs: u64,
}

/// Ends the process with a usage message when the arguments make no sense.
pub(crate) fn parse() -> Command {
    match command_line().get_matches().subcommand() {
        Some(("run", given)) => Command::Run(RunOptions {
            hub: one(given, "hub"),
            out: given.get_one("out").cloned(),
            parts: parts(given),
            quick: given.get_flag("quick"),
            subscribers: one(given, "subscribers"),
            rooms_rate: one(given, "rooms-rate"),
            users: one(given, "users"),
            hub_settings: given.get_many("hub-env").into_iter().flatten().cloned().collect(),
        }),
        Some(("reference", given)) => Command::Reference(ReferenceOptions {
            subscribers: one(given, "subscribers"),
            rate: one(given, "rate"),
            secs: one(given, "secs"),
            rounds: one(given, "rounds"),
            frame_bytes: one(given, "frame-bytes"),
        }),
        Some(("bare-loop", given)) => Command::BareLoop(BareLoopOptions {
            port: one(given, "port"),
            frame_bytes: one(given, "frame-bytes"),
            max_secs: one(given, "max-secs"),
        }),
        Some((_, given)) => {
            Command::ExecGuarded(given.get_many("command").into_iter().flatten().cloned().collect())
        }
        None => command_line().error(clap::error::ErrorKind::MissingSubcommand, "which one?").exit(),
    }
}

/// For arguments that are required or have a default: clap has made sure that they are there.
fn one<T: Clone + Send + Sync + 'static>(given: &ArgMatches, name: &str) -> T {
    match given.get_one::<T>(name) {
        Some(value) => value.clone(),
        None => command_line().error(clap::error::ErrorKind::MissingRequiredArgument, name.to_owned()).exit(),
    }
}

fn parts(given: &ArgMatches) -> Vec<Part> {
    let named: Vec<Part> = given.get_many("only").into_iter().flatten().copied().collect();
    if named.is_empty() { PARTS.iter().map(|(_, part)| *part).collect() } else { named }
}

fn parse_part(text: &str) -> Result<Part, String> {
    PARTS.iter().find(|(name, _)| *name == text).map(|(_, part)| *part).ok_or_else(|| {
        "one of publish, members, delivery, cpu, kinds, memory, unread, fleet, inbox, outbox".to_owned()
    })
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "NAME=VALUE".to_owned())
}

fn option(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help)
}

fn frame_bytes() -> Arg {
    option("frame-bytes", "size of a frame on the wire")
        .default_value("210")
        .value_parser(value_parser!(usize))
}

fn subscribers() -> Arg {
    option("subscribers", "streams in the one-room measurements")
        .default_value("10000")
        .value_parser(value_parser!(usize))
}

fn command_line() -> Clap {
    let run = Clap::new("run")
        .about("Start hubs, measure them, write a report; exit code 1 when a limit is missed")
        .arg(option("hub", "the release build of bongsu").required(true).value_parser(value_parser!(PathBuf)))
        .arg(
            option(
                "out",
                "the report [default: docs/bench.json for a full run, else target/bench/report.json]",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            option("only", "publish,members,delivery,cpu,kinds,memory,unread,fleet,inbox,outbox")
                .value_delimiter(',')
                .value_parser(parse_part),
        )
        .arg(option("quick", "short windows").action(ArgAction::SetTrue))
        .arg(subscribers())
        .arg(
            option("rooms-rate", "publishes a second over 1,000 rooms of 10 subscribers")
                .default_value("2000")
                .value_parser(value_parser!(u32).range(1..)),
        )
        .arg(
            option("users", "people that the streams belong to")
                .default_value("100")
                .value_parser(value_parser!(usize)),
        )
        .arg(
            option("hub-env", "NAME=VALUE, a further setting of the hub")
                .action(ArgAction::Append)
                .value_parser(parse_setting),
        );
    let reference = Clap::new("reference")
        .about("Measure the bare loop alone")
        .arg(subscribers())
        .arg(option("rate", "events a second").default_value("4").value_parser(value_parser!(u32).range(1..)))
        .arg(option("secs", "length of a round").default_value("15").value_parser(value_parser!(u64)))
        .arg(option("rounds", "how many").default_value("3").value_parser(value_parser!(usize)))
        .arg(frame_bytes());
    let bare_loop = Clap::new("bare-loop")
        .about("One epoll loop that writes each published frame to every stream of its room")
        .arg(option("port", "on 127.0.0.1").required(true).value_parser(value_parser!(u16)))
        .arg(frame_bytes())
        .arg(option("max-secs", "ends itself after").default_value("900").value_parser(value_parser!(u64)));
    let exec_guarded = Clap::new("exec-guarded")
        .about("Become another program that dies with this one's parent")
        .hide(true)
        .arg(Arg::new("command").num_args(1..).trailing_var_arg(true).allow_hyphen_values(true));
    Clap::new("bongsu-bench")
        .about("Load generator and the bare loop that the hub is measured against")
        .subcommand_required(true)
        .subcommands([run, reference, bare_loop, exec_guarded])
}
