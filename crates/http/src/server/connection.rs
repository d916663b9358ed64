//! One connection: which protocol it speaks, and its life until it ends, the server drains, or a stream or a WebSocket
//! takes it.
//!
//! hyper parses and answers; what is needed afterwards is in `carrier`.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::carrier::{Carrier, Leaving};
use super::drain::Drain;
use super::socket::{Peer, Socket};
use crate::carried::Carried;

/// A request head must be complete by then; an idle connection is closed after it, too.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// While the server drains, one who has just come has so long to begin a request.
const LAST_PATIENCE: Duration = Duration::from_millis(300);
/// A request head may have so many bytes. hyper's buffer never shrinks, so this also bounds an idle connection.
const HEAD_BYTES: usize = 16 << 10;

/// Serves a connection to its end, or until an answer takes it.
pub(super) async fn serve(stream: TcpStream, shard: usize, app: Router, drain: Drain) -> Option<Carrier> {
    prepare(&stream);
    let socket = Socket::new(stream);
    let too_late = async {
        let drained = async {
            drain.wait().await;
            tokio::time::sleep(LAST_PATIENCE).await;
        };
        let _ = tokio::time::timeout(HEAD_PATIENCE, drained).await;
    };
    let sniffed = tokio::select! {
        () = too_late => return None,
        sniffed = speaks_http2(socket.stream()) => sniffed,
    };
    if sniffed.ok()? {
        serve_http2(socket, shard, app, drain).await;
        return None;
    }
    serve_http1(socket, shard, app, drain).await
}

// hyper's connections are boxed: a task is as large as the largest state it can be in, and HTTP/2's is several KiB.

async fn serve_http1(socket: Socket, shard: usize, app: Router, drain: Drain) -> Option<Carrier> {
    let (peer, remains) = (Peer::new(shard, &socket), socket.remains());
    let service = service_fn(move |request| call(app.clone(), peer.clone(), request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).max_buf_size(HEAD_BYTES);
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(socket), service));
    let leaving =
        drain.end(&mut connection, http1::Connection::graceful_shutdown, || remains.take_leaving()).await;
    if let Some(leaving) = leaving {
        let early = Pin::into_inner(connection).into_parts().read_buf;
        return Some(Carrier::new(remains, *leaving, &early, drain));
    }
    drop(connection);
    if !drain.has_begun() {
        remains.linger().await;
    }
    None
}

async fn serve_http2(socket: Socket, shard: usize, app: Router, drain: Drain) {
    let (peer, scissors) = (Peer::new(shard, &socket), Scissors::default());
    let executor = scissors.clone();
    let service = service_fn(move |request| call(app.clone(), peer.clone().alone(scissors.next()), request));
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(20)))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_concurrent_streams(100)
        .max_header_list_size(u32::try_from(HEAD_BYTES).unwrap_or(u32::MAX))
        .max_send_buf_size(64 << 10);
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(socket), service));
    let nothing = || None::<Infallible>;
    drain.end(&mut connection, http2::Connection::graceful_shutdown, nothing).await;
}

/// Runs each request of an HTTP/2 connection as a task that can be cut off by itself: the others on the connection
/// have done nothing wrong.
#[derive(Clone, Default)]
struct Scissors(Arc<Mutex<Option<CancellationToken>>>);

impl Scissors {
    /// What cuts the request that is being called. hyper hands its future over right after the call.
    fn next(&self) -> CancellationToken {
        let cut = CancellationToken::new();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(cut.clone());
        cut
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Scissors {
    #[expect(clippy::disallowed_methods, reason = "hyper's own tasks; they end with their connection")]
    fn execute(&self, request: F) {
        let cut = self.0.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
        tokio::spawn(async move {
            tokio::select! {
                () = request => {}
                () = cut.cancelled() => {}
            }
        });
    }
}

/// Answers a request. A stream that has its connection to itself, or a WebSocket's session, takes it out of hyper,
/// which then waits for an answer that never comes, until it is let go of.
fn call(
    mut app: Router,
    peer: Peer,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Body>, Infallible>> {
    let leaves = peer.is_alone() && request.version() == Version::HTTP_11;
    let only_head = request.method() == Method::HEAD;
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(peer.clone());
    let answer = app.call(request);
    async move {
        let mut response = answer.await?;
        match Carried::take_from(&mut response) {
            Some(carried) if leaves && !only_head => {
                peer.leave_with(Leaving::new(response.headers(), carried));
                std::future::pending().await
            }
            Some(Carried::Stream(stream)) if !only_head => Ok(response.map(|_| Body::new(stream))),
            // A session is only ever given to a request that it can leave with: see `websocket::Upgrade`.
            _ => Ok(response),
        }
    }
}

/// Small frames leave at once, and a peer that vanished without a word is noticed.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(60));
    let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs(20));
    let _ = sockopt::set_tcp_keepcnt(stream, 3);
}

/// What every HTTP/2 client begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Looks at the first bytes without taking them, until they differ from the preface or are all of it: hyper itself
/// would wait for the rest of a preface for ever.
async fn speaks_http2(stream: &TcpStream) -> std::io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    loop {
        match stream.peek(&mut first).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            seen if first[..seen] != PREFACE[..seen] => return Ok(false),
            seen if seen == PREFACE.len() => return Ok(true),
            // The socket stays readable until the bytes are taken: there is no event for "one more byte".
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
