//! Real Redis servers: a single one, a Cluster of three, or a master and a replica with Sentinels. Each server is a
//! process with its own folder, on a free loopback port.
//!
//! An acknowledged write is on the disk (`appendfsync always`), unless a test changes this. All methods
//! take `&self`, so that several tasks can share a server: one kills it while others send commands. Dropping a server
//! kills it, and no server outlives the test process.

mod builder;
mod client;
mod cluster;
mod migration;
mod sentinels;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Mutex;
use std::time::Duration;

use bongsu_engines::redis::field as field_of;
use bongsu_engines::{read_log, tail};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::timeout;

pub use crate::resp::Reply;
pub use builder::Builder;
pub use client::Client;
pub use cluster::{Cluster, ClusterBuilder};
pub use migration::Migration;
pub use sentinels::{Sentinels, SentinelsBuilder};

use crate::ports::{Port, loopback};
use crate::{child_process, process, tier, wait};

const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time in which the nodes of a Cluster or the Sentinels must agree. A Sentinel whose process was delayed does not act
/// for 30 seconds.
const AGREEMENT_TIMEOUT: Duration = Duration::from_secs(120);
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// A running or killed server.
pub struct Redis {
    program: PathBuf,
    password: Option<String>,
    port: Port,
    config: PathBuf,
    child: Mutex<Option<Child>>,
    // Last field, so that the process ends before its folder is removed.
    folder: TempDir,
}

impl Redis {
    /// Starts a server and waits until it answers.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Prepares a server with other settings.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub fn addr(&self) -> SocketAddr {
        loopback(self.port.number())
    }

    /// `redis://127.0.0.1:port`, with the password if there is one.
    pub fn url(&self) -> String {
        match &self.password {
            Some(password) => format!("redis://:{password}@{}", self.addr()),
            None => format!("redis://{}", self.addr()),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().as_ref().expect("the server does not run").id()
    }

    /// The log of the server since its first start.
    pub fn log(&self) -> String {
        read_log(&self.log_file())
    }

    /// Kills the server (SIGKILL) and waits until it is gone. Does nothing if the server has already ended.
    pub async fn kill9(&self) {
        self.kill();
    }

    /// Restarts the server on the same port and folder (kills it first if it runs) and waits until it answers. It reads
    /// its configuration file, to which Redis itself may have written.
    pub async fn restart(&self) {
        self.kill();
        self.launch();
        self.wait_ready().await;
    }

    /// Stops the process (SIGSTOP): connections stay open and get no reply.
    pub fn pause(&self) {
        process::signal(self.pid(), Signal::STOP);
    }

    /// Continues the process (SIGCONT).
    pub fn resume(&self) {
        process::signal(self.pid(), Signal::CONT);
    }

    /// Opens a connection, authenticated if the server has a password.
    pub async fn connect(&self) -> io::Result<Client> {
        let mut client = Client::connect(self.addr()).await?;
        if let Some(password) = &self.password
            && let Some(error) = client.call(&["AUTH", password]).await?.error()
        {
            return Err(io::Error::other(error.to_owned()));
        }
        Ok(client)
    }

    /// Sends one command over a new connection. Panics if no reply arrives; an error reply is returned.
    pub async fn command(&self, words: &[impl AsRef<[u8]>]) -> Reply {
        self.try_command(words).await.unwrap_or_else(|error| {
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect();
            panic!("no reply to {} at {}: {error}:\n{}", words.join(" "), self.addr(), tail(&self.log()))
        })
    }

    /// As [`Redis::command`]. The error means that no reply arrived; whether the command was executed is then unknown.
    pub async fn try_command(&self, words: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        timeout(REPLY_TIMEOUT, async { self.connect().await?.call(words).await }).await?
    }

    /// Runs `redis-cli` on this server and returns its output. Panics if it fails.
    pub fn cli(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(tier::program("redis-cli"));
        command.args(["-h", "127.0.0.1", "-p", &self.port.number().to_string()]);
        if let Some(password) = &self.password {
            // In the environment, because redis-cli prints a warning about a password on the command line.
            command.env("REDISCLI_AUTH", password);
        }
        command.args(arguments);
        let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let printed = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        assert!(
            output.status.success(),
            "{command:?}: {printed} {}",
            String::from_utf8_lossy(&output.stderr)
        );
        printed
    }

    /// A field of the reply to INFO; empty if the reply has no such field.
    pub async fn info(&self, field: &str) -> String {
        let words = ["INFO", "everything"];
        // Repeated once, because a Sentinel that changes the role of a server closes the connections to it.
        let answer = match self.try_command(&words).await {
            Ok(answer) => answer,
            Err(_) => self.command(&words).await,
        };
        field_of(answer.text(), field).to_owned()
    }

    fn port(&self) -> u16 {
        self.port.number()
    }

    fn is_running(&self) -> bool {
        let mut child = self.child.lock().unwrap();
        child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|exit| exit.is_none()))
    }

    fn kill(&self) {
        let Some(mut child) = self.child.lock().unwrap().take() else { return };
        // A child process of Redis, which rewrites the append-only file, would outlive its parent.
        process::kill_tree(&mut child);
    }

    fn launch(&self) {
        let child = child_process::start(&self.program, &[&self.config], &self.log_file());
        *self.child.lock().unwrap() = Some(child);
    }

    async fn wait_ready(&self) {
        let ready = wait::value_within(START_TIMEOUT, || async {
            // While the server loads its files, it replies with an error.
            let ready = self.try_command(&["PING"]).await.is_ok_and(|reply| reply.error().is_none());
            (ready || !self.is_running()).then_some(ready)
        });
        let ready = ready.await.unwrap_or(false);
        assert!(
            ready && self.is_running(),
            "{} at {} does not answer:\n{}",
            self.program.display(),
            self.addr(),
            tail(&self.log())
        );
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("redis.log")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!(
                "end of the log of {} at {}:\n{}",
                self.program.display(),
                self.addr(),
                tail(&self.log())
            );
        }
    }
}

#[cfg(test)]
#[path = "redis/tests.rs"]
mod tests;
