//! Real Redis servers: one, a cluster of three, or a pair that Sentinels watch, each a process of its own in a
//! folder of its own, on a free loopback port.
//!
//! Unless a test says otherwise an acknowledged write is on the disk (`appendfsync always`). All methods take
//! `&self`, so that a server can be shared with the tasks that load it while another one kills it. A dropped server
//! is killed, and none outlives the test process.

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
use crate::{mortal, process, tier, wait};

const START: Duration = Duration::from_secs(60);
/// How long a cluster or Sentinels may take to agree. Sentinels that felt their machine stand still do nothing for
/// half a minute.
const AGREE: Duration = Duration::from_secs(120);
const ANSWER: Duration = Duration::from_secs(60);

/// A running (or killed) server.
pub struct Redis {
    program: PathBuf,
    password: Option<String>,
    port: Port,
    config: PathBuf,
    child: Mutex<Option<Child>>,
    // Last, so that the process is gone before its folder goes.
    folder: TempDir,
}

impl Redis {
    /// Starts one and waits until it answers.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// Prepares one with other settings.
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
        self.child.lock().unwrap().as_ref().expect("the server runs").id()
    }

    /// All that the server wrote since it was first started.
    pub fn log(&self) -> String {
        read_log(&self.log_file())
    }

    /// Ends the server as a crash would, and waits until it is gone. Nothing happens when it is gone already.
    pub async fn kill9(&self) {
        self.kill();
    }

    /// Starts the server again (killing it first if it runs) and waits until it answers: same port, same folder,
    /// and the settings as it left them itself.
    pub async fn restart(&self) {
        self.kill();
        self.launch();
        self.wait_ready().await;
    }

    /// Lets the process stand still (SIGSTOP): its connections stay open and nobody answers.
    pub fn pause(&self) {
        process::signal(self.pid(), Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        process::signal(self.pid(), Signal::CONT);
    }

    /// A connection, signed in if there is a password.
    pub async fn connect(&self) -> io::Result<Client> {
        let mut client = Client::connect(self.addr()).await?;
        if let Some(password) = &self.password
            && let Some(error) = client.call(&["AUTH", password]).await?.error()
        {
            return Err(io::Error::other(error.to_owned()));
        }
        Ok(client)
    }

    /// Sends one command over a connection of its own; panics when no answer comes. A refusal is an answer.
    pub async fn command(&self, words: &[impl AsRef<[u8]>]) -> Reply {
        self.try_command(words).await.unwrap_or_else(|error| {
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect();
            panic!("no answer to {} at {}: {error}:\n{}", words.join(" "), self.addr(), tail(&self.log()))
        })
    }

    /// As [`Redis::command`]; the error when no answer came. What became of the command is then unknown.
    pub async fn try_command(&self, words: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        timeout(ANSWER, async { self.connect().await?.call(words).await }).await?
    }

    /// Runs the real `redis-cli` on this server and gives what it printed; panics when it fails.
    pub fn cli(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(tier::program("redis-cli"));
        command.args(["-h", "127.0.0.1", "-p", &self.port.number().to_string()]);
        if let Some(password) = &self.password {
            // By the environment: a warning about a password on the command line would stand in the output.
            command.env("REDISCLI_AUTH", password);
        }
        command.args(arguments);
        let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let said = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        assert!(output.status.success(), "{command:?}: {said} {}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// A field of what INFO says; empty when it has no such field.
    pub async fn info(&self, field: &str) -> String {
        let question = ["INFO", "everything"];
        // A Sentinel that gives a server another role cuts off all who are connected to it.
        let answer = match self.try_command(&question).await {
            Ok(answer) => answer,
            Err(_) => self.command(&question).await,
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
        // Redis leaves rewriting its file to a child, which would go on without it.
        process::kill_tree(&mut child);
    }

    fn launch(&self) {
        let child = mortal::start(&self.program, &[&self.config], &self.log_file());
        *self.child.lock().unwrap() = Some(child);
    }

    async fn wait_ready(&self) {
        let ready = wait::value_within(START, || async {
            // While it reads its files it answers as well, but refuses.
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
            eprintln!("{} at {} wrote last:\n{}", self.program.display(), self.addr(), tail(&self.log()));
        }
    }
}

#[cfg(test)]
#[path = "redis/tests.rs"]
mod tests;
