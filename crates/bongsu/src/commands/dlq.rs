//! `bongsu dlq`: lists, redrives and discards dead letters through a running hub.

use bongsu_http::identity::ADMIN_API_KEY;
use bongsu_kernel::Id;
use bongsu_kernel::settings::{SettingError, Values};
use clap::{Arg, ArgAction, ArgMatches, Command};
use reqwest::Method;
use serde_json::{Value, json};

use super::client::{ask, block_on, http, plain, url, url_arg};
use super::{flag, given, option, print_line};
use bongsu_part::Failure;

pub(crate) fn command() -> Command {
    let queue = || {
        Arg::new("queue")
            .required(true)
            .value_name("QUEUE")
            .help("The name of the queue: outbox or follow-ups")
    };
    let id = || Arg::new("id").required(true).value_name("ID").help("The id of the dead letter");
    Command::new("dlq")
        .about("List, show, redrive or discard the dead letters of a running hub")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list")
                .about("List the queues with their numbers of dead letters, or the dead letters of one queue")
                .arg(queue().required(false))
                .arg(option("cursor", "List dead letters after this id, the cursor of the previous page"))
                .arg(option("limit", "The maximum number of dead letters, up to 100")),
            Command::new("show")
                .about("Show a dead letter, with the reason why it was given up")
                .args([queue(), id()]),
            Command::new("redrive")
                .about("Handle dead letters again")
                .arg(queue())
                .arg(Arg::new("id").value_name("ID").action(ArgAction::Append).help("Ids of dead letters"))
                .arg(flag("all", "Redrive all dead letters of the queue"))
                .arg(option("rate", "With --all: the number of dead letters per second")),
            Command::new("drop")
                .about("Discard a dead letter, so that it is never handled again")
                .args([queue(), id()]),
        ])
        .arg(url_arg().global(true))
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let Some((name, arguments)) = matches.subcommand() else { return Ok(()) };
    let text = |name: &str| given(arguments, name);
    let queue = text("queue").unwrap_or_default();
    let (method, path, body) = match name {
        "list" if queue.is_empty() => (Method::GET, String::new(), None),
        "list" => {
            let given = ["cursor", "limit"].into_iter().filter_map(|name| Some((name, text(name)?)));
            let query = given
                .map(|(name, value)| Ok(format!("{name}={}", plain(&format!("--{name}"), value)?)))
                .collect::<Result<Vec<_>, SettingError>>()?;
            (Method::GET, format!("/{}?{}", plain("QUEUE", queue)?, query.join("&")), None)
        }
        "show" | "drop" => {
            let method = if name == "show" { Method::GET } else { Method::DELETE };
            let id = plain("ID", text("id").unwrap_or_default())?;
            (method, format!("/{}/{id}", plain("QUEUE", queue)?), None)
        }
        _ => (Method::POST, format!("/{}/redrive", plain("QUEUE", queue)?), Some(redrive(arguments)?)),
    };
    let key = values.list(&ADMIN_API_KEY).into_iter().next().unwrap_or_default();
    let mut request = http()?
        .request(method, format!("{}/api/admin/dlq{path}", url(matches, values)))
        .header("x-admin-key", key);
    if let Some(body) = body {
        request = request.body(body.to_string());
    }
    lines(&block_on(ask(request))?).iter().for_each(|line| print_line(line));
    Ok(())
}

fn redrive(arguments: &ArgMatches) -> Result<Value, Failure> {
    let number = |name: &str, text: &str| {
        text.parse::<i64>()
            .map_err(|_| SettingError(format!("{name} {text:?} is not allowed: a whole number")))
    };
    if arguments.get_flag("all") {
        let rate = given(arguments, "rate").map(|rate| number("--rate", rate)).transpose()?;
        return Ok(json!({"all": true, "rate": rate}));
    }
    let ids = arguments.get_many::<String>("id").into_iter().flatten();
    let ids = ids.map(|id| number("ID", id).map(Id::from));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    if ids.is_empty() {
        return Err(SettingError("redrive needs the ids of dead letters, or --all".to_owned()).into());
    }
    Ok(json!({"ids": ids}))
}

/// One line for each queue or dead letter of a result; one line for any other result.
fn lines(result: &Value) -> Vec<String> {
    let items = result["queues"].as_array().or_else(|| result["letters"].as_array());
    let mut lines: Vec<String> = match items {
        Some(items) => items.iter().map(Value::to_string).collect(),
        None => vec![result.to_string()],
    };
    if let Some(cursor) = result["nextCursor"].as_str() {
        lines.push(format!("there are more: --cursor {cursor}"));
    }
    lines
}
