//! A minimal HTTP server for pages and key sets that tests serve themselves. It answers one request per connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::ports::loopback;

/// The response to one request.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Time between the request and the response.
    pub(crate) delay: Duration,
}

impl Reply {
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("Content-Type".to_owned(), content_type.to_owned())];
        Self { status, headers, body: body.into(), delay: Duration::ZERO }
    }
}

/// A server on a loopback port. It runs as long as this value and the tokio runtime live.
pub(crate) struct LocalHttp {
    addr: SocketAddr,
    accept_task: JoinHandle<()>,
}

impl LocalHttp {
    /// Starts a server on a free port. `answer` receives the path of each request, including the query.
    pub(crate) async fn start(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at(0, answer).await
    }

    /// Starts a server on the given port (0: a free one).
    pub(crate) async fn start_at(port: u16, answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(loopback(port)).await.expect("cannot bind a loopback port");
        let addr = listener.local_addr().expect("the listener has no address");
        let answer = Arc::new(answer);
        let accept_task = tokio::spawn(async move {
            // Dropping the set with this task aborts all connections.
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let answer = Arc::clone(&answer);
                connections.spawn(async move { serve(socket, &*answer).await });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { addr, accept_task }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for LocalHttp {
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

/// Serves one connection. Returns None on an error, which closes the connection.
async fn serve(mut socket: TcpStream, answer: &(impl Fn(&str) -> Reply + Sync)) -> Option<()> {
    let mut received = Vec::new();
    while !received.windows(4).any(|four| four == b"\r\n\r\n") {
        if received.len() > 64 * 1024 || socket.read_buf(&mut received).await.ok()? == 0 {
            return None;
        }
    }
    let text = String::from_utf8_lossy(&received);
    let reply = answer(text.split(' ').nth(1)?);
    if !reply.delay.is_zero() {
        tokio::time::sleep(reply.delay).await;
    }
    let length = reply.body.len();
    let mut out = format!("HTTP/1.1 {} -\r\nContent-Length: {length}\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        out.push_str(&format!("{name}: {value}\r\n"));
    }
    out.push_str("\r\n");
    socket.write_all(out.as_bytes()).await.ok()?;
    socket.write_all(&reply.body).await.ok()?;
    socket.shutdown().await.ok()
}
