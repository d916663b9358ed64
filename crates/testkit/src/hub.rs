//! The hub as a separate process, started with a clean environment on a free loopback port and in its own folder. A
//! test can observe, kill and restart it on the same port and folder.
//!
//! All methods take `&self`, so that several tasks can share a hub. Dropping a hub kills it and, if the test failed,
//! prints the end of its log. On a shared engine ([`crate::Engine`]) a hub has a second process that starts and ends with
//! it: a twin, to which [`crate::Api`] sends its requests, or a worker.

mod builder;
mod metrics;
mod run;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Mutex;
use std::time::Duration;

use bongsu_engines::{read_log, tail};
use tempfile::TempDir;

pub use builder::Builder;
pub use metrics::{Metrics, Sample};
pub use rustix::process::Signal;

use crate::ports::{Port, loopback};
use crate::{process, raw, wait};
use builder::LaunchSettings;
use run::HubProcess;

// These timeouts are far longer than a hub needs, because other tests use the same cores.
const START_TIMEOUT: Duration = Duration::from_secs(90);
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// Time in which a killed hub process must be gone; after that only its wrapper can still run.
const KILL_TIMEOUT: Duration = Duration::from_secs(15);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A running or killed hub.
pub struct Hub {
    settings: LaunchSettings,
    /// A second process with the same settings on the same engine: a twin or a worker.
    second: Option<Box<Hub>>,
    port: Port,
    data_dir: PathBuf,
    process: Mutex<HubProcess>,
    // Last field, so that the process ends before its folder is removed.
    folder: TempDir,
}

impl Hub {
    /// Prepares a hub that runs the program at `bin`.
    pub fn builder(bin: impl AsRef<Path>) -> Builder {
        Builder::new(bin.as_ref())
    }

    /// The second hub on the same engine: [`crate::Api`] sends requests to the twin, while streams connect to this hub.
    /// None on the embedded engine, and if the second process is a worker.
    pub fn twin(&self) -> Option<&Hub> {
        self.second.as_deref().filter(|second| !second.settings.is_worker())
    }

    /// The process with `ROLES=worker` on the profile `split`: it serves no requests and no streams.
    pub fn worker(&self) -> Option<&Hub> {
        self.second.as_deref().filter(|second| second.settings.is_worker())
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn addr(&self) -> SocketAddr {
        loopback(self.port())
    }

    /// `http://127.0.0.1:port` and the path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr())
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The process id of the hub itself, also if a wrapper has started it.
    pub fn pid(&self) -> u32 {
        self.process.lock().unwrap().pid().expect("the hub does not run")
    }

    /// The output of the hub since its first start.
    pub fn log(&self) -> String {
        read_log(&log_file(&self.folder))
    }

    /// Kills the hub (SIGKILL) and waits until it is gone. Does nothing if the hub has already ended.
    pub async fn kill9(&self) {
        for hub in self.processes() {
            if !hub.process.lock().unwrap().is_running() {
                continue;
            }
            hub.signal_this(Signal::KILL);
            if hub.wait_this_exit(KILL_TIMEOUT).await.is_none() {
                // Only the wrapper can still run.
                hub.process.lock().unwrap().kill_all();
            }
        }
    }

    /// Sends SIGTERM and returns the exit status; panics if the hub runs for more than a minute after that.
    pub async fn terminate(&self) -> ExitStatus {
        self.send_signal(Signal::TERM);
        let status = self.wait_exit(STOP_TIMEOUT).await;
        status
            .unwrap_or_else(|| panic!("the hub did not end within {STOP_TIMEOUT:?}:\n{}", tail(&self.log())))
    }

    /// Moves the clock of a hub that was built with [`Builder::movable_clock`] forward: the time of day and the
    /// deadlines of its streams. Timers of the network and of engines are not moved.
    pub async fn move_clock(&self, step: Duration) {
        for hub in self.processes() {
            let file = builder::clock_file(hub.folder.path());
            let temporary = file.with_extension("new");
            std::fs::write(&temporary, step.as_millis().to_string()).expect("cannot write the clock file");
            std::fs::rename(&temporary, &file).expect("cannot rename the clock file");
            // The hub removes the file once it has moved its clock.
            wait::until(START_TIMEOUT, async || !file.exists()).await;
        }
    }

    /// Sends a signal, for example STOP or CONT.
    pub fn send_signal(&self, signal: Signal) {
        self.processes().for_each(|hub| hub.signal_this(signal));
    }

    pub fn has_exited(&self) -> bool {
        self.processes().all(Self::has_this_exited)
    }

    /// Whether at least one of the hub's processes has ended.
    pub fn has_any_exited(&self) -> bool {
        self.processes().any(Self::has_this_exited)
    }

    /// The exit status, if all processes of the hub end within this time. With a second process it is the status of a
    /// failed process, if there is one.
    pub async fn wait_exit(&self, timeout: Duration) -> Option<ExitStatus> {
        wait::holds_within(timeout, async || self.has_exited()).await;
        let statuses: Option<Vec<ExitStatus>> =
            self.processes().map(|hub| hub.process.lock().unwrap().exit_status()).collect();
        let statuses = statuses?;
        statuses.iter().find(|status| !status.success()).or(statuses.first()).copied()
    }

    /// Restarts the hub (kills it first if it runs) on the same port and folder, with the same environment.
    pub async fn restart(&self) {
        self.restart_with(&[]).await;
    }

    /// Restarts the hub with additional environment variables, which override those of the builder until the next
    /// restart.
    pub async fn restart_with(&self, env: &[(&str, &str)]) {
        self.kill9().await;
        self.launch(env).await;
    }

    /// As [`Hub::restart_with`], but also returns if the hub ends by itself: pending work may reach a crash point
    /// during the start.
    pub async fn restart_allowing_exit(&self, env: &[(&str, &str)]) {
        self.kill9().await;
        self.processes().for_each(|hub| hub.launch_this(env));
        for hub in self.processes() {
            let is_ready = hub.is_ready_in_time().await;
            assert!(
                is_ready || hub.has_this_exited(),
                "the hub has neither become ready nor ended:\n{}",
                tail(&hub.log())
            );
        }
    }

    /// Restarts the hub with these variables and expects that it ends by itself. Returns its exit status and its output
    /// since the restart. The second process is not started.
    pub async fn restart_expecting_failure(&self, env: &[(&str, &str)]) -> (ExitStatus, String) {
        self.kill9().await;
        let before = self.log().len();
        self.launch_this(env);
        let status = self.wait_this_exit(START_TIMEOUT).await;
        let output = self.log().get(before..).unwrap_or_default().to_owned();
        match status {
            Some(status) => (status, output),
            None => {
                panic!(
                    "the hub was expected to end, but still runs after {START_TIMEOUT:?}:\n{}",
                    tail(&output)
                )
            }
        }
    }

    /// Resident memory (VmRSS), in KiB.
    pub fn rss_kib(&self) -> u64 {
        process::status_number(self.pid(), "VmRSS").expect("the hub does not run")
    }

    /// Peak resident memory since the last start (VmHWM), in KiB.
    pub fn peak_rss_kib(&self) -> u64 {
        process::status_number(self.pid(), "VmHWM").expect("the hub does not run")
    }

    pub fn threads(&self) -> u64 {
        process::status_number(self.pid(), "Threads").expect("the hub does not run")
    }

    /// The number of open files and sockets.
    pub fn open_files(&self) -> usize {
        process::open_files(self.pid()).expect("the hub does not run")
    }

    /// The samples of `/metrics`; with a second process, the samples of both.
    pub async fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        for hub in self.processes() {
            let answer = hub.get("/metrics").await.expect("no response from /metrics").expect(200);
            metrics = metrics.and(Metrics::parse(&answer.text()));
        }
        metrics
    }

    fn processes(&self) -> impl Iterator<Item = &Hub> {
        std::iter::once(self).chain(self.second.as_deref())
    }

    async fn launch(&self, env: &[(&str, &str)]) {
        self.processes().for_each(|hub| hub.launch_this(env));
        for hub in self.processes() {
            hub.wait_ready().await;
        }
    }

    fn launch_this(&self, env: &[(&str, &str)]) {
        let command = self.settings.command(self.port(), &self.data_dir, self.folder.path(), env);
        *self.process.lock().unwrap() =
            HubProcess::start(command, &log_file(&self.folder), self.settings.bin());
    }

    fn signal_this(&self, signal: Signal) {
        let pid = self.process.lock().unwrap().pid();
        if let Some(pid) = pid {
            process::signal(pid, signal);
        }
    }

    fn has_this_exited(&self) -> bool {
        self.process.lock().unwrap().exit_status().is_some()
    }

    async fn wait_this_exit(&self, timeout: Duration) -> Option<ExitStatus> {
        wait::holds_within(timeout, async || self.has_this_exited()).await;
        self.process.lock().unwrap().exit_status()
    }

    /// Whether this process becomes ready in time; false as soon as it has ended. A hub that only lacks Redis counts as
    /// ready, because tests start hubs during an outage.
    async fn is_ready_in_time(&self) -> bool {
        let ready = wait::value_within(START_TIMEOUT, || async {
            let answer = self.get("/ready").await;
            let ready = answer.is_some_and(|answer| answer.status == 200 || answer.code() == "REDIS5001");
            (ready || self.has_this_exited()).then_some(ready)
        });
        ready.await.unwrap_or(false)
    }

    async fn wait_ready(&self) {
        let ready = self.is_ready_in_time().await;
        let exit = self.process.lock().unwrap().exit_status();
        assert!(ready && exit.is_none(), "the hub is not ready (exit: {exit:?}):\n{}", tail(&self.log()));
    }

    async fn get(&self, path: &str) -> Option<crate::Answer> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.addr());
        raw::answer(self.addr(), request.as_bytes(), RESPONSE_TIMEOUT).await
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let Ok(mut process) = self.process.lock() {
            process.kill_all();
        }
        if std::thread::panicking() {
            eprintln!("end of the log of the hub at {}:\n{}", self.addr(), tail(&self.log()));
        }
    }
}

fn log_file(folder: &TempDir) -> PathBuf {
    folder.path().join("hub.log")
}

#[cfg(test)]
#[path = "hub/tests.rs"]
mod tests;
