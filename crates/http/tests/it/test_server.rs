//! A server for one test. It has one shard, so that all its connections are served by one thread in turn.

use std::net::SocketAddr;
use std::panic::Location;
use std::sync::Arc;

use axum::{Router, middleware};
use bongsu_http::identity::{self, Identity};
use bongsu_http::origins::{self, Origins};
use bongsu_http::server::{self, Server, ShardLoop, listen};
use bongsu_http::{ConnectionControl, InFlightRequests, in_flight, request_scope};
use bongsu_kernel::Clock;
use bongsu_kernel::settings::{Input, load};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::text::Language;
use bongsu_testkit::raw;

use crate::WAIT_TIMEOUT;

pub(crate) struct TestServer {
    pub(crate) server: Server,
    pub(crate) addr: SocketAddr,
    pub(crate) identity: Identity,
    pub(crate) in_flight: InFlightRequests,
}

impl TestServer {
    /// Serves routes with the middleware of the product.
    pub(crate) async fn start(routes: impl FnOnce(Identity) -> Router) -> Self {
        let values = load(server::SETTINGS, &Input::default()).unwrap();
        Self::start_with_limits(in_flight::Options::from_settings(&values), routes).await
    }

    /// Like `start`, with other limits for unfinished requests.
    pub(crate) async fn start_with_limits(
        limits: in_flight::Options,
        routes: impl FnOnce(Identity) -> Router,
    ) -> Self {
        let values = load(identity::SETTINGS, &Input::default()).unwrap();
        let origins = Origins::from_settings(&values).unwrap();
        let options = identity::Options::from_settings(&values).unwrap();
        let tickets = Arc::new(identity::MemoryTickets::new(Clock::system()));
        let identity =
            Identity::new(&options, origins.clone(), tickets, None, Clock::system(), &Supervisor::new())
                .unwrap();
        let in_flight = InFlightRequests::start(limits, &Supervisor::new());
        let options =
            request_scope::Options { default_language: Language::default(), in_flight: in_flight.clone() };
        let app = routes(identity.clone())
            .route("/", axum::routing::get(async || "here"))
            .layer(middleware::from_fn_with_state(options, request_scope::wrap))
            .layer(middleware::from_fn_with_state(origins, origins::cors));
        let idle: ShardLoop = Arc::new(|_| Box::pin(std::future::pending()));
        let (server, acceptor) = Server::start(1, &app, &idle).unwrap();
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(acceptor.run(listener));
        Self { server, addr, identity, in_flight }
    }

    /// Sends a request and waits for the response. Meanwhile the shard has polled every task that was ready before.
    pub(crate) async fn round_trip(&self) {
        let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        raw::answer(self.addr, request, WAIT_TIMEOUT).await.unwrap().expect(200);
    }

    /// Waits until a number is above zero and stays the same while the shard runs.
    #[track_caller]
    pub(crate) fn wait_until_stable(&self, mut number: impl FnMut() -> usize) -> impl Future<Output = usize> {
        let caller = Location::caller();
        async move {
            for _ in 0..1_000 {
                let before = number();
                for _ in 0..5 {
                    self.round_trip().await;
                }
                if number() == before && before > 0 {
                    return before;
                }
            }
            panic!("the number at {caller} does not become stable");
        }
    }
}

/// Waits until the server has closed a connection.
pub(crate) async fn wait_until_closed(peer: &ConnectionControl) {
    bongsu_testkit::wait::until(WAIT_TIMEOUT, || async { peer.bytes_written() == 0 }).await;
}
