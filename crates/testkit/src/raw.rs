//! Sends arbitrary bytes over a socket: malformed, truncated and slow requests.
//!
//! Responses are parsed by this crate's own code, so that no behaviour of a client library affects the test.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout_at};

use crate::answer::Answer;
use crate::wire::{Body, parse_head};

/// Receive buffer of [`send_without_reading`], in bytes.
const SMALL_RECEIVE_BUFFER: u32 = 4_096;

/// Writes `bytes` and returns all bytes received until the server closes the connection or `timeout` has passed.
///
/// If the server keeps the connection open, this takes the whole timeout: send `Connection: close`, or use [`answer`].
pub async fn exchange(addr: SocketAddr, bytes: &[u8], timeout: Duration) -> Vec<u8> {
    write_slowly(addr, bytes, bytes.len().max(1), Duration::ZERO, timeout).await.received
}

/// Writes `bytes` and returns the first complete response; interim responses (1xx) are skipped. None if the server
/// closes without one, sends a malformed response, or takes longer than `timeout`.
pub async fn answer(addr: SocketAddr, bytes: &[u8], timeout: Duration) -> Option<Answer> {
    let is_head_request = bytes.starts_with(b"HEAD ");
    let exchange = async {
        let (mut reader, mut writer) = TcpStream::connect(addr).await.ok()?.into_split();
        // Concurrent with the read: a server may answer and stop reading before it has received the whole request.
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

/// All complete responses in the received bytes, for pipelined requests.
pub fn answers(mut received: &[u8]) -> Vec<Answer> {
    let mut found = Vec::new();
    while let Some((answer, rest)) = first_answer(received, false, true) {
        found.push(answer);
        received = rest;
    }
    found
}

/// Sends a request and reads no byte of the response. The receive buffer is small, so that the kernel buffers little of
/// the response.
pub async fn send_without_reading(addr: SocketAddr, request: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("cannot create a socket");
    socket.set_recv_buffer_size(SMALL_RECEIVE_BUFFER).expect("cannot set the receive buffer");
    let mut stream = socket.connect(addr).await.expect("cannot connect");
    stream.write_all(request).await.expect("cannot write the request");
    stream
}

/// The result of [`write_slowly`].
#[derive(Debug)]
pub struct SlowExchange {
    /// Bytes written.
    pub sent: usize,
    pub received: Vec<u8>,
    /// Whether the server closed the connection before the timeout.
    pub closed: bool,
    /// Time from the start to the close or the timeout.
    pub took: Duration,
}

/// Writes `bytes` in pieces with a pause between them, and reads at the same time, until the server closes the
/// connection or `timeout` has passed. Reading continues after the last piece.
pub async fn write_slowly(
    addr: SocketAddr,
    bytes: &[u8],
    piece: usize,
    pause: Duration,
    timeout: Duration,
) -> SlowExchange {
    let started = Instant::now();
    let deadline = started + timeout;
    let (mut reader, mut writer) = TcpStream::connect(addr).await.expect("cannot connect").into_split();
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
        // The write half stays open: closing it would send the server an end of stream.
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
    SlowExchange { sent, received, closed, took: started.elapsed() }
}

fn first_answer(received: &[u8], is_head_request: bool, closed: bool) -> Option<(Answer, &[u8])> {
    let head = parse_head(received).ok()??;
    let rest = &received[head.length..];
    if (100..200).contains(&head.status) && head.status != 101 {
        return first_answer(rest, is_head_request, closed);
    }
    let mut body = Body::from_head(&head, is_head_request).ok()?;
    let mut bytes = Vec::new();
    let mut used = 0;
    // Byte by byte, so that no byte of a following response on the same connection is consumed.
    while !body.is_complete() && used < rest.len() {
        body.feed(&rest[used..=used], &mut bytes).ok()?;
        used += 1;
    }
    let is_whole = body.is_complete() || (closed && !body.is_cut_by_close());
    is_whole.then(|| (Answer::new(head.status, head.headers, Bytes::from(bytes)), &rest[used..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fixture;

    const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn received_bytes_are_returned() {
        let server = Fixture::page("<p>hello</p>").await;
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let received = exchange(server.addr(), request, WAIT_TIMEOUT).await;
        assert!(received.starts_with(b"HTTP/1.1 200 "));
        let answer = answer(server.addr(), request, WAIT_TIMEOUT).await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (200, "<p>hello</p>"));
        let exchange = write_slowly(server.addr(), request, 5, Duration::from_millis(1), WAIT_TIMEOUT).await;
        assert!(exchange.closed);
        assert_eq!((exchange.sent, exchange.received), (request.len(), received));
    }

    #[test]
    fn pipelined_answers_are_separated() {
        let received = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}\
            HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\nHTTP/1.1 2";
        let found: Vec<_> = answers(received).iter().map(|answer| (answer.status, answer.text())).collect();
        assert_eq!(found, [(200, "{}".to_owned()), (404, "x".to_owned())]);
    }
}
