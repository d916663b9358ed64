//! `bongsu serve`: runs the hub until it is told to stop, and then drains it.
//!
//! Whatever may refuse the start is asked before anything is written down; requests are served once all of it is open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bongsu_http::server::{self, SERVER_PORT, SERVER_SHARDS, Server};
use bongsu_kernel::settings::Values;
use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_kernel::telemetry;
use bongsu_live::Hub;
use bongsu_part::{Boxed, Failure, Start};
use clap::{ArgMatches, Command};
use futures_util::future::join_all;
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{self, App};
use crate::settings::{self, Checked};

/// Requests that are under way may take so long once the hub drains; in all it is gone within ten seconds.
const DRAIN: Duration = Duration::from_secs(6);
/// And so long the last writes.
const LAST_WRITES: Duration = Duration::from_secs(1);

pub(crate) fn command() -> Command {
    Command::new("serve").about("Run the hub")
}

pub(crate) fn run(_: &ArgMatches, values: &Values) -> Result<(), Failure> {
    let checked = settings::check(values)?;
    let port = u16::try_from(values.whole(&SERVER_PORT)).unwrap_or_default();
    telemetry::start_logs(values)?;
    // Connections are accepted here and served by the shards. Loops and what engines do have threads of their own, so that
    // none of these waits for another.
    let accepting = Builder::new_current_thread().enable_all().build().map_err(Failure::other)?;
    let threads = server::default_shards();
    let working =
        Builder::new_multi_thread().worker_threads(threads).thread_name("worker").enable_all().build();
    let working = working.map_err(Failure::other)?;
    let served = accepting.block_on(serve(values, checked, port, working.handle()));
    working.shutdown_timeout(LAST_WRITES);
    served
}

async fn serve(values: &Values, checked: Checked, port: u16, worker: &Handle) -> Result<(), Failure> {
    let Checked { host, roles, weak } = checked;
    let address = SocketAddr::new(host, port);
    let supervisor = Supervisor::new();
    let shards = match values.size(&SERVER_SHARDS) {
        0 => server::default_shards(),
        given => given,
    };
    let mut signals = Signals::new()?;
    // Before anything is written: a start that cannot listen leaves the data folder as it was.
    let listener = server::listen(address)
        .map_err(|error| Failure::Other(format!("cannot listen on {address}: {error}")))?;
    let bound = listener.local_addr().map_err(Failure::other)?;
    let start =
        Start { values: values.clone(), roles, address: bound, shards, supervisor: supervisor.clone() };
    let app = worker.spawn(app::start(start, weak.clone())).await.map_err(Failure::other).flatten();
    if app.is_err() {
        // The others need not wait until the lease of an instance ends that never served anybody.
        supervisor.shut_down(LAST_WRITES).await;
    }
    let App { router, hub, last_writes, file, ready } = app?;
    let deliverer = hub.clone();
    let shard_loop: server::ShardLoop = Arc::new(move |shard| Box::pin(deliverer.clone().run_shard(shard)));
    let (server, acceptor) = Server::start(shards, &router, &shard_loop).map_err(Failure::other)?;
    // The shards have their own copies; when they end, the last handle on the store goes.
    drop(router);
    let mut accepting = Some((acceptor, listener));
    let stop = supervisor.stop();
    supervisor.spawn("accept", OnEnd::Fatal, move || {
        let (accepting, stop) = (accepting.take(), stop.clone());
        async move {
            if let Some((acceptor, listener)) = accepting {
                acceptor.run(listener).await;
                // It stops accepting before the other tasks end; that is no failure.
                stop.cancelled().await;
            }
        }
    });
    if !weak.is_empty() {
        tracing::warn!(
            settings = weak.join(", "),
            "development secrets are in use: anybody on this machine can sign in as anyone, and only loopback host names are served. Set real ones to serve others"
        );
    }
    ready.store(true, Ordering::SeqCst);
    tracing::info!(address = %bound, shards, "the hub is ready: http://{bound}, API at http://{bound}/docs");
    let failed = tokio::select! {
        () = signals.stop() => false,
        () = supervisor.failed() => true,
    };
    ready.store(false, Ordering::SeqCst);
    tracing::info!("draining: streams are asked to come back, requests under way are finished");
    // A second signal means now.
    let drained = tokio::select! {
        drained = drain(&supervisor, server, &hub, last_writes) => drained,
        () = signals.stop() => return Err(Failure::Other("stopped before everything was finished".to_owned())),
    };
    // Bounded, too: with what the draining may take it is gone within ten seconds.
    if let Some((store, writer)) = file {
        let closed = tokio::time::timeout(LAST_WRITES, store.writer().close()).await.is_ok();
        // The last handle on the folder.
        drop(store);
        if !(closed && writer.join(LAST_WRITES)) {
            tracing::warn!(
                "the disk did not answer in time: publishes that were not answered may be missing"
            );
        }
    }
    match (failed, drained) {
        (true, _) => Err(Failure::Other("a vital task failed; see the log".to_owned())),
        (false, false) => {
            tracing::warn!("some connections were cut: they did not end in time");
            Ok(())
        }
        (false, true) => {
            tracing::info!("drained");
            Ok(())
        }
    }
}

async fn drain(
    supervisor: &Supervisor,
    server: Server,
    hub: &Hub,
    last_writes: Vec<Boxed<'static, ()>>,
) -> bool {
    hub.drain();
    // While the hub still accepts, because it takes time. What is not written by then stays where it is, and another hub or
    // the next start writes it.
    let writing = async {
        let _ = tokio::time::timeout(LAST_WRITES, join_all(last_writes)).await;
    };
    let drained = server.drain(DRAIN, writing).await;
    supervisor.shut_down(Duration::from_secs(1)).await && drained
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
