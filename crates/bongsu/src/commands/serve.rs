//! `bongsu serve`: runs the hub until it is told to stop, and then drains it.
//!
//! Whatever may refuse the start is asked before anything is written down; requests are served once all of it is open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bongsu_http::server::{self, SERVER_PORT, SERVER_SHARDS, Server};
use bongsu_inbox::Inbox;
use bongsu_kernel::settings::Values;
use bongsu_kernel::task::{OnEnd, Supervisor};
use bongsu_kernel::telemetry;
use bongsu_live::Hub;
use clap::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;
use crate::settings::{self, Checked};
use crate::wire::{Store, Wired, wire};

/// Requests that are under way may take so long once the hub drains; in all it is gone within ten seconds.
const DRAIN: Duration = Duration::from_secs(6);
/// And so long the last writes.
const LAST_WRITES: Duration = Duration::from_secs(1);

pub(crate) fn command() -> Command {
    Command::new("serve").about("Run the hub")
}

pub(crate) fn run(values: &Values) -> Result<(), Failure> {
    let checked = settings::check(values)?;
    let port = u16::try_from(values.whole(&SERVER_PORT)).unwrap_or_default();
    telemetry::start_logs(values)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::other)?;
    runtime.block_on(serve(values, checked, port))
}

async fn serve(values: &Values, checked: Checked, port: u16) -> Result<(), Failure> {
    let (address, weak) = (SocketAddr::new(checked.host, port), checked.weak.join(", "));
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
    let wired = wire(values, checked, bound, shards, &supervisor).await;
    if wired.is_err() {
        // The others need not wait until the lease of an instance ends that never served anybody.
        supervisor.shut_down(LAST_WRITES).await;
    }
    let Wired { app, hub, redis, inbox, store, ready } = wired?;
    if let Some(redis) = redis {
        // So that health tells the truth from the first moment. A hub starts without Redis, too.
        redis.look().await;
    }
    let deliverer = hub.clone();
    let shard_loop: server::ShardLoop = Arc::new(move |shard| Box::pin(deliverer.clone().run_shard(shard)));
    let (server, acceptor) = Server::start(shards, &app, &shard_loop).map_err(Failure::other)?;
    // The shards have their own copies; when they end, the last handle on the store goes.
    drop(app);
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
            settings = weak,
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
        drained = drain(&supervisor, server, &hub, inbox.as_ref()) => drained,
        () = signals.stop() => return Err(Failure::Other("stopped before everything was finished".to_owned())),
    };
    // Bounded, too: with what the draining may take it is gone within ten seconds.
    if let Some(Store { store, writer }) = store {
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

async fn drain(supervisor: &Supervisor, server: Server, hub: &Hub, inbox: Option<&Inbox>) -> bool {
    hub.drain();
    // While the hub still accepts, because it takes time. What is not written by then stays where it is, and another hub or
    // the next start writes it.
    let flush = async {
        if let Some(inbox) = inbox {
            let _ = tokio::time::timeout(LAST_WRITES, inbox.flush()).await;
        }
    };
    let drained = server.drain(DRAIN, flush).await;
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
