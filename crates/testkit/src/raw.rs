//! Arbitrary bytes on a socket: malformed requests, cut ones, and ones that come slowly.
//!
//! What the hub answers is read by hand, so that nothing a client library would do stands between.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout_at};

use crate::answer::Answer;
use crate::wire::{Body, parse_head};

const UNREAD_BUFFER: u32 = 4_096;

/// Writes `bytes` and gives all that comes back until the server closes, or until `timeout`.
///
/// A server that keeps the connection open makes this take the whole timeout: ask for `Connection: close`, or
/// use [`answer`].
pub async fn exchange(addr: SocketAddr, bytes: &[u8], timeout: Duration) -> Vec<u8> {
    drip(addr, bytes, bytes.len().max(1), Duration::ZERO, timeout).await.received
}

/// Writes `bytes` and gives the first whole answer (interim ones are passed over); none when the server closes
/// without one, sends something malformed, or takes longer than `timeout`.
pub async fn answer(addr: SocketAddr, bytes: &[u8], timeout: Duration) -> Option<Answer> {
    let is_head_request = bytes.starts_with(b"HEAD ");
    let exchange = async {
        let (mut reader, mut writer) = TcpStream::connect(addr).await.ok()?.into_split();
        // Beside the reading: a server may answer and stop reading before it has everything.
        let write = async {
            let _ = writer.write_all(bytes).await;
            std::future::pending().await
        };
        let read = async {
            let mut received = Vec::new();
            loop {
                let closed = reader.read_buf(&mut received).await.unwrap_or(0) == 0;
                if let Some((answer, _)) = first_answer(&received, is_head_request, closed) {
                    return Some(answer);
                }
                if closed {
                    return None;
                }
            }
        };
        tokio::select! {
            answer = read => answer,
            never = write => never,
        }
    };
    tokio::time::timeout(timeout, exchange).await.ok()?
}

/// All whole answers in what an exchange received, for pipelined requests.
pub fn answers(mut received: &[u8]) -> Vec<Answer> {
    let mut found = Vec::new();
    while let Some((answer, rest)) = first_answer(received, false, true) {
        found.push(answer);
        received = rest;
    }
    found
}

/// Sends a request and reads nothing of what comes back. The receive buffer is small, so that the kernel takes little in
/// place of a client that does not read.
pub async fn unread(addr: SocketAddr, request: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(UNREAD_BUFFER).expect("a small buffer");
    let mut stream = socket.connect(addr).await.expect("the server accepts");
    stream.write_all(request).await.expect("the server reads");
    stream
}

/// What became of bytes that were sent slowly.
#[derive(Debug)]
pub struct Dripped {
    pub sent: usize,
    pub received: Vec<u8>,
    /// Whether the server closed, rather than the time ran out.
    pub closed: bool,
    /// How long it took.
    pub took: Duration,
}

/// Writes `bytes` in pieces with a pause before each further one, reading meanwhile, until the server closes or
/// `timeout` has passed. After the last piece it goes on reading.
pub async fn drip(
    addr: SocketAddr,
    bytes: &[u8],
    piece: usize,
    pause: Duration,
    timeout: Duration,
) -> Dripped {
    let started = Instant::now();
    let deadline = started + timeout;
    let (mut reader, mut writer) = TcpStream::connect(addr).await.expect("the server accepts").into_split();
    let (mut sent, mut received) = (0, Vec::new());
    let write = async {
        for (index, piece) in bytes.chunks(piece).enumerate() {
            if index > 0 {
                sleep(pause).await;
            }
            if writer.write_all(piece).await.is_err() {
                break;
            }
            sent += piece.len();
        }
        // The write half stays open: its end would tell the server that nothing more comes.
        std::future::pending::<()>().await;
    };
    let read = async { while reader.read_buf(&mut received).await.unwrap_or(0) > 0 {} };
    let both = async {
        tokio::select! {
            () = write => {}
            () = read => {}
        }
    };
    let closed = timeout_at(deadline, both).await.is_ok();
    Dripped { sent, received, closed, took: started.elapsed() }
}

fn first_answer(received: &[u8], is_head_request: bool, closed: bool) -> Option<(Answer, &[u8])> {
    let head = parse_head(received).ok()??;
    let rest = &received[head.length..];
    if (100..200).contains(&head.status) && head.status != 101 {
        return first_answer(rest, is_head_request, closed);
    }
    let mut body = Body::of(&head, is_head_request).ok()?;
    let mut bytes = Vec::new();
    let mut used = 0;
    // Byte by byte, so that a following answer on the same connection is left alone.
    while !body.is_complete() && used < rest.len() {
        body.feed(&rest[used..=used], &mut bytes).ok()?;
        used += 1;
    }
    let whole = body.is_complete() || (closed && !body.is_cut_by_close());
    whole.then(|| (Answer::new(head.status, head.headers, Bytes::from(bytes)), &rest[used..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fixture;

    const LONG: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn gives_back_what_the_server_sends() {
        let server = Fixture::page("<p>hello</p>").await;
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let received = exchange(server.addr(), request, LONG).await;
        assert!(received.starts_with(b"HTTP/1.1 200 "));
        let answer = answer(server.addr(), request, LONG).await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "<p>hello</p>"));
        let dripped = drip(server.addr(), request, 5, Duration::from_millis(1), LONG).await;
        assert!(dripped.closed);
        assert_eq!((dripped.sent, dripped.received), (request.len(), received));
    }

    #[test]
    fn tells_pipelined_answers_apart() {
        let received = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}\
            HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\nHTTP/1.1 2";
        let found: Vec<_> = answers(received).iter().map(|answer| (answer.status, answer.text())).collect();
        assert_eq!(found, [(200, "{}".to_owned()), (404, "x".to_owned())]);
    }
}
