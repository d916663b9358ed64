//! `bongsu doctor`: checks the configuration, the engines, the machine, and the path to a running hub.
//!
//! The command prints each finding in one line, and exits with code 1 if a finding is bad. It removes the files that it
//! writes for a check.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use bongsu_http::server::raise_descriptor_limit;
use bongsu_kernel::findings::Inspection;
use bongsu_kernel::settings::{Values, redact_url};
use bongsu_kernel::task::Supervisor;
use bongsu_redis::Redis;
use bongsu_sql::{DATA_DIR, DataFolder, check_integrity, inspect};
use clap::{ArgMatches, Command};

use super::client::{block_on, http, service_key, url, url_arg};
use super::{print_line, token};
use crate::{PARTS, settings};
use bongsu_part::Failure;

pub(crate) fn command() -> Command {
    Command::new("doctor")
        .about("Check the data folder, Redis, the database, clocks, the system's limits, the secrets, and the connection to a running hub")
        .arg(url_arg())
}

/// The outcome of a check: fine, worth knowing, or bad.
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
        let mut findings = redis(values).await;
        findings.extend(database(values).await);
        findings.extend(running_hub(&url(matches, values), values).await);
        Ok(findings)
    })?);
    let mut bad = 0;
    for finding in &findings {
        print_line(&match finding {
            Fine(text) => format!("ok    {text}"),
            Note(text) => format!("note  {text}"),
            Bad(text) => {
                bad += 1;
                format!("BAD   {text}")
            }
        });
    }
    if bad > 0 { Err(Failure::Other(format!("{bad} of {} checks failed", findings.len()))) } else { Ok(()) }
}

fn descriptors() -> Finding {
    match raise_descriptor_limit() {
        limit if limit < 4_096 => {
            Bad(format!("only {limit} open files are allowed, and each connection needs one"))
        }
        u64::MAX => Fine("open files are not limited".to_owned()),
        limit => Fine(format!("{limit} open files are allowed: enough for about as many connections")),
    }
}

/// Finds settings that would refuse the start of the hub, and secrets that are allowed on loopback only.
fn configuration(values: &Values) -> Finding {
    match settings::check(values) {
        Err(error) => Bad(error.to_string()),
        Ok(checked) if checked.weak.is_empty() => {
            Fine("the configuration is valid, all secrets are long enough".to_owned())
        }
        Ok(checked) => {
            Note(format!("{}: development or short; good for loopback only", checked.weak.join(", ")))
        }
    }
}

fn data(folder: &Path, values: &Values) -> Vec<Finding> {
    let shown = folder.display();
    if !folder.exists() {
        return vec![Note(format!("{shown} does not exist yet; serve creates it"))];
    }
    let mut findings = vec![disk_space(folder), sync_time(folder)];
    if DataFolder::is_open_to_others(folder) {
        findings.push(Note(format!("other users can read {shown}; serve removes their access")));
    }
    let database = DataFolder::database_in(folder);
    match DataFolder::take(folder) {
        Err(error @ bongsu_sql::Error::InUse(..)) => {
            findings.push(Note(format!("{error}: its file is not checked")));
        }
        Err(error) => findings.push(Bad(error.to_string())),
        Ok(_held) if !database.exists() => findings.push(Note(format!("{shown} has no database yet"))),
        Ok(_held) => findings.push(match check_file(&database, values) {
            Ok(()) => Fine(format!("{} is intact and of this version", database.display())),
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

/// Checks that the database accepts the login, has the schema of this version, and keeps acknowledged commits.
async fn database(values: &Values) -> Vec<Finding> {
    // `configuration` reports an invalid setting.
    let Ok(Some(options)) = bongsu_sql::Options::from_settings(values) else { return Vec::new() };
    let Ok(migrations) = PARTS.migrations(values, options.address.dialect()) else { return Vec::new() };
    match bongsu_sql::inspect_server(&options.address, &migrations).await {
        Err(error) => vec![Bad(error.to_string())],
        Ok(found) => {
            let fine =
                format!("{} answers, is of this version and keeps what it acknowledges", options.address);
            engine(&found, fine, "the database")
        }
    }
}

/// Checks that every server answers, accepts writes, and keeps acknowledged writes.
async fn redis(values: &Values) -> Vec<Finding> {
    let Ok(Some(options)) = bongsu_redis::Options::from_settings(values) else { return Vec::new() };
    match Redis::start(options, &Supervisor::new()).inspect().await {
        Err(error) => vec![Bad(error.to_string())],
        Ok(found) => {
            let fine =
                "Redis answers, takes writes, keeps what it acknowledges and forgets nothing when it is full";
            engine(&found, fine.to_owned(), "Redis")
        }
    }
}

/// The findings about an engine: its unsafe settings, or `fine` if there are none, and its clock.
fn engine(inspection: &Inspection, fine: String, name: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        inspection.warnings.iter().map(|warning| Note((*warning).to_owned())).collect();
    if findings.is_empty() {
        findings.push(Fine(fine));
    }
    findings.push(clock(name, inspection.clock_skew_ms));
    findings
}

/// Reports the skew of a clock. Leases, keys and tokens end early or late if the clocks differ.
fn clock(name: &str, skew_ms: i64) -> Finding {
    let direction = if skew_ms < 0 { "behind" } else { "ahead of" };
    let differs = format!("the clock of {name} is {} ms {direction} this machine's", skew_ms.unsigned_abs());
    match skew_ms.unsigned_abs() {
        0..=1_000 => Fine(format!("the clock of {name} agrees with this machine's")),
        1_001..=30_000 => Note(differs),
        _ => Bad(format!("{differs}: set one of the two clocks")),
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

/// Measures the average time of a synced write. Each publish waits for such a write, or shares one with
/// others.
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
    let shown = redact_url(url);
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
        None => Bad(format!("{shown} answers, but is not a hub")),
    });
    let Ok(token) = token::sign(values, DoctorCredentials::PERSON, 60, None) else {
        let text = "JWKS_URL is set, so doctor cannot sign a token: streams and WebSockets were not tested";
        findings.push(Note(text.to_owned()));
        return findings;
    };
    let credentials = DoctorCredentials { token, key: service_key(values) };
    for path in STREAM_PATHS {
        findings.push(stream(&client, url, path, &credentials).await);
    }
    findings.push(websocket(url, &credentials).await);
    findings
}

/// The credentials of the doctor. With the key of a service, its streams do not appear in presence.
struct DoctorCredentials {
    token: String,
    key: String,
}

impl DoctorCredentials {
    const PERSON: &str = "bongsu-doctor";

    fn get(&self, client: &reqwest::Client, address: String) -> reqwest::RequestBuilder {
        client.get(address).bearer_auth(&self.token).header("x-internal-key", &self.key)
    }
}

/// One path of each kind of stream, because a proxy may treat them differently.
const STREAM_PATHS: [&str; 3] =
    ["/api/v1/rooms/bongsu-doctor/stream", "/api/v1/stream?rooms=bongsu-doctor", "/api/notifications/stream"];
/// A hub answers sooner. A proxy that buffers a stream holds the first bytes back for longer.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(3);

/// Opens a stream and waits for its first bytes. A proxy that buffers them would delay every event.
async fn stream(client: &reqwest::Client, url: &str, path: &str, credentials: &DoctorCredentials) -> Finding {
    let request = credentials.get(client, format!("{url}{path}")).header("accept", "text/event-stream");
    let first = async {
        let mut answer = request.send().await.ok()?;
        // 404: without records the hub serves no personal stream.
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
            "{path} of {} could not be opened (does the hub have the same JWT_SECRET?)",
            redact_url(url)
        )),
        Err(_) => Bad(format!("the first bytes of {path} do not arrive: a proxy on the way buffers them")),
    }
}

/// Requests a WebSocket. A proxy that does not pass the Upgrade header on breaks every WebSocket.
async fn websocket(url: &str, credentials: &DoctorCredentials) -> Finding {
    let opening = async {
        let client = reqwest::Client::builder().http1_only().build().ok()?;
        let request = credentials
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
            "a WebSocket request is answered {status}: does the proxy pass the Upgrade and Connection headers on?"
        )),
        Ok(None) | Err(_) => Bad(format!("a WebSocket to {} could not be opened", redact_url(url))),
    }
}
