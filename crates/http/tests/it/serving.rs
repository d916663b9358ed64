//! A server for one test, with one shard, so that what happens on it happens one after the other.

use std::net::SocketAddr;
use std::panic::Location;
use std::sync::Arc;

use axum::{Router, middleware};
use bongsu_http::identity::{self, Identity};
use bongsu_http::origins::{self, Origins};
use bongsu_http::server::{self, Server, ShardLoop, listen};
use bongsu_http::{InFlight, Peer, frame, in_flight};
use bongsu_kernel::Clock;
use bongsu_kernel::settings::{Input, load};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::text::Language;
use bongsu_testkit::raw;

use crate::LONG;

pub(crate) struct Serving {
    pub(crate) server: Server,
    pub(crate) addr: SocketAddr,
    pub(crate) identity: Identity,
    pub(crate) in_flight: InFlight,
}

impl Serving {
    /// Serves the routes, with the layers that the product has around its own.
    pub(crate) async fn start(routes: impl FnOnce(Identity) -> Router) -> Self {
        let values = load(server::SETTINGS, &Input::default()).unwrap();
        Self::start_within(in_flight::Options::from_settings(&values), routes).await
    }

    /// The same with other limits of what requests may cost.
    pub(crate) async fn start_within(
        limits: in_flight::Options,
        routes: impl FnOnce(Identity) -> Router,
    ) -> Self {
        let values = load(identity::SETTINGS, &Input::default()).unwrap();
        let origins = Origins::from_settings(&values).unwrap();
        let options = identity::Options::from_settings(&values).unwrap();
        let tickets = Arc::new(identity::OwnTickets::new(Clock::system()));
        let identity =
            Identity::new(&options, origins.clone(), tickets, None, Clock::system(), &Supervisor::new())
                .unwrap();
        let in_flight = InFlight::start(limits, &Supervisor::new());
        let options = frame::Options { default_language: Language::default(), in_flight: in_flight.clone() };
        let app = routes(identity.clone())
            .route("/", axum::routing::get(async || "here"))
            .layer(middleware::from_fn_with_state(options, frame::around))
            .layer(middleware::from_fn_with_state(origins, origins::cors));
        let idle: ShardLoop = Arc::new(|_| Box::pin(std::future::pending()));
        let (server, acceptor) = Server::start(1, &app, &idle).unwrap();
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(acceptor.run(listener));
        Self { server, addr, identity, in_flight }
    }

    /// A request and its answer. Whatever could go on on the shard before has gone on meanwhile.
    pub(crate) async fn round(&self) {
        let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        raw::answer(self.addr, request, LONG).await.unwrap().expect(200);
    }

    /// Waits until a number no longer moves while the shard does all it can.
    #[track_caller]
    pub(crate) fn settled(&self, mut number: impl FnMut() -> usize) -> impl Future<Output = usize> {
        let caller = Location::caller();
        async move {
            for _ in 0..1_000 {
                let before = number();
                for _ in 0..5 {
                    self.round().await;
                }
                if number() == before && before > 0 {
                    return before;
                }
            }
            panic!("it does not come to rest at {caller}");
        }
    }
}

/// Waits until the server has let go of a connection.
pub(crate) async fn gone(peer: &Peer) {
    bongsu_testkit::wait::until(LONG, || async { peer.bytes_taken() == 0 }).await;
}
