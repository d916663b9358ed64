//! `bongsu publish`: publishes one event to a running hub.

use bongsu_kernel::settings::{SettingError, Values};
use clap::{ArgAction, ArgMatches, Command};
use serde_json::{Value, json};

use super::client::{ask, block_on, http, service_key, url, url_arg};
use super::{given, option, print_line};
use bongsu_part::Failure;

pub(crate) fn command() -> Command {
    Command::new("publish")
        .about("Publish an event to a room of a running hub")
        .arg(option("room", "The id of the room to publish to").short('r').required(true))
        .arg(option("type", "The event type, such as comment.created").short('t').required(true))
        .arg(option("data", "The data of the event, a JSON object").short('d').default_value("{}"))
        .arg(option("publisher", "The id of the person who caused the event, who is not notified of it"))
        .arg(option(
            "key",
            "An idempotency key: of several commands with the same key, only the first stores an event",
        ))
        .arg(option("to", "The id of a person to notify; may be repeated").action(ArgAction::Append))
        .arg(url_arg())
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let text = |name: &str| given(matches, name);
    let data: Value = serde_json::from_str(text("data").unwrap_or("{}"))
        .map_err(|error| SettingError(format!("--data is not valid JSON: {error}")))?;
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
    let request = http()?
        .post(format!("{}/api/v1/notifications/publish", url(matches, values)))
        .header("x-internal-key", service_key(values))
        .body(body.to_string());
    print_line(&block_on(ask(request))?.to_string());
    Ok(())
}
