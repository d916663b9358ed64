//! `bongsu serve`: runs the hub until a signal stops it, and then drains it.
//!
//! Every check that can refuse the start runs before any data is changed. Requests are served once all engines are
//! open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bongsu_http::server::{self, SERVER_PORT, SERVER_SHARDS, Server};
use bongsu_kernel::settings::Values;
use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_kernel::telemetry;
use bongsu_live::Hub;
use bongsu_part::{BoxFuture, EngineInputs, Failure};
use clap::{ArgMatches, Command};
use futures_util::future::join_all;
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{self, App};
use crate::settings::{self, ServeSettings};

/// Time that requests in progress have to finish after draining begins. With the other timeouts, the process ends
/// within ten seconds.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(4_500);
/// Time limit of each other step of the shutdown, such as the final writes and closing the data folder.
const SHUTDOWN_STEP_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) fn command() -> Command {
    Command::new("serve").about("Run the hub")
}

pub(crate) fn run(_: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let checked = settings::check(values)?;
    let port = u16::try_from(values.integer(&SERVER_PORT)).unwrap_or_default();
    telemetry::start_logs(values)?;
    // This thread accepts connections, and the shards serve them. Loops and engines have their own threads, so that
    // none of these three waits for another.
    let acceptor_runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::other)?;
    let threads = server::default_shards();
    let worker_runtime =
        Builder::new_multi_thread().worker_threads(threads).thread_name("worker").enable_all().build();
    let worker_runtime = worker_runtime.map_err(Failure::other)?;
    let outcome = acceptor_runtime.block_on(serve(values.clone(), checked, port, worker_runtime.handle()));
    worker_runtime.shutdown_timeout(SHUTDOWN_STEP_TIMEOUT);
    outcome
}

async fn serve(values: Values, checked: ServeSettings, port: u16, worker: &Handle) -> Result<(), Failure> {
    let ServeSettings { host, roles, weak } = checked;
    let address = SocketAddr::new(host, port);
    let supervisor = Supervisor::new();
    let shards = match values.size(&SERVER_SHARDS) {
        0 => server::default_shards(),
        given => given,
    };
    let mut signals = Signals::new()?;
    // Listens before any data is changed, so that a start that cannot listen leaves the data folder as it was.
    let listener = server::listen(address)
        .map_err(|error| Failure::Other(format!("cannot listen on {address}: {error}")))?;
    let address = listener.local_addr().map_err(Failure::other)?;
    let inputs = EngineInputs { values, roles, address, shards, supervisor: supervisor.clone() };
    let app = worker.spawn(app::start(inputs, weak.clone())).await.map_err(Failure::other).flatten();
    if app.is_err() {
        // Leaves the fleet now, so that other instances need not wait until the lease of this one ends.
        supervisor.shut_down(SHUTDOWN_STEP_TIMEOUT).await;
    }
    let App { router, hub, final_writes, file, ready } = app?;
    let deliverer = hub.clone();
    let shard_loop: server::ShardLoop = Arc::new(move |shard| Box::pin(deliverer.clone().run_shard(shard)));
    let (server, acceptor) = Server::start(shards, &router, &shard_loop).map_err(Failure::other)?;
    // Each shard has its own clone of the router and its store handle, and drops the clone when the shard ends.
    drop(router);
    let mut accepting = Some((acceptor, listener));
    let stop = supervisor.stop();
    supervisor.spawn("accept", OnEnd::Fatal, move || {
        let (accepting, stop) = (accepting.take(), stop.clone());
        async move {
            if let Some((acceptor, listener)) = accepting {
                acceptor.run(listener).await;
                // The acceptor ends when requests in progress have ended. This task must not end before shutdown, which
                // would count as a failure.
                stop.cancelled().await;
            }
        }
    });
    if !weak.is_empty() {
        tracing::warn!(
            settings = weak.join(", "),
            "development secrets are in use; any local process can sign in as any person, and only loopback host names are served"
        );
    }
    ready.store(true, Ordering::SeqCst);
    tracing::info!(%address, shards, "the hub is ready: http://{address}, API at http://{address}/docs");
    let failed = tokio::select! {
        () = signals.stop() => false,
        () = supervisor.failed() => true,
    };
    ready.store(false, Ordering::SeqCst);
    tracing::info!("draining: asking streams to reconnect and finishing requests in progress");
    // A second signal ends the process at once.
    let drained = tokio::select! {
        drained = drain(&supervisor, server, &hub, final_writes) => drained,
        () = signals.stop() => return Err(Failure::other("a second signal stopped the hub before it had drained")),
    };
    // Closing the data folder has a time limit as well, so that the process ends within ten seconds in all.
    if let Some((store, writer)) = file {
        let closed = tokio::time::timeout(SHUTDOWN_STEP_TIMEOUT, store.writer().close()).await.is_ok();
        // The last handle on the data folder.
        drop(store);
        if !(closed && writer.join(SHUTDOWN_STEP_TIMEOUT)) {
            tracing::warn!(
                "timed out while closing the data folder; publishes that were not answered may be missing"
            );
        }
    }
    match (failed, drained) {
        (true, _) => Err(Failure::other("a vital task failed; see the log")),
        (false, false) => {
            tracing::warn!(
                timeout_ms = DRAIN_TIMEOUT.as_millis() as u64,
                "the drain timed out; cutting off the remaining connections and tasks"
            );
            Ok(())
        }
        (false, true) => {
            tracing::info!("drained; every connection and task has ended");
            Ok(())
        }
    }
}

async fn drain(
    supervisor: &Supervisor,
    server: Server,
    hub: &Hub,
    final_writes: Vec<BoxFuture<'static, ()>>,
) -> bool {
    hub.drain();
    // The final writes take time, so they run after the requests in progress, while the hub still accepts
    // connections. Data that is not written in time stays where it is: another instance or the next start
    // writes it.
    let writing = async {
        let _ = tokio::time::timeout(SHUTDOWN_STEP_TIMEOUT, join_all(final_writes)).await;
    };
    let drained = server.drain(DRAIN_TIMEOUT, writing).await;
    supervisor.shut_down(SHUTDOWN_STEP_TIMEOUT).await && drained
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(Failure::other)?,
            interrupt: signal(SignalKind::interrupt()).map_err(Failure::other)?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
