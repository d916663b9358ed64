//! WebSockets as a client sees them: what is said, how it ends, who may open one, and what a bad client costs.

mod client;
mod endings;
mod handshake;
mod notes;
mod talking;

use std::sync::Arc;

use axum::extract::{FromRef, State};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use bongsu_http::websocket::Upgrade;
use bongsu_http::{Identity, Peer, StreamPerson};

use crate::serving::Serving;
use notes::{Noted, Notes};

#[derive(Clone)]
struct Routes {
    identity: Identity,
    notes: Arc<Notes>,
}

impl FromRef<Routes> for Identity {
    fn from_ref(routes: &Routes) -> Self {
        routes.identity.clone()
    }
}

/// `/ws` is for anybody, `/mine` for people.
async fn serve() -> (Serving, Arc<Notes>) {
    let notes = Arc::<Notes>::default();
    let anybody = async |upgrade: Upgrade,
                         Extension(peer): Extension<Peer>,
                         State(routes): State<Routes>|
           -> Response { upgrade.answer(Noted::new(routes.notes, peer)) };
    let people = async |upgrade: Upgrade, caller: StreamPerson, State(routes): State<Routes>| -> Response {
        let (person, peer) = caller.into_parts();
        routes.notes.say(&format!("hello {}", person.id));
        upgrade.answer(Noted::new(routes.notes, peer))
    };
    let given = notes.clone();
    let serving = Serving::start(|identity| {
        Router::new()
            .route("/ws", get(anybody))
            .route("/mine", get(people))
            .with_state(Routes { identity, notes: given })
    })
    .await;
    (serving, notes)
}
