//! The hub as a process of its own: started with a clean environment on a free loopback port and a folder of
//! its own, watched, killed, and started again on the same port and folder.
//!
//! All methods take `&self`, so that a hub can be shared with the tasks that load it while another one kills it.
//! A dropped hub is killed; when its test failed, the end of its log is printed. On an engine that several hubs
//! share ([`crate::Engine`]) it has a twin or a worker, and starts, ends and counts together with it.

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
use builder::Setup;
use run::Run;

// All of these are far longer than a hub takes by itself: other tests use the same cores.
const START: Duration = Duration::from_secs(90);
const STOP: Duration = Duration::from_secs(60);
/// How long a hub's process may take to end once it is killed; what is left then is its wrapper.
const GONE: Duration = Duration::from_secs(15);
const ANSWER: Duration = Duration::from_secs(30);

/// A running (or killed) hub.
pub struct Hub {
    setup: Setup,
    /// A second process with the same settings on the same engine: a twin, or a worker.
    second: Option<Box<Hub>>,
    port: Port,
    data_dir: PathBuf,
    run: Mutex<Run>,
    // Last, so that the process is gone before its folder goes.
    folder: TempDir,
}

impl Hub {
    /// Prepares a hub from the program at `bin`.
    pub fn builder(bin: impl AsRef<Path>) -> Builder {
        Builder::new(bin.as_ref())
    }

    /// The second hub on the same engine, which [`crate::Api`] talks to while streams go to this one; none on the
    /// embedded engine, and where the second process is a worker.
    pub fn twin(&self) -> Option<&Hub> {
        self.second.as_deref().filter(|second| !second.setup.is_worker())
    }

    /// The process that does the work behind this one, on `split`: it serves no requests and no streams.
    pub fn worker(&self) -> Option<&Hub> {
        self.second.as_deref().filter(|second| second.setup.is_worker())
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

    /// The hub's own process id, also behind a wrapper.
    pub fn pid(&self) -> u32 {
        self.run.lock().unwrap().pid().expect("the hub runs")
    }

    /// All that the hub wrote to its output since it was first started.
    pub fn log(&self) -> String {
        read_log(&log_file(&self.folder))
    }

    /// Ends the hub as a crash would, and waits until it is gone. Nothing happens when it is gone already.
    pub async fn kill9(&self) {
        for hub in self.both() {
            if !hub.run.lock().unwrap().is_running() {
                continue;
            }
            hub.signal_this(Signal::KILL);
            if hub.wait_this_exit(GONE).await.is_none() {
                // Only a wrapper can be left.
                hub.run.lock().unwrap().kill_all();
            }
        }
    }

    /// Asks the hub to end, and gives its exit status; panics when it takes more than a minute.
    pub async fn terminate(&self) -> ExitStatus {
        self.send_signal(Signal::TERM);
        let status = self.wait_exit(STOP).await;
        status.unwrap_or_else(|| panic!("the hub did not end within {STOP:?}:\n{}", tail(&self.log())))
    }

    /// Moves the time of a hub that was built with [`Builder::movable_clock`] forward: the time of day and the deadlines
    /// of its streams. Timers of the network and of engines go on as they do.
    pub async fn move_clock(&self, step: Duration) {
        for hub in self.both() {
            let file = builder::clock_file(hub.folder.path());
            let written = file.with_extension("new");
            std::fs::write(&written, step.as_millis().to_string()).expect("a file for the clock");
            std::fs::rename(&written, &file).expect("a file for the clock");
            wait::until(START, async || !file.exists()).await;
        }
    }

    /// Any signal, for example STOP and CONT.
    pub fn send_signal(&self, signal: Signal) {
        self.both().for_each(|hub| hub.signal_this(signal));
    }

    pub fn has_exited(&self) -> bool {
        self.both().all(Self::has_this_exited)
    }

    /// Whether one of its processes has ended, or all of them.
    pub fn has_one_exited(&self) -> bool {
        self.both().any(Self::has_this_exited)
    }

    /// The exit status, when the hub ends within this time; with a second process, that of the one that failed, if one did.
    pub async fn wait_exit(&self, timeout: Duration) -> Option<ExitStatus> {
        wait::holds_within(timeout, async || self.has_exited()).await;
        let ends: Option<Vec<ExitStatus>> =
            self.both().map(|hub| hub.run.lock().unwrap().exit_status()).collect();
        let ends = ends?;
        ends.iter().find(|end| !end.success()).or(ends.first()).copied()
    }

    /// Starts the hub again (killing it first if it runs): same port, same folder, same environment.
    pub async fn restart(&self) {
        self.restart_with(&[]).await;
    }

    /// Starts the hub again with these variables over the builder's, for this run only.
    pub async fn restart_with(&self, env: &[(&str, &str)]) {
        self.kill9().await;
        self.launch(env).await;
    }

    /// Starts the hub again with these variables, and waits until it is ready or has ended by itself: work that it finds
    /// at its start may lead it to a crash point.
    pub async fn restart_that_may_end(&self, env: &[(&str, &str)]) {
        self.kill9().await;
        self.both().for_each(|hub| hub.launch_this(env));
        for hub in self.both() {
            let is_ready = hub.is_ready_in_time().await;
            assert!(
                is_ready || hub.has_this_exited(),
                "the hub is neither ready nor gone:\n{}",
                tail(&hub.log())
            );
        }
    }

    /// Starts the hub again with these variables, expecting it to end by itself: its exit status and what it wrote
    /// in this run. A second process stays down.
    pub async fn restart_expecting_failure(&self, env: &[(&str, &str)]) -> (ExitStatus, String) {
        self.kill9().await;
        let before = self.log().len();
        self.launch_this(env);
        let status = self.wait_this_exit(START).await;
        let output = self.log().get(before..).unwrap_or_default().to_owned();
        match status {
            Some(status) => (status, output),
            None => {
                panic!("the hub was expected to end, and still runs after {START:?}:\n{}", tail(&output))
            }
        }
    }

    /// Memory in use (VmRSS).
    pub fn rss_kib(&self) -> u64 {
        process::status_number(self.pid(), "VmRSS").expect("the hub runs")
    }

    /// The most memory this run ever used (VmHWM).
    pub fn peak_rss_kib(&self) -> u64 {
        process::status_number(self.pid(), "VmHWM").expect("the hub runs")
    }

    pub fn threads(&self) -> u64 {
        process::status_number(self.pid(), "Threads").expect("the hub runs")
    }

    /// Open files and sockets.
    pub fn open_files(&self) -> usize {
        process::open_files(self.pid()).expect("the hub runs")
    }

    /// What `/metrics` says now; with a second process, what both say together.
    pub async fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        for hub in self.both() {
            let answer = hub.ask("/metrics").await.expect("an answer from /metrics").expect(200);
            metrics = metrics.and(Metrics::parse(&answer.text()));
        }
        metrics
    }

    fn both(&self) -> impl Iterator<Item = &Hub> {
        std::iter::once(self).chain(self.second.as_deref())
    }

    async fn launch(&self, env: &[(&str, &str)]) {
        self.both().for_each(|hub| hub.launch_this(env));
        for hub in self.both() {
            hub.wait_ready().await;
        }
    }

    fn launch_this(&self, env: &[(&str, &str)]) {
        let command = self.setup.command(self.port(), &self.data_dir, self.folder.path(), env);
        *self.run.lock().unwrap() = Run::start(command, &log_file(&self.folder), self.setup.bin());
    }

    fn signal_this(&self, signal: Signal) {
        let pid = self.run.lock().unwrap().pid();
        if let Some(pid) = pid {
            process::signal(pid, signal);
        }
    }

    fn has_this_exited(&self) -> bool {
        self.run.lock().unwrap().exit_status().is_some()
    }

    async fn wait_this_exit(&self, timeout: Duration) -> Option<ExitStatus> {
        wait::holds_within(timeout, async || self.has_this_exited()).await;
        self.run.lock().unwrap().exit_status()
    }

    /// Whether it became ready; false as soon as it has ended.
    async fn is_ready_in_time(&self) -> bool {
        let ready = wait::value_within(START, || async {
            let ready = self.ask("/ready").await.is_some_and(|answer| answer.status == 200);
            (ready || self.has_this_exited()).then_some(ready)
        });
        ready.await.unwrap_or(false)
    }

    async fn wait_ready(&self) {
        let ready = self.is_ready_in_time().await;
        let exit = self.run.lock().unwrap().exit_status();
        assert!(ready && exit.is_none(), "the hub is not ready (exit: {exit:?}):\n{}", tail(&self.log()));
    }

    async fn ask(&self, path: &str) -> Option<crate::Answer> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.addr());
        raw::answer(self.addr(), request.as_bytes(), ANSWER).await
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if let Ok(mut run) = self.run.lock() {
            run.kill_all();
        }
        if std::thread::panicking() {
            eprintln!("the hub at {} wrote last:\n{}", self.addr(), tail(&self.log()));
        }
    }
}

fn log_file(folder: &TempDir) -> PathBuf {
    folder.path().join("hub.log")
}

#[cfg(test)]
#[path = "hub/tests.rs"]
mod tests;
