//! WebSockets as a client sees them: messages, closing, the handshake, and limits for misbehaving clients.

mod client;
mod closing;
mod echo;
mod handshake;
mod messages;

use std::sync::Arc;

use axum::extract::{FromRef, State};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use bongsu_http::websocket::Upgrade;
use bongsu_http::{ConnectionControl, Identity, StreamPerson};

use crate::test_server::TestServer;
use echo::{EchoSession, EchoState};

#[derive(Clone)]
struct Routes {
    identity: Identity,
    echo: Arc<EchoState>,
}

impl FromRef<Routes> for Identity {
    fn from_ref(routes: &Routes) -> Self {
        routes.identity.clone()
    }
}

/// A server with `/ws`, which needs no authentication, and `/mine`, which does.
async fn serve() -> (TestServer, Arc<EchoState>) {
    let echo = Arc::<EchoState>::default();
    let public = async |upgrade: Upgrade,
                        Extension(peer): Extension<ConnectionControl>,
                        State(routes): State<Routes>|
           -> Response { upgrade.answer(EchoSession::new(routes.echo, peer)) };
    let authenticated =
        async |upgrade: Upgrade, caller: StreamPerson, State(routes): State<Routes>| -> Response {
            let (person, peer) = caller.into_parts();
            routes.echo.send_text(&format!("hello {}", person.id));
            upgrade.answer(EchoSession::new(routes.echo, peer))
        };
    let state = echo.clone();
    let test_server = TestServer::start(|identity| {
        Router::new()
            .route("/ws", get(public))
            .route("/mine", get(authenticated))
            .with_state(Routes { identity, echo: state })
    })
    .await;
    (test_server, echo)
}
