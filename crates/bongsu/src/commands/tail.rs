//! `bongsu tail`: shows a room's events as they come, and comes back by itself after an interruption.

use std::time::Duration;

use bongsu_kernel::settings::Values;
use clap::{ArgMatches, Command};
use reqwest::StatusCode;
use serde_json::Value;

use super::client::{block_on, http, result, service_key, unreachable, url, url_arg};
use super::{given, option, say, token};
use bongsu_part::Failure;

pub(crate) fn command() -> Command {
    Command::new("tail")
        .about("Show a room's events as they come")
        .arg(option("room", "The room").short('r').required(true))
        .arg(option("since", "Everything after this id first; 0-0: from the beginning"))
        .arg(option("token", "A person's token; by default one is signed with JWT_SECRET"))
        .arg(url_arg())
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let room = given(matches, "room").unwrap_or_default();
    let token = match given(matches, "token") {
        Some(token) => token.to_owned(),
        None => token::sign(values, "bongsu-tail", 86_400, None)?,
    };
    let mut tail = Tail {
        address: format!("{}/api/v1/rooms/{room}/stream", url(matches, values)),
        token,
        key: service_key(values),
        last: given(matches, "since").map(str::to_owned),
        retry: Duration::from_secs(1),
        ended: false,
        reason: None,
    };
    block_on(async move {
        let client = http()?;
        let mut was_connected = false;
        while !tail.ended {
            match tail.follow(&client).await {
                Ok(()) => was_connected = true,
                // What was never there is an error, and so is a refusal; what was there comes back.
                Err(failure) if !was_connected || tail.ended => return Err(failure),
                Err(_) => {}
            }
            tokio::time::sleep(tail.retry).await;
        }
        // It follows until somebody stops it; an end for good is news.
        Err(Failure::Other(tail.reason.unwrap_or_else(|| "the stream has ended".to_owned())))
    })
}

struct Tail {
    address: String,
    token: String,
    key: String,
    last: Option<String>,
    retry: Duration,
    ended: bool,
    /// Why it ended for good.
    reason: Option<String>,
}

/// The fields of a frame, as far as they have come.
#[derive(Default)]
struct Frame {
    event: String,
    id: Option<String>,
    data: String,
}

impl Tail {
    /// One connection, until it ends.
    async fn follow(&mut self, client: &reqwest::Client) -> Result<(), Failure> {
        let mut request = client
            .get(&self.address)
            .bearer_auth(&self.token)
            .header("x-internal-key", &self.key)
            .header("accept", "text/event-stream")
            .header("accept-language", "en");
        if let Some(last) = &self.last {
            request = request.header("last-event-id", last);
        }
        let mut answer = request.send().await.map_err(unreachable)?;
        if answer.status() == StatusCode::NO_CONTENT {
            self.ended = true;
            return Ok(());
        }
        if !answer.status().is_success() {
            self.ended = true;
            return result(answer).await.map(drop);
        }
        let (mut rest, mut frame) = (Vec::new(), Frame::default());
        while let Ok(Some(chunk)) = answer.chunk().await {
            rest.extend_from_slice(&chunk);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                self.take_line(String::from_utf8_lossy(&line).trim_end_matches('\n'), &mut frame);
            }
        }
        Ok(())
    }

    /// The hub ends its lines with a line feed, and writes one space after a colon.
    fn take_line(&mut self, line: &str, frame: &mut Frame) {
        match line.split_once(": ") {
            Some(("event", name)) => name.clone_into(&mut frame.event),
            Some(("id", id)) => frame.id = Some(id.to_owned()),
            Some(("data", data)) => data.clone_into(&mut frame.data),
            Some(("retry", ms)) => self.retry = Duration::from_millis(ms.parse().unwrap_or(1_000)),
            _ if line.is_empty() && !frame.event.is_empty() => {
                let Frame { event, id, data } = std::mem::take(frame);
                say(&format!("{} {event} {data}", id.as_deref().unwrap_or("-")));
                if event == "system.close" {
                    let close: Value = serde_json::from_str(&data).unwrap_or_default();
                    self.ended = close["reconnect"] == false;
                    self.reason =
                        close["reason"].as_str().map(|reason| format!("the stream has ended: {reason}"));
                }
                self.last = id.or(self.last.take());
            }
            _ => {}
        }
    }
}
