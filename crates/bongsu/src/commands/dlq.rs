//! `bongsu dlq`: what was given up, seen and dealt with through a running hub.

use bongsu_http::identity::ADMIN_API_KEY;
use bongsu_kernel::Id;
use bongsu_kernel::settings::{Bad, Values};
use clap::{Arg, ArgAction, ArgMatches, Command};
use reqwest::Method;
use serde_json::{Value, json};

use super::client::{ask, block_on, http, url, url_arg};
use super::{flag, given, option, say};
use bongsu_part::Failure;

pub(crate) fn command() -> Command {
    let queue = || Arg::new("queue").required(true).value_name("QUEUE").help("The queue, such as outbox");
    let id = || Arg::new("id").required(true).value_name("ID").help("The letter");
    Command::new("dlq")
        .about("Dead letters of a running hub: see what was given up, try it again, let it go")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            Command::new("list")
                .about("The queues and how many letters wait there; of one queue, its letters")
                .arg(queue().required(false))
                .arg(option("cursor", "After this one: what the page before ended with"))
                .arg(option("limit", "At most so many, up to 100")),
            Command::new("show").about("One letter, and why it was given up").args([queue(), id()]),
            Command::new("redrive")
                .about("Try letters again")
                .arg(queue())
                .arg(Arg::new("id").value_name("ID").action(ArgAction::Append).help("The letters"))
                .arg(flag("all", "All of them"))
                .arg(option("rate", "With --all: so many a second")),
            Command::new("drop").about("Let a letter go: nobody tries it again").args([queue(), id()]),
        ])
        .arg(url_arg().global(true))
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let Some((name, asked)) = matches.subcommand() else { return Ok(()) };
    let text = |name: &str| given(asked, name);
    let queue = text("queue").unwrap_or_default();
    let (method, path, body) = match name {
        "list" if queue.is_empty() => (Method::GET, String::new(), None),
        "list" => {
            let query: Vec<String> = ["cursor", "limit"]
                .into_iter()
                .filter_map(|name| Some(format!("{name}={}", plain(name, text(name)?).ok()?)))
                .collect();
            (Method::GET, format!("/{}?{}", plain("QUEUE", queue)?, query.join("&")), None)
        }
        "show" | "drop" => {
            let method = if name == "show" { Method::GET } else { Method::DELETE };
            let id = plain("ID", text("id").unwrap_or_default())?;
            (method, format!("/{}/{id}", plain("QUEUE", queue)?), None)
        }
        _ => (Method::POST, format!("/{}/redrive", plain("QUEUE", queue)?), Some(redrive(asked)?)),
    };
    let key = values.list(&ADMIN_API_KEY).into_iter().next().unwrap_or_default();
    let mut request = http()?
        .request(method, format!("{}/api/admin/dlq{path}", url(matches, values)))
        .header("x-admin-key", key);
    if let Some(body) = body {
        request = request.body(body.to_string());
    }
    lines(&block_on(ask(request))?).iter().for_each(|line| say(line));
    Ok(())
}

fn redrive(asked: &ArgMatches) -> Result<Value, Failure> {
    let number = |name: &str, text: &str| {
        text.parse::<i64>().map_err(|_| Bad(format!("{name} {text:?} is not allowed: a whole number")))
    };
    if asked.get_flag("all") {
        let rate = given(asked, "rate").map(|rate| number("--rate", rate)).transpose()?;
        return Ok(json!({"all": true, "rate": rate}));
    }
    let ids = asked.get_many::<String>("id").into_iter().flatten();
    let ids = ids.map(|id| number("ID", id).map(Id::from));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    if ids.is_empty() {
        return Err(Bad("redrive needs the letters' ids, or --all".to_owned()).into());
    }
    Ok(json!({"ids": ids}))
}

/// What may stand in a path as it is.
fn plain<'a>(name: &str, text: &'a str) -> Result<&'a str, Bad> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return Ok(text);
    }
    Err(Bad(format!("{name} {text:?} is not allowed: letters, digits and ._- only")))
}

/// A line for each queue or letter; whatever else there is, as it is.
fn lines(told: &Value) -> Vec<String> {
    let listed = told["queues"].as_array().or_else(|| told["letters"].as_array());
    let mut lines: Vec<String> = match listed {
        Some(items) => items.iter().map(Value::to_string).collect(),
        None => vec![told.to_string()],
    };
    if let Some(cursor) = told["nextCursor"].as_str() {
        lines.push(format!("there are more: --cursor {cursor}"));
    }
    lines
}
