//! A real browser: headless Chromium, controlled through chromedriver with the WebDriver protocol.
//!
//! Each browser has its own empty profile and makes no requests of its own to the internet. Dropping a browser ends all
//! of its processes. A WebDriver error is a panic with its reason.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{process, tier, wait};

const START_TIMEOUT: Duration = Duration::from_secs(60);
const CHROMIUM_FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-crash-reporter",
    // Containers have little shared memory.
    "--disable-dev-shm-usage",
    "--no-proxy-server",
    "--window-size=1280,900",
];

/// A running browser with one window.
pub struct Browser {
    driver: Child,
    client: reqwest::Client,
    /// `http://127.0.0.1:port/session/id`.
    session: String,
    profile: TempDir,
}

impl Browser {
    /// Starts a browser. None if this run has no browser; [`tier::needs_engine`] reports the skipped test.
    pub async fn start() -> Option<Self> {
        if !tier::needs_engine("chromium") {
            return None;
        }
        let profile = tempfile::Builder::new()
            .prefix("bongsu-browser-")
            .tempdir()
            .expect("cannot create a temporary folder");
        let log = profile.path().join("driver.log");
        let output = File::create(&log).expect("cannot create the log file");
        let mut command = Command::new(tier::program("chromedriver"));
        command.arg("--port=0").stdin(Stdio::null());
        let errors = output.try_clone().expect("cannot duplicate the handle of the log file");
        command.stderr(errors).stdout(output);
        let driver = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let client = reqwest::Client::builder().no_proxy().build().expect("cannot build an HTTP client");
        // From here on, a panic drops the browser, which kills the driver.
        let mut browser = Self { driver, client, session: String::new(), profile };
        let port = wait::value_within(START_TIMEOUT, || async { driver_port(&log) }).await;
        let port = port.unwrap_or_else(|| panic!("chromedriver did not start: {}", read(&log)));
        browser.session = format!("http://127.0.0.1:{port}/session");
        let created = browser.command("", Some(browser.capabilities())).await;
        let id = created["sessionId"].as_str().expect("chromedriver returned no session id");
        browser.session = format!("{}/{id}", browser.session);
        Some(browser)
    }

    fn capabilities(&self) -> Value {
        let folder = format!("--user-data-dir={}", self.user_data().display());
        let args: Vec<&str> = CHROMIUM_FLAGS.into_iter().chain([folder.as_str()]).collect();
        json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            // The certificates of tests are self-signed.
            "acceptInsecureCerts": true,
            "goog:chromeOptions": {"binary": tier::program("chromium"), "args": args},
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": 60_000, "pageLoad": 60_000},
        }}})
    }

    fn user_data(&self) -> std::path::PathBuf {
        self.profile.path().join("profile")
    }

    /// Loads a page and waits until it is loaded.
    pub async fn goto(&self, url: &str) {
        self.command("/url", Some(json!({ "url": url }))).await;
    }

    /// The value of a JavaScript expression; a promise is awaited.
    pub async fn eval(&self, expression: &str) -> Value {
        self.try_eval(expression).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// As [`Browser::eval`]; the error is the exception that the expression threw.
    pub async fn try_eval(&self, expression: &str) -> Result<Value, String> {
        let expression = expression.trim().trim_end_matches(';');
        self.execute(&format!("return ({expression});")).await
    }

    /// Runs the body of an async function (it may use `await` and `return`) and returns its result.
    pub async fn eval_async(&self, body: &str) -> Value {
        let script = format!("return (async () => {{ {body}\n }})();");
        self.execute(&script).await.unwrap_or_else(|error| panic!("{error}"))
    }

    async fn execute(&self, script: &str) -> Result<Value, String> {
        self.try_command("/execute/sync", Some(json!({"script": script, "args": []}))).await
    }

    /// Sets a cookie for the current page.
    pub async fn set_cookie(&self, name: &str, value: &str) {
        self.add_cookie(json!({"name": name, "value": value, "path": "/"})).await;
    }

    /// Sets a cookie with any WebDriver attributes (`httpOnly`, `secure`, `sameSite`, `domain`, `expiry`).
    pub async fn add_cookie(&self, cookie: Value) {
        self.command("/cookie", Some(json!({ "cookie": cookie }))).await;
    }

    /// Saves a screenshot of the window as a PNG file.
    pub async fn screenshot(&self, path: impl AsRef<Path>) {
        let encoded = self.command("/screenshot", None).await;
        let encoded = encoded.as_str().expect("chromedriver returned no screenshot");
        let bytes = STANDARD.decode(encoded).expect("the screenshot is not base64");
        std::fs::write(path.as_ref(), bytes).expect("cannot write the screenshot");
    }

    /// Waits until a JavaScript expression is truthy; panics with the console messages if it is not within `timeout`.
    pub async fn wait_for(&self, condition: &str, timeout: Duration) {
        let holds = format!("!!({})", condition.trim().trim_end_matches(';'));
        if !wait::holds_within(timeout, async || self.eval(&holds).await == true).await {
            panic!("{condition} did not hold within {timeout:?}; the console: {:#?}", self.console().await);
        }
    }

    /// The messages that the page and the browser wrote to the console since the last call.
    pub async fn console(&self) -> Vec<String> {
        let entries = self.command("/se/log", Some(json!({"type": "browser"}))).await;
        let entries = entries.as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    async fn command(&self, path: &str, body: Option<Value>) -> Value {
        self.try_command(path, body).await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Sends a WebDriver command; the error is the driver's.
    async fn try_command(&self, path: &str, body: Option<Value>) -> Result<Value, String> {
        let url = format!("{}{path}", self.session);
        let request = match &body {
            Some(body) => {
                self.client.post(&url).header("content-type", "application/json").body(body.to_string())
            }
            None => self.client.get(&url),
        };
        let response =
            request.send().await.unwrap_or_else(|error| panic!("no response from chromedriver: {error:?}"));
        let ok = response.status().is_success();
        let text = response.text().await.expect("cannot read the response of chromedriver");
        let mut answer: Value = serde_json::from_str(&text).unwrap_or_default();
        if ok {
            return Ok(answer["value"].take());
        }
        let (error, message) = (&answer["value"]["error"], &answer["value"]["message"]);
        Err(format!("{path} {}: {error} {message}", body.unwrap_or_default()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Helper processes of the browser detach from the driver. They are found by the profile path in their command
        // lines.
        let profile = self.user_data().display().to_string();
        let descendants = process::descendants(self.driver.id());
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        for pid in descendants {
            process::signal(pid, Signal::KILL);
        }
        for _ in 0..200 {
            let left = process::with_argument(&profile);
            if left.is_empty() {
                break;
            }
            left.into_iter().for_each(|pid| process::signal(pid, Signal::KILL));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn read(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

/// The port that chromedriver printed to its log.
fn driver_port(log: &Path) -> Option<u16> {
    let text = read(log);
    let (_, rest) = text.split_once("started successfully on port ")?;
    let (digits, _) = rest.split_once('.')?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fixture;

    const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
    const PAGE: &str = "<!doctype html><title>fixture</title><p id=p>hello</p><script>
        window.seen = [];
        new EventSource('/events').onmessage = e => { seen.push(e.lastEventId + ' ' + e.data); console.log(e.data) };
        </script>";

    #[tokio::test]
    async fn a_real_browser_loads_reads_and_reconnects() {
        let Some(browser) = Browser::start().await else { return };
        let events = "retry: 10\nid: 1\ndata: beacon\n\n";
        let pages =
            Fixture::pages([("/", "text/html", PAGE), ("/events", "text/event-stream", events)]).await;
        browser.goto(&pages.url("/")).await;
        assert_eq!(browser.eval("document.title;").await, "fixture");
        browser.wait_for("seen.length >= 3", WAIT_TIMEOUT).await;
        assert_eq!(browser.eval("seen.slice(0, 2)").await, json!(["1 beacon", "1 beacon"]));
        assert!(browser.console().await.iter().any(|line| line.contains("beacon")));

        let script = "const answer = await fetch('/'); return [answer.status, (await answer.text()).length]";
        assert_eq!(browser.eval_async(script).await, json!([200, PAGE.len()]));
        let mistake = browser.try_eval("nothing.at.all").await.unwrap_err();
        assert!(mistake.contains("nothing is not defined"), "{mistake}");
        browser.set_cookie("access_token", "abc").await;
        assert_eq!(browser.eval("document.cookie").await, "access_token=abc");
        let file = browser.profile.path().join("window.png");
        browser.screenshot(&file).await;
        assert!(std::fs::read(&file).unwrap().starts_with(b"\x89PNG"));

        let (driver, profile) = (browser.driver.id(), browser.user_data());
        assert!(process::with_argument(profile.to_str().unwrap()).len() > 1);
        drop(browser);
        assert!(process::with_argument(profile.to_str().unwrap()).is_empty());
        assert!(!Path::new(&format!("/proc/{driver}")).exists());
        assert!(!profile.exists());
    }
}
