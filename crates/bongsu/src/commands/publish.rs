//! `bongsu publish`: publishes one event to a running hub.

use bongsu_kernel::settings::{Bad, Values};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use super::client::{block_on, http, result, service_key, unreachable, url, url_arg};
use super::say;
use bongsu_part::Failure;

pub(crate) fn command() -> Command {
    Command::new("publish")
        .about("Publish an event to a room of a running hub")
        .arg(Arg::new("room").long("room").short('r').required(true).help("The room"))
        .arg(
            Arg::new("type")
                .long("type")
                .short('t')
                .required(true)
                .help("The event type, such as comment.created"),
        )
        .arg(Arg::new("data").long("data").short('d').default_value("{}").help("A JSON object"))
        .arg(Arg::new("publisher").long("publisher").help("Whose doing it is"))
        .arg(Arg::new("key").long("key").help("An idempotency key"))
        .arg(Arg::new("to").long("to").action(ArgAction::Append).help("A recipient; may be repeated"))
        .arg(url_arg())
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let data: Value = serde_json::from_str(text("data").unwrap_or("{}"))
        .map_err(|error| Bad(format!("--data is not readable as JSON: {error}")))?;
    let mut body = json!({"roomId": text("room"), "eventType": text("type"), "data": data});
    if let Some(publisher) = text("publisher") {
        body["publisherId"] = publisher.into();
    }
    if let Some(key) = text("key") {
        body["idempotencyKey"] = key.into();
    }
    let recipients: Vec<&String> = matches.get_many("to").into_iter().flatten().collect();
    if !recipients.is_empty() {
        body["recipients"] = json!(recipients);
    }
    block_on(async {
        let answer = http()?
            .post(format!("{}/api/v1/notifications/publish", url(matches, values)))
            .header("x-internal-key", service_key(values))
            .header("accept-language", "en")
            .body(body.to_string())
            .send()
            .await
            .map_err(unreachable)?;
        say(&result(answer).await?.to_string());
        Ok(())
    })
}
