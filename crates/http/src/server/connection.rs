//! Serves one connection: detects its protocol, and runs it until it ends, the server drains, or a stream or a
//! WebSocket takes it out of hyper.
//!
//! hyper parses requests and writes responses; `detached` serves the connection after that.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bongsu_kernel::lock;
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

use super::detached::{DetachedConnection, Handover};
use super::drain_signal::DrainSignal;
use super::socket::{ConnectionControl, Socket};
use crate::detached_body::DetachedBody;

/// The time in which a request head must be complete; also how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a new connection may take to begin a request while the server drains.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_millis(300);
/// Bytes of a request head. hyper's buffer never shrinks, so this also bounds the memory of an idle connection.
const MAX_HEAD_SIZE: usize = 16 << 10;

/// Serves a connection until it ends (None), or until a response takes it out of hyper (the detached
/// connection).
pub(super) async fn serve(
    stream: TcpStream,
    shard: usize,
    app: Router,
    drain: DrainSignal,
) -> Option<DetachedConnection> {
    configure_socket(&stream);
    let socket = Socket::new(stream);
    let timeout = async {
        let drained = async {
            drain.wait().await;
            tokio::time::sleep(FIRST_REQUEST_TIMEOUT).await;
        };
        let _ = tokio::time::timeout(HEAD_TIMEOUT, drained).await;
    };
    let detected = tokio::select! {
        () = timeout => return None,
        detected = is_http2(socket.tcp()) => detected,
    };
    if detected.ok()? {
        serve_http2(socket, shard, app, drain).await;
        return None;
    }
    serve_http1(socket, shard, app, drain).await
}

// hyper's connections are boxed, because a task is as large as its largest state, and an HTTP/2 connection has several
// KiB.

async fn serve_http1(
    socket: Socket,
    shard: usize,
    app: Router,
    drain: DrainSignal,
) -> Option<DetachedConnection> {
    let (peer, detached) = (ConnectionControl::new(shard, &socket), socket.detached());
    let service = service_fn(move |request| call(app.clone(), peer.clone(), request));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD_SIZE);
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(socket), service));
    let handover =
        drain.run(&mut connection, http1::Connection::graceful_shutdown, || detached.take_handover()).await;
    if let Some(handover) = handover {
        let early = Pin::into_inner(connection).into_parts().read_buf;
        return Some(DetachedConnection::new(detached, *handover, &early, drain));
    }
    drop(connection);
    if !drain.has_begun() {
        detached.linger().await;
    }
    None
}

async fn serve_http2(socket: Socket, shard: usize, app: Router, drain: DrainSignal) {
    let (peer, canceller) = (ConnectionControl::new(shard, &socket), RequestCanceller::default());
    let executor = canceller.clone();
    let service = service_fn(move |request| {
        call(app.clone(), peer.clone().with_request_token(canceller.next_token()), request)
    });
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(Duration::from_secs(20)))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_concurrent_streams(100)
        .max_header_list_size(u32::try_from(MAX_HEAD_SIZE).unwrap_or(u32::MAX))
        .max_send_buf_size(64 << 10);
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(socket), service));
    let no_handover = || None::<Infallible>;
    drain.run(&mut connection, http2::Connection::graceful_shutdown, no_handover).await;
}

/// Runs each request of an HTTP/2 connection as a task that can be cancelled alone, without ending the other requests
/// of the connection. Holds the token of the request that hyper is starting.
#[derive(Clone, Default)]
struct RequestCanceller(Arc<Mutex<Option<CancellationToken>>>);

impl RequestCanceller {
    /// Returns the token that cancels the request whose service is being called. hyper calls `execute` with the
    /// request's future right after this call.
    fn next_token(&self) -> CancellationToken {
        let token = CancellationToken::new();
        *lock(&self.0) = Some(token.clone());
        token
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for RequestCanceller {
    #[expect(clippy::disallowed_methods, reason = "hyper's own tasks; they end with their connection")]
    fn execute(&self, request: F) {
        let token = lock(&self.0).take().unwrap_or_default();
        tokio::spawn(async move {
            tokio::select! {
                () = request => {}
                () = token.cancelled() => {}
            }
        });
    }
}

/// Answers a request. A stream that shares its connection with no other request, or a WebSocket's session, takes the
/// connection out of hyper: hyper then waits for a response that never comes, until its connection is dropped.
fn call(
    mut app: Router,
    peer: ConnectionControl,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Body>, Infallible>> {
    let can_detach = peer.has_own_connection() && request.version() == Version::HTTP_11;
    let is_head = request.method() == Method::HEAD;
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(peer.clone());
    let response = app.call(request);
    async move {
        let mut response = response.await?;
        match DetachedBody::take_from(&mut response) {
            Some(body) if can_detach && !is_head => {
                peer.hand_over(Handover::new(response.headers(), body));
                std::future::pending().await
            }
            Some(DetachedBody::Stream(stream)) if !is_head => Ok(response.map(|_| Body::new(stream))),
            // A session is always detached: `websocket::Upgrade` accepts only requests whose connection can be
            // detached.
            _ => Ok(response),
        }
    }
}

/// Disables Nagle's algorithm, so that small frames are sent at once, and enables TCP keepalive, so that a client that
/// vanished without closing the connection is noticed.
fn configure_socket(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(60));
    let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs(20));
    let _ = sockopt::set_tcp_keepcnt(stream, 3);
}

/// The first bytes of every HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Peeks at the first bytes until they differ from the preface or contain all of it. Done here because hyper's own
/// detection waits without a timeout for the rest of a preface.
async fn is_http2(stream: &TcpStream) -> std::io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    loop {
        match stream.peek(&mut first).await? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            seen if first[..seen] != PREFACE[..seen] => return Ok(false),
            seen if seen == PREFACE.len() => return Ok(true),
            // The socket stays readable until the bytes are read, so no readiness event announces one more byte.
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
