//! What the commands that talk to a running hub share.

use std::time::Duration;

use bongsu_http::identity::INTERNAL_API_KEY;
use bongsu_http::server::{SERVER_HOST, SERVER_PORT};
use bongsu_kernel::settings::Values;
use clap::{Arg, ArgMatches};
use reqwest::RequestBuilder;
use serde_json::Value;

use super::{given, option};
use bongsu_part::Failure;

pub(crate) fn url_arg() -> Arg {
    option("url", "The hub's address; by default where this configuration would serve")
}

pub(crate) fn url(matches: &ArgMatches, values: &Values) -> String {
    match given(matches, "url") {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => {
            let host = match values.text(&SERVER_HOST) {
                "0.0.0.0" => "127.0.0.1".to_owned(),
                "::" => "[::1]".to_owned(),
                host if host.contains(':') => format!("[{host}]"),
                host => host.to_owned(),
            };
            format!("http://{host}:{}", values.whole(&SERVER_PORT))
        }
    }
}

/// A client for a command's requests.
pub(crate) fn http() -> Result<reqwest::Client, Failure> {
    reqwest::Client::builder().connect_timeout(Duration::from_secs(5)).build().map_err(unreachable)
}

/// The key that commands send as X-Internal-Key. On a stream the hub then lists the client in no presence.
pub(crate) fn service_key(values: &Values) -> String {
    values.list(&INTERNAL_API_KEY).into_iter().next().unwrap_or_default()
}

/// Runs a command's requests.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::other)?.block_on(work)
}

/// Sends a request for the result of its answer, or its error in one line.
pub(crate) async fn ask(request: RequestBuilder) -> Result<Value, Failure> {
    result(request.header("accept-language", "en").send().await.map_err(unreachable)?).await
}

/// The result of an answer, or its error in one line.
pub(crate) async fn result(answer: reqwest::Response) -> Result<Value, Failure> {
    let status = answer.status();
    let body = answer.text().await.map_err(unreachable)?;
    let envelope: Value = serde_json::from_str(&body).unwrap_or_default();
    if status.is_success() {
        return Ok(envelope["result"].clone());
    }
    let code = envelope["code"].as_str().unwrap_or_default();
    let message = envelope["message"].as_str().unwrap_or(body.trim());
    Err(Failure::Other(format!("{} {code}: {message}", status.as_u16())))
}

/// An error of the connection, with where it went to and its innermost cause.
pub(crate) fn unreachable(error: reqwest::Error) -> Failure {
    // Scheme and host only: the rest may carry a credential.
    let place =
        error.url().map(|url| format!(" at {}", url.origin().ascii_serialization())).unwrap_or_default();
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    Failure::Other(format!("the hub{place} cannot be reached: {cause}"))
}
