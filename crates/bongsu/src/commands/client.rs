//! The HTTP client of commands that call a running hub.

use std::time::Duration;

use bongsu_http::identity::INTERNAL_API_KEY;
use bongsu_http::server::{SERVER_HOST, SERVER_PORT};
use bongsu_kernel::settings::{SettingError, Values};
use clap::{Arg, ArgMatches};
use reqwest::RequestBuilder;
use serde_json::Value;

use super::{given, option};
use bongsu_part::Failure;

pub(crate) fn url_arg() -> Arg {
    option("url", "The address of the hub; by default the one at which a hub with this configuration listens")
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
            format!("http://{host}:{}", values.integer(&SERVER_PORT))
        }
    }
}

/// Creates the client for the requests of a command.
pub(crate) fn http() -> Result<reqwest::Client, Failure> {
    reqwest::Client::builder().connect_timeout(Duration::from_secs(5)).build().map_err(unreachable)
}

/// The key that commands send as X-Internal-Key. With it, the client of a stream does not appear in presence.
pub(crate) fn service_key(values: &Values) -> String {
    values.list(&INTERNAL_API_KEY).into_iter().next().unwrap_or_default()
}

/// Runs the requests of a command on a runtime of this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::other)?.block_on(work)
}

/// Sends a request and returns the result of its answer.
pub(crate) async fn ask(request: RequestBuilder) -> Result<Value, Failure> {
    result(request.header("accept-language", "en").send().await.map_err(unreachable)?).await
}

/// The result in the envelope of an answer. An error answer becomes a failure with its status, code and message in one
/// line.
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

/// A failure for a connection error, with the address and the innermost cause.
pub(crate) fn unreachable(error: reqwest::Error) -> Failure {
    // Scheme, host and port only: the rest of the URL may contain a credential.
    let address =
        error.url().map(|url| format!(" at {}", url.origin().ascii_serialization())).unwrap_or_default();
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    Failure::Other(format!("the hub{address} cannot be reached: {cause}"))
}

/// Checks that a text can be part of a path without escaping.
pub(super) fn plain<'a>(name: &str, text: &'a str) -> Result<&'a str, SettingError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._@:-".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return Ok(text);
    }
    Err(SettingError(format!("{name} {text:?} is not allowed: letters, digits and ._@:- only")))
}
