//! One server: a connection that is made when it is first needed, shared by all who ask, and made anew when it broke.
//!
//! While the server is away, asking fails at once: one attempt at a time is made to reach it, and what it ended with
//! is told to all who ask a moment later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::runtime::Handle;

use crate::COMMAND_TIMEOUT;
use crate::address::Login;
use crate::error::Error;

/// A server that does not take a connection within this is away.
pub(crate) const CONNECT: Duration = Duration::from_secs(1);
/// An attempt that failed speaks for so long.
const STALE: Duration = Duration::from_millis(200);

/// How a server is found.
pub(crate) enum Source {
    At(String),
    Master { sentinels: Vec<String>, name: String, login: Login },
}

/// Why an answer did not come.
pub(crate) enum Failure {
    /// The command never left.
    NotSent(String),
    Sent(RedisError),
}

impl Failure {
    pub(crate) fn told(&self) -> Error {
        match self {
            Self::NotSent(why) => Error::Unreachable(why.clone()),
            Self::Sent(error) => Error::of(error),
        }
    }
}

pub(crate) struct Node {
    source: Source,
    /// Where the connection's own task lives: not with whoever happened to ask first.
    home: Handle,
    state: Mutex<State>,
    connecting: tokio::sync::Mutex<()>,
    demoted: AtomicBool,
}

#[derive(Default)]
struct State {
    connection: Option<MultiplexedConnection>,
    /// Counts connections, so that only the one that broke is thrown away.
    generation: u64,
    failed: Option<(Instant, String)>,
}

impl Node {
    pub(crate) fn new(source: Source) -> Self {
        let (state, connecting) = (Mutex::default(), tokio::sync::Mutex::new(()));
        Self { source, home: Handle::current(), state, connecting, demoted: AtomicBool::new(false) }
    }

    /// Sends a command; `asking` is what a Cluster wants to hear during the move of a slot.
    pub(crate) async fn ask(&self, command: &Cmd, asking: bool) -> Result<Value, Failure> {
        let (generation, mut connection) = self.connection().await?;
        let answer = async {
            if asking {
                let mut both = redis::pipe();
                both.cmd("ASKING").ignore().add_command(command.clone());
                let mut answers: Vec<Value> = both.query_async(&mut connection).await?;
                Ok(answers.pop().unwrap_or(Value::Nil))
            } else {
                command.query_async(&mut connection).await
            }
        };
        let outcome: Result<Value, RedisError> = answer.await;
        outcome.map_err(|error| {
            if is_read_only(&error) {
                self.demoted.store(true, Ordering::Release);
            }
            if is_broken(&error) {
                self.throw_away(generation);
            }
            Failure::Sent(error)
        })
    }

    async fn connection(&self) -> Result<(u64, MultiplexedConnection), Failure> {
        if let Some(known) = self.known() {
            return known;
        }
        let _only_one = self.connecting.lock().await;
        if let Some(known) = self.known() {
            return known;
        }
        let url = match &self.source {
            Source::At(url) => Ok(url.clone()),
            Source::Master { sentinels, name, login } => find_master(sentinels, name, login).await,
        };
        let connected = match url {
            Ok(url) => {
                let made = self.home.spawn(connect(url, AsyncConnectionConfig::new())).await;
                made.unwrap_or_else(|_| Err("the attempt was given up".to_owned()))
            }
            Err(why) => Err(why),
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match connected {
            Ok(connection) => {
                state.generation += 1;
                state.connection = Some(connection.clone());
                state.failed = None;
                Ok((state.generation, connection))
            }
            Err(why) => {
                state.failed = Some((Instant::now(), why.clone()));
                Err(Failure::NotSent(why))
            }
        }
    }

    fn known(&self) -> Option<Result<(u64, MultiplexedConnection), Failure>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = &state.connection {
            return Some(Ok((state.generation, connection.clone())));
        }
        let (at, why) = state.failed.as_ref()?;
        (at.elapsed() < STALE).then(|| Err(Failure::NotSent(why.clone())))
    }

    fn throw_away(&self, generation: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.generation == generation {
            state.connection = None;
        }
    }

    /// Whether a server said that it is a replica, since this was asked last.
    pub(crate) fn take_demoted(&self) -> bool {
        self.demoted.swap(false, Ordering::AcqRel)
    }

    /// Where the server is right now.
    pub(crate) async fn url(&self) -> Result<String, Error> {
        match &self.source {
            Source::At(url) => Ok(url.clone()),
            Source::Master { sentinels, name, login } => {
                find_master(sentinels, name, login).await.map_err(Error::Unreachable)
            }
        }
    }
}

/// A connection with this on it is of no more use: it is cut, silent, or leads to a server that is no longer the
/// master.
fn is_broken(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Io | ErrorKind::Server(ServerErrorKind::MasterDown))
        || is_read_only(error)
        || error.is_unrecoverable_error()
}

fn is_read_only(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly))
}

/// Errors are told without the URL, which may hold a password.
pub(crate) async fn connect(
    url: String,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, String> {
    let config = config.set_connection_timeout(Some(CONNECT)).set_response_timeout(Some(COMMAND_TIMEOUT));
    let client = Client::open(url).map_err(|error| error.to_string())?;
    // The handshake within has no timeout of its own.
    match tokio::time::timeout(2 * CONNECT, client.get_multiplexed_async_connection_with_config(&config))
        .await
    {
        Ok(connected) => connected.map_err(|error| error.to_string()),
        Err(_) => Err("it does not answer".to_owned()),
    }
}

/// Asks one sentinel after the other, and believes the first whose master says that it is one.
async fn find_master(sentinels: &[String], name: &str, login: &Login) -> Result<String, String> {
    let mut why = "no sentinel knows the master".to_owned();
    for sentinel in sentinels {
        match ask_sentinel(sentinel, name, login).await {
            Ok(url) => return Ok(url),
            Err(error) => why = error,
        }
    }
    Err(why)
}

async fn ask_sentinel(sentinel: &str, name: &str, login: &Login) -> Result<String, String> {
    let told = |error: RedisError| error.to_string();
    let mut connection = connect(sentinel.to_owned(), AsyncConnectionConfig::new()).await?;
    let mut question = redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let place: Option<(String, u16)> = question.query_async(&mut connection).await.map_err(told)?;
    let (host, port) = place.ok_or_else(|| "the sentinels do not know the master's name".to_owned())?;
    let url = login.url(&format!("{host}:{port}"));
    let mut master = connect(url.clone(), AsyncConnectionConfig::new()).await?;
    let role: Vec<Value> = redis::cmd("ROLE").query_async(&mut master).await.map_err(told)?;
    match role.first() {
        Some(Value::BulkString(role)) if role == b"master" => Ok(url),
        _ => Err("the sentinels name a server that is no master".to_owned()),
    }
}
