//! One server, with one connection that all callers share. A command opens a new connection if there is none
//! or the old one is broken.
//!
//! Only one attempt to connect runs at a time; the other callers wait for it. When it fails, commands within the next
//! 200 ms fail at once with the same error.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bongsu_kernel::lock;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::runtime::Handle;

use crate::COMMAND_TIMEOUT;
use crate::address::Login;
use crate::error::{Error, Result};

/// Time limit for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time after a failed attempt to connect during which commands fail with its error.
const FAILURE_LIFETIME: Duration = Duration::from_millis(200);

/// How the address of a server is found.
pub(crate) enum Location {
    Url(String),
    Sentinel { sentinels: Vec<String>, name: String, login: Login },
}

/// Why a command has no answer.
pub(crate) enum Failure {
    /// There was no connection.
    NotSent(String),
    /// The command was sent and failed.
    Sent(RedisError),
}

impl Failure {
    pub(crate) fn to_error(&self) -> Error {
        match self {
            Self::NotSent(why) => Error::Unreachable(why.clone()),
            Self::Sent(error) => Error::of_sent(error),
        }
    }
}

pub(crate) struct Node {
    location: Location,
    /// Runs the task of the connection, which must outlive the caller that happened to open it.
    runtime: Handle,
    state: Mutex<State>,
    /// Held by the attempt to connect.
    connecting: tokio::sync::Mutex<()>,
    /// The server answered as a replica, see [`Node::take_demotion`].
    was_demoted: AtomicBool,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// The number of the connection, so that an error of an earlier connection does not drop this one.
    generation: u64,
    /// When the last attempt to connect failed, and why.
    failure: Option<(Instant, String)>,
}

impl Node {
    pub(crate) fn new(location: Location) -> Self {
        let (state, connecting) = (Mutex::default(), tokio::sync::Mutex::new(()));
        Self { location, runtime: Handle::current(), state, connecting, was_demoted: AtomicBool::new(false) }
    }

    /// Sends a command. With `asking` sends ASKING first, which a Cluster requires after an ASK redirect.
    pub(crate) async fn send(&self, command: &Cmd, asking: bool) -> Result<Value, Failure> {
        let (generation, mut connection) = self.connection().await?;
        let answer = async {
            if asking {
                let mut pipeline = redis::pipe();
                pipeline.cmd("ASKING").ignore().add_command(command.clone());
                let mut answers: Vec<Value> = pipeline.query_async(&mut connection).await?;
                Ok(answers.pop().unwrap_or(Value::Nil))
            } else {
                command.query_async(&mut connection).await
            }
        };
        let outcome: Result<Value, RedisError> = answer.await;
        outcome.map_err(|error| {
            if is_read_only(&error) {
                self.was_demoted.store(true, Ordering::Release);
            }
            if is_broken(&error) {
                self.drop_connection(generation);
            }
            Failure::Sent(error)
        })
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), Failure> {
        if let Some(current) = self.current() {
            return current;
        }
        let _guard = self.connecting.lock().await;
        if let Some(current) = self.current() {
            return current;
        }
        let url = match &self.location {
            Location::Url(url) => Ok(url.clone()),
            Location::Sentinel { sentinels, name, login } => find_master(sentinels, name, login).await,
        };
        let connected = match url {
            Ok(url) => {
                let connected = self.runtime.spawn(connect(url, AsyncConnectionConfig::new())).await;
                connected.unwrap_or_else(|_| Err("the attempt to connect was aborted".to_owned()))
            }
            Err(why) => Err(why),
        };
        let mut state = lock(&self.state);
        match connected {
            Ok(connection) => {
                state.generation += 1;
                state.connection = Some(connection.clone());
                state.failure = None;
                Ok((state.generation, connection))
            }
            Err(why) => {
                state.failure = Some((Instant::now(), why.clone()));
                Err(Failure::NotSent(why))
            }
        }
    }

    /// The open connection, or the failure of a recent attempt to connect.
    fn current(&self) -> Option<Result<(u64, MultiplexedConnection), Failure>> {
        let state = lock(&self.state);
        if let Some(connection) = &state.connection {
            return Some(Ok((state.generation, connection.clone())));
        }
        let (at, why) = state.failure.as_ref()?;
        (at.elapsed() < FAILURE_LIFETIME).then(|| Err(Failure::NotSent(why.clone())))
    }

    fn drop_connection(&self, generation: u64) {
        let mut state = lock(&self.state);
        if state.generation == generation {
            state.connection = None;
        }
    }

    /// Whether a server answered as a replica since the last call.
    pub(crate) fn take_demotion(&self) -> bool {
        self.was_demoted.swap(false, Ordering::AcqRel)
    }

    /// The current URL of the server.
    pub(crate) async fn url(&self) -> Result<String> {
        match &self.location {
            Location::Url(url) => Ok(url.clone()),
            Location::Sentinel { sentinels, name, login } => {
                find_master(sentinels, name, login).await.map_err(Error::Unreachable)
            }
        }
    }
}

/// Whether the connection must be replaced after this error: it is closed, does not answer, or leads to a server that
/// is not the master any more.
fn is_broken(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Server(ServerErrorKind::MasterDown))
        || is_read_only(error)
        || error.is_unrecoverable_error()
}

fn is_read_only(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly))
}

/// Opens a connection. Errors do not contain the URL, because it may contain a password.
pub(crate) async fn connect(
    url: String,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, String> {
    let config =
        config.set_connection_timeout(Some(CONNECT_TIMEOUT)).set_response_timeout(Some(COMMAND_TIMEOUT));
    let client = Client::open(url).map_err(|error| error.to_string())?;
    // The connection timeout does not cover the handshake.
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    match tokio::time::timeout(2 * CONNECT_TIMEOUT, connecting).await {
        Ok(connected) => connected.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {} s", 2 * CONNECT_TIMEOUT.as_secs())),
    }
}

/// Asks the sentinels in turn for the master. Returns the URL of the first server that confirms that it is a
/// master.
async fn find_master(sentinels: &[String], name: &str, login: &Login) -> Result<String, String> {
    let mut last_error = "no sentinel knows the master".to_owned();
    for sentinel in sentinels {
        match ask_sentinel(sentinel, name, login).await {
            Ok(url) => return Ok(url),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

async fn ask_sentinel(sentinel: &str, name: &str, login: &Login) -> Result<String, String> {
    let to_text = |error: RedisError| error.to_string();
    let mut connection = connect(sentinel.to_owned(), AsyncConnectionConfig::new()).await?;
    let command = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name).take();
    let address: Option<(String, u16)> = command.query_async(&mut connection).await.map_err(to_text)?;
    let (host, port) = address.ok_or_else(|| format!("the sentinel does not know a master named {name}"))?;
    let url = login.url(&format!("{host}:{port}"));
    let mut master = connect(url.clone(), AsyncConnectionConfig::new()).await?;
    let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut master).await.map_err(to_text)?;
    match role.first() {
        Some(Value::BulkString(role)) if role == b"master" => Ok(url),
        _ => Err("the sentinel returned a server that is not a master".to_owned()),
    }
}
