//! `bongsu doctor`: looks for what goes wrong in operation before it does.
//!
//! It leaves everything as it was: what it writes to see whether that works, it removes. Each finding is one line; a bad one
//! makes the exit code 1.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use bongsu_http::server::raise_descriptor_limit;
use bongsu_kernel::findings::Inspection;
use bongsu_kernel::settings::{Values, without_credentials};
use bongsu_kernel::task::Supervisor;
use bongsu_redis::Redis;
use bongsu_sql::{DATA_DIR, DataFolder, check_integrity, inspect};
use clap::{ArgMatches, Command};

use super::client::{block_on, http, service_key, url, url_arg};
use super::{say, token};
use crate::{PARTS, settings};
use bongsu_part::Failure;

pub(crate) fn command() -> Command {
    Command::new("doctor")
        .about("Check the data folder, Redis, the database, clocks, the system's limits, the secrets, and the way to a running hub")
        .arg(url_arg())
}

/// A finding: fine, worth knowing, or bad.
enum Finding {
    Fine(String),
    Note(String),
    Bad(String),
}

use Finding::{Bad, Fine, Note};

pub(crate) fn run(matches: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let folder = Path::new(values.text(&DATA_DIR));
    let mut findings = vec![descriptors(), configuration(values)];
    if bongsu_part::uses_folder(values) {
        findings.extend(data(folder, values));
    }
    findings.extend(block_on(async {
        let mut found = redis(values).await;
        found.extend(database(values).await);
        found.extend(running_hub(&url(matches, values), values).await);
        Ok(found)
    })?);
    let mut bad = 0;
    for finding in &findings {
        say(&match finding {
            Fine(text) => format!("ok    {text}"),
            Note(text) => format!("note  {text}"),
            Bad(text) => {
                bad += 1;
                format!("BAD   {text}")
            }
        });
    }
    if bad > 0 { Err(Failure::Other(format!("{bad} of {} checks are bad", findings.len()))) } else { Ok(()) }
}

fn descriptors() -> Finding {
    match raise_descriptor_limit() {
        limit if limit < 4_096 => {
            Bad(format!("only {limit} open files are allowed: so many connections at most"))
        }
        u64::MAX => Fine("open files are not limited".to_owned()),
        limit => Fine(format!("{limit} open files are allowed: about so many connections")),
    }
}

/// Everything that would keep the hub from starting, and the secrets that only loopback may have.
fn configuration(values: &Values) -> Finding {
    match settings::check(values) {
        Err(error) => Bad(error.to_string()),
        Ok(checked) if checked.weak.is_empty() => {
            Fine("the configuration is sound, all secrets are long enough".to_owned())
        }
        Ok(checked) => {
            Note(format!("{}: development or short; good for loopback only", checked.weak.join(", ")))
        }
    }
}

fn data(folder: &Path, values: &Values) -> Vec<Finding> {
    let shown = folder.display();
    if !folder.exists() {
        return vec![Note(format!("{shown} is not there yet; serve makes it"))];
    }
    let mut findings = vec![disk_space(folder), sync_time(folder)];
    if DataFolder::is_open_to_others(folder) {
        findings.push(Note(format!("other users can read {shown}; serve takes that away from them")));
    }
    let database = DataFolder::database_in(folder);
    match DataFolder::take(folder) {
        Err(error @ bongsu_sql::Error::InUse(..)) => {
            findings.push(Note(format!("{error}: its file is not checked")));
        }
        Err(error) => findings.push(Bad(error.to_string())),
        Ok(_held) if !database.exists() => findings.push(Note(format!("{shown} has no database yet"))),
        Ok(_held) => findings.push(match check_file(&database, values) {
            Ok(()) => Fine(format!("{} is whole and of this version", database.display())),
            Err(error) => Bad(error.to_string()),
        }),
    }
    findings
}

fn check_file(database: &Path, values: &Values) -> Result<(), Failure> {
    inspect(database)?;
    check_integrity(database)?;
    Ok(PARTS.folder_migrations(values)?.check(database)?)
}

/// Whether the server lets us in, is of this version, and keeps what it says it keeps.
async fn database(values: &Values) -> Vec<Finding> {
    // What is wrong with the setting itself is found with the others.
    let Ok(Some(options)) = bongsu_sql::Options::from_settings(values) else { return Vec::new() };
    let Ok(migrations) = PARTS.migrations(values, options.address.dialect()) else { return Vec::new() };
    match bongsu_sql::inspect_server(&options.address, &migrations).await {
        Err(error) => vec![Bad(error.to_string())],
        Ok(found) => {
            let sound =
                format!("{} answers, is of this version and keeps what it acknowledges", options.address);
            engine(&found, sound, "the database")
        }
    }
}

/// Whether every server answers, takes writes, and keeps what it says it keeps.
async fn redis(values: &Values) -> Vec<Finding> {
    let Ok(Some(options)) = bongsu_redis::Options::from_settings(values) else { return Vec::new() };
    match Redis::start(options, &Supervisor::new()).inspect().await {
        Err(error) => vec![Bad(error.to_string())],
        Ok(found) => {
            let sound =
                "Redis answers, takes writes, keeps what it acknowledges and forgets nothing when it is full";
            engine(&found, sound.to_owned(), "Redis")
        }
    }
}

/// The findings about an engine: its unsafe settings, or that there are none, and its clock.
fn engine(found: &Inspection, sound: String, name: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        found.warnings.iter().map(|warning| Note((*warning).to_owned())).collect();
    if findings.is_empty() {
        findings.push(Fine(sound));
    }
    findings.push(clock(name, found.clock_skew_ms));
    findings
}

/// Hubs agree on times by their own clocks: who is connected, when a key or a token ends.
fn clock(name: &str, skew_ms: i64) -> Finding {
    let direction = if skew_ms < 0 { "behind" } else { "ahead of" };
    let differs = format!("the clock of {name} is {} ms {direction} this machine's", skew_ms.unsigned_abs());
    match skew_ms.unsigned_abs() {
        0..=1_000 => Fine(format!("the clock of {name} agrees with this machine's")),
        1_001..=30_000 => Note(differs),
        _ => Bad(format!("{differs}: set one of them right")),
    }
}

fn disk_space(folder: &Path) -> Finding {
    match rustix::fs::statvfs(folder) {
        Err(error) => Bad(format!("{}: free space cannot be read: {error}", folder.display())),
        Ok(stat) => {
            let free = stat.f_bavail.saturating_mul(stat.f_frsize) >> 20;
            let text = format!("{free} MiB are free in {}", folder.display());
            if free < 512 { Bad(text) } else { Fine(text) }
        }
    }
}

/// Every publish waits for the disk; this is how long.
fn sync_time(folder: &Path) -> Finding {
    let path = folder.join("doctor.tmp");
    let measure = || -> std::io::Result<Duration> {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
        let started = Instant::now();
        for _ in 0..20 {
            file.write_all(&[0; 4_096])?;
            file.sync_data()?;
        }
        Ok(started.elapsed() / 20)
    };
    let measured = measure();
    let _ = std::fs::remove_file(&path);
    match measured {
        Err(error) => Bad(format!("{} cannot be written: {error}", folder.display())),
        Ok(time) => {
            let text = format!("a synced write takes {:.2} ms", time.as_secs_f64() * 1_000.0);
            if time > Duration::from_millis(20) {
                Note(format!("{text}: single publishes will be slow"))
            } else {
                Fine(text)
            }
        }
    }
}

async fn running_hub(url: &str, values: &Values) -> Vec<Finding> {
    let shown = without_credentials(url);
    let client = match http() {
        Ok(client) => client,
        Err(failure) => return vec![Bad(failure.to_string())],
    };
    let health = client.get(format!("{url}/health")).timeout(Duration::from_secs(5));
    let Ok(answer) = health.send().await else {
        return vec![Note(format!("no hub answers at {shown}"))];
    };
    let mut findings = Vec::new();
    let health = answer.text().await.unwrap_or_default();
    let health: serde_json::Value = serde_json::from_str(&health).unwrap_or_default();
    let degraded = &health["result"]["degraded"];
    findings.push(match health["result"]["status"].as_str() {
        Some("healthy") => Fine(format!("the hub at {shown} is healthy")),
        Some(_) => Bad(format!("the hub at {shown} is degraded: {degraded}")),
        None => Bad(format!("{shown} answers, but is no hub")),
    });
    let Ok(token) = token::sign(values, Tool::PERSON, 60, None) else {
        findings.push(Note("tokens are signed elsewhere: streams and WebSockets were not tried".to_owned()));
        return findings;
    };
    let tool = Tool { token, key: service_key(values) };
    for path in STREAMS {
        findings.push(stream(&client, url, path, &tool).await);
    }
    findings.push(websocket(url, &tool).await);
    findings
}

/// The credentials of the doctor. Because it sends the key of a service, no room lists it as present.
struct Tool {
    token: String,
    key: String,
}

impl Tool {
    const PERSON: &str = "bongsu-doctor";

    fn get(&self, client: &reqwest::Client, address: String) -> reqwest::RequestBuilder {
        client.get(address).bearer_auth(&self.token).header("x-internal-key", &self.key)
    }
}

/// Every kind of stream: a proxy may treat their paths differently.
const STREAMS: [&str; 3] =
    ["/api/v1/rooms/bongsu-doctor/stream", "/api/v1/stream?rooms=bongsu-doctor", "/api/notifications/stream"];
/// The way to a hub that answers is quicker; a proxy that buffers a stream holds its first bytes back for longer.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(3);

/// Opens a stream and waits for its first bytes: a proxy that buffers them would hold up every event.
async fn stream(client: &reqwest::Client, url: &str, path: &str, tool: &Tool) -> Finding {
    let request = tool.get(client, format!("{url}{path}")).header("accept", "text/event-stream");
    let first = async {
        let mut answer = request.send().await.ok()?;
        // Without records there is no personal stream.
        if answer.status() == reqwest::StatusCode::NOT_FOUND {
            return Some(false);
        }
        answer = answer.error_for_status().ok()?;
        answer.chunk().await.ok().flatten().map(|_| true)
    };
    match tokio::time::timeout(FIRST_BYTES_TIMEOUT, first).await {
        Ok(Some(true)) => Fine(format!("{path} arrives without being buffered on the way")),
        Ok(Some(false)) => Note(format!("{path} is not served")),
        Ok(None) => Bad(format!(
            "{path} of {} could not be opened (is JWT_SECRET the same here?)",
            without_credentials(url)
        )),
        Err(_) => Bad(format!("the first bytes of {path} do not arrive: a proxy on the way buffers them")),
    }
}

/// Asks to change the protocol: a proxy that does not pass the Upgrade header on breaks every WebSocket.
async fn websocket(url: &str, tool: &Tool) -> Finding {
    let opening = async {
        let client = reqwest::Client::builder().http1_only().build().ok()?;
        let request = tool
            .get(&client, format!("{url}/api/v1/ws"))
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "Ym9uZ3N1LWRvY3Rvci0wMQ==");
        request.send().await.ok().map(|answer| answer.status())
    };
    match tokio::time::timeout(FIRST_BYTES_TIMEOUT, opening).await {
        Ok(Some(reqwest::StatusCode::SWITCHING_PROTOCOLS)) => Fine("WebSockets pass".to_owned()),
        Ok(Some(status)) => Bad(format!(
            "a WebSocket is answered {status}: does the proxy pass the Upgrade and Connection headers on?"
        )),
        Ok(None) | Err(_) => Bad(format!("a WebSocket of {} could not be opened", without_credentials(url))),
    }
}
