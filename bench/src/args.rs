//! The command line: four subcommands, of which `exec-guarded` is internal.
//! Here are only values that a person may choose; all other sizes and durations are in `measure::sizes`.

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

/// Parses the command line. Ends the process with a usage message when an argument is invalid.
pub(crate) fn parse() -> Command {
    match command_line().get_matches().subcommand() {
        Some(("run", matches)) => Command::Run(RunOptions {
            hub: required(matches, "hub"),
            out: matches.get_one("out").cloned(),
            parts: parts(matches),
            quick: matches.get_flag("quick"),
            subscribers: required(matches, "subscribers"),
            rooms_rate: required(matches, "rooms-rate"),
            users: required(matches, "users"),
            hub_settings: matches.get_many("hub-env").into_iter().flatten().cloned().collect(),
        }),
        Some(("reference", matches)) => Command::Reference(ReferenceOptions {
            subscribers: required(matches, "subscribers"),
            rate: required(matches, "rate"),
            secs: required(matches, "secs"),
            rounds: required(matches, "rounds"),
            frame_bytes: required(matches, "frame-bytes"),
        }),
        Some(("bare-loop", matches)) => Command::BareLoop(BareLoopOptions {
            port: required(matches, "port"),
            frame_bytes: required(matches, "frame-bytes"),
            max_secs: required(matches, "max-secs"),
        }),
        Some((_, matches)) => {
            Command::ExecGuarded(matches.get_many("command").into_iter().flatten().cloned().collect())
        }
        None => {
            command_line().error(clap::error::ErrorKind::MissingSubcommand, "a subcommand is required").exit()
        }
    }
}

/// The value of an argument that is required or has a default, so that clap always provides one.
fn required<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, name: &str) -> T {
    match matches.get_one::<T>(name) {
        Some(value) => value.clone(),
        None => command_line().error(clap::error::ErrorKind::MissingRequiredArgument, name.to_owned()).exit(),
    }
}

fn parts(matches: &ArgMatches) -> Vec<Part> {
    let named: Vec<Part> = matches.get_many("only").into_iter().flatten().copied().collect();
    if named.is_empty() { PARTS.iter().map(|(_, part)| *part).collect() } else { named }
}

fn parse_part(text: &str) -> Result<Part, String> {
    PARTS.iter().find(|(name, _)| *name == text).map(|(_, part)| *part).ok_or_else(|| {
        "allowed: publish, members, delivery, cpu, kinds, memory, unread, fleet, inbox, outbox".to_owned()
    })
}

fn parse_setting(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "expected NAME=VALUE".to_owned())
}

fn option(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help)
}

fn frame_bytes() -> Arg {
    option("frame-bytes", "size of a frame on the wire, in bytes")
        .default_value("210")
        .value_parser(value_parser!(usize))
}

fn subscribers() -> Arg {
    option("subscribers", "number of streams in the one-room measurements")
        .default_value("10000")
        .value_parser(value_parser!(usize))
}

fn command_line() -> Clap {
    let run = Clap::new("run")
        .about("Start hubs, measure them and write a report; the exit code is 1 when a limit is missed")
        .arg(
            option("hub", "path of the hub's executable, built for release")
                .required(true)
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            option(
                "out",
                "path of the report [default: docs/bench.json for a full run, else target/bench/report.json]",
            )
            .value_parser(value_parser!(PathBuf)),
        )
        .arg(
            option(
                "only",
                "measure only these: publish,members,delivery,cpu,kinds,memory,unread,fleet,inbox,outbox",
            )
            .value_delimiter(',')
            .value_parser(parse_part),
        )
        .arg(option("quick", "measure for a shorter time").action(ArgAction::SetTrue))
        .arg(subscribers())
        .arg(
            option("rooms-rate", "publishes per second to 1,000 rooms with 10 subscribers each")
                .default_value("2000")
                .value_parser(value_parser!(u32).range(1..)),
        )
        .arg(
            option("users", "number of persons that open the streams")
                .default_value("100")
                .value_parser(value_parser!(usize)),
        )
        .arg(
            option("hub-env", "NAME=VALUE, an additional setting of the hub")
                .action(ArgAction::Append)
                .value_parser(parse_setting),
        );
    let reference = Clap::new("reference")
        .about("Measure the bare loop alone")
        .arg(subscribers())
        .arg(
            option("rate", "events per second")
                .default_value("4")
                .value_parser(value_parser!(u32).range(1..)),
        )
        .arg(
            option("secs", "duration of a round, in seconds")
                .default_value("15")
                .value_parser(value_parser!(u64)),
        )
        .arg(option("rounds", "number of rounds").default_value("3").value_parser(value_parser!(usize)))
        .arg(frame_bytes());
    let bare_loop = Clap::new("bare-loop")
        .about("Run one epoll loop that writes each published frame to every stream of its room")
        .arg(option("port", "port on 127.0.0.1").required(true).value_parser(value_parser!(u16)))
        .arg(frame_bytes())
        .arg(
            option("max-secs", "the process ends after this many seconds")
                .default_value("900")
                .value_parser(value_parser!(u64)),
        );
    let exec_guarded = Clap::new("exec-guarded")
        .about("Replace this process by another program, which is killed when the parent process ends")
        .hide(true)
        .arg(Arg::new("command").num_args(1..).trailing_var_arg(true).allow_hyphen_values(true));
    Clap::new("bongsu-bench")
        .about("Load generator and the bare loop that the hub is measured against")
        .subcommand_required(true)
        .subcommands([run, reference, bare_loop, exec_guarded])
}
