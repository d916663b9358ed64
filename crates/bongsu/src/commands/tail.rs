//! `bongsu tail`: prints the events of a room as they arrive, and reconnects after an interruption.

use std::time::Duration;

use bongsu_kernel::settings::Values;
use clap::{ArgMatches, Command};
use reqwest::StatusCode;
use serde_json::Value;

use super::client::{block_on, http, plain, result, service_key, unreachable, url, url_arg};
use super::{given, option, print_line, token};
use bongsu_part::Failure;

pub(crate) fn command() -> Command {
    Command::new("tail")
        .about("Show a room's events as they arrive")
        .arg(option("room", "The id of the room").short('r').required(true))
        .arg(option("since", "Show the events after this id first; 0-0 begins with the oldest event"))
        .arg(option("token", "A person's token; by default one is signed with JWT_SECRET"))
        .arg(url_arg())
}

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let room = plain("--room", given(matches, "room").unwrap_or_default())?;
    let token = match given(matches, "token") {
        Some(token) => token.to_owned(),
        None => token::sign(values, "bongsu-tail", 86_400, None)?,
    };
    let mut tail = Tail {
        address: format!("{}/api/v1/rooms/{room}/stream", url(matches, values)),
        token,
        key: service_key(values),
        last_event_id: given(matches, "since").map(str::to_owned),
        retry_delay: Duration::from_secs(1),
        has_ended: false,
        end_reason: None,
    };
    block_on(async move {
        let client = http()?;
        let mut was_connected = false;
        while !tail.has_ended {
            match tail.follow(&client).await {
                Ok(()) => was_connected = true,
                // A first connection that fails and a refusal are errors. A connection that was lost is retried.
                Err(failure) if !was_connected || tail.has_ended => return Err(failure),
                Err(_) => {}
            }
            tokio::time::sleep(tail.retry_delay).await;
        }
        // The command runs until the user stops it, so a stream that ends for good is a failure.
        Err(Failure::Other(tail.end_reason.unwrap_or_else(|| "the stream has ended".to_owned())))
    })
}

struct Tail {
    address: String,
    token: String,
    key: String,
    last_event_id: Option<String>,
    retry_delay: Duration,
    /// The stream must not be opened again.
    has_ended: bool,
    end_reason: Option<String>,
}

/// The fields of a frame that have arrived.
#[derive(Default)]
struct Frame {
    event: String,
    id: Option<String>,
    data: String,
}

impl Tail {
    /// Opens the stream and prints its events until the connection ends.
    async fn follow(&mut self, client: &reqwest::Client) -> Result<(), Failure> {
        let mut request = client
            .get(&self.address)
            .bearer_auth(&self.token)
            .header("x-internal-key", &self.key)
            .header("accept", "text/event-stream")
            .header("accept-language", "en");
        if let Some(last) = &self.last_event_id {
            request = request.header("last-event-id", last);
        }
        let mut answer = request.send().await.map_err(unreachable)?;
        if answer.status() == StatusCode::NO_CONTENT {
            self.has_ended = true;
            return Ok(());
        }
        let status = answer.status();
        if !status.is_success() {
            // A hub that is shutting down, and a proxy without a hub behind it, refuse for a moment.
            self.has_ended = !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS;
            return result(answer).await.map(drop);
        }
        let (mut buffer, mut frame) = (Vec::new(), Frame::default());
        while let Ok(Some(chunk)) = answer.chunk().await {
            buffer.extend_from_slice(&chunk);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                self.take_line(String::from_utf8_lossy(&line).trim_end_matches('\n'), &mut frame);
            }
        }
        Ok(())
    }

    /// Parses one line. The hub ends lines with a line feed, and writes one space after a colon.
    fn take_line(&mut self, line: &str, frame: &mut Frame) {
        match line.split_once(": ") {
            Some(("event", name)) => name.clone_into(&mut frame.event),
            Some(("id", id)) => frame.id = Some(id.to_owned()),
            Some(("data", data)) => data.clone_into(&mut frame.data),
            Some(("retry", ms)) => self.retry_delay = Duration::from_millis(ms.parse().unwrap_or(1_000)),
            // A frame with an id and no event, such as the first frame of a stream, only moves the position.
            _ if line.is_empty() && frame.event.is_empty() => {
                self.last_event_id = frame.id.take().or(self.last_event_id.take());
            }
            _ if line.is_empty() => {
                let Frame { event, id, data } = std::mem::take(frame);
                print_line(&format!("{} {event} {data}", id.as_deref().unwrap_or("-")));
                if event == "system.close" {
                    let close: Value = serde_json::from_str(&data).unwrap_or_default();
                    self.has_ended = close["reconnect"] == false;
                    self.end_reason =
                        close["reason"].as_str().map(|reason| format!("the stream has ended: {reason}"));
                }
                self.last_event_id = id.or(self.last_event_id.take());
            }
            _ => {}
        }
    }
}
