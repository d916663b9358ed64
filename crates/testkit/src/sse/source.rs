//! The byte source of a stream: a socket with this crate's own HTTP/1.1 parser, or one HTTP/2 stream of reqwest.
//!
//! No bytes are read ahead of the parser, so that a test controls the speed of its reader.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep_until};

use crate::answer::Answer;
use crate::wire::{Body, malformed, parse_head};

/// Maximum size of one read, in bytes.
const MAX_READ_SIZE: usize = 16 * 1024;

pub(super) enum Source {
    Socket {
        socket: TcpStream,
        body: Body,
        /// Bytes of the body that were received with the head.
        early: Vec<u8>,
        pace: Option<Pace>,
    },
    Http2 {
        response: reqwest::Response,
    },
}

/// Limits reads to a number of bytes per second, in steps of a tenth of that number.
pub(super) struct Pace {
    bytes_per_sec: u64,
    next_read: Instant,
}

impl Pace {
    pub(super) fn new(bytes_per_sec: u64) -> Self {
        Self { bytes_per_sec: bytes_per_sec.max(1), next_read: Instant::now() }
    }

    fn step(&self) -> usize {
        usize::try_from(self.bytes_per_sec / 10).unwrap_or(MAX_READ_SIZE).clamp(1, MAX_READ_SIZE)
    }

    fn record_read(&mut self, bytes: usize) {
        let delay = Duration::from_secs_f64(bytes as f64 / self.bytes_per_sec as f64);
        self.next_read = Instant::now() + delay;
    }
}

/// A response whose head has been read, and the source of its body.
pub(super) struct OpenedResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) source: Source,
}

/// Sends the request over its own HTTP/1.1 connection, with a receive buffer of the given size, if any.
pub(super) async fn open_socket(
    addr: SocketAddr,
    path: &str,
    headers: &[(String, String)],
    receive_buffer: Option<u32>,
) -> io::Result<OpenedResponse> {
    let socket = TcpSocket::new_v4()?;
    if let Some(size) = receive_buffer {
        // The size must be set before connecting, because it determines the TCP window that is advertised.
        socket.set_recv_buffer_size(size)?;
    }
    let mut socket = socket.connect(addr).await?;
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    socket.write_all(request.as_bytes()).await?;
    let mut received = Vec::new();
    let head = loop {
        if let Some(head) = parse_head(&received)? {
            break head;
        }
        // Small reads, so that a client that then stops reading has taken little more than the head.
        let mut piece = [0; 512];
        let count = socket.read(&mut piece).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        received.extend_from_slice(&piece[..count]);
    };
    let body = Body::from_head(&head, false)?;
    let early = received.split_off(head.length);
    Ok(OpenedResponse {
        status: head.status,
        headers: head.headers,
        source: Source::Socket { socket, body, early, pace: None },
    })
}

/// Sends the request over its own HTTP/2 connection.
pub(super) async fn open_http2(
    addr: SocketAddr,
    path: &str,
    headers: &[(String, String)],
) -> io::Result<OpenedResponse> {
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge();
    let client = client.redirect(reqwest::redirect::Policy::none()).build().map_err(io::Error::other)?;
    let mut request = client.get(format!("http://{addr}{path}"));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let response = request.send().await.map_err(io::Error::other)?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Ok(OpenedResponse { status, headers, source: Source::Http2 { response } })
}

impl OpenedResponse {
    /// Reads the whole body and returns it as an ordinary response.
    pub(super) async fn into_answer(mut self) -> io::Result<Answer> {
        let mut bytes = Vec::new();
        while let Some(more) = self.source.read().await? {
            bytes.extend(more);
        }
        Ok(Answer::new(self.status, self.headers, Bytes::from(bytes)))
    }
}

impl Source {
    /// The next bytes of the body; None at its regular end, an error if it is truncated. Cancellation-safe.
    pub(super) async fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Http2 { response } => {
                Ok(response.chunk().await.map_err(io::Error::other)?.map(|bytes| bytes.to_vec()))
            }
            Self::Socket { socket, body, early, pace } => {
                let mut output = Vec::new();
                if !early.is_empty() {
                    body.feed(&std::mem::take(early), &mut output)?;
                }
                while output.is_empty() {
                    if body.is_complete() {
                        return Ok(None);
                    }
                    if let Some(pace) = pace {
                        sleep_until(pace.next_read).await;
                    }
                    socket.readable().await?;
                    let Some(count) = read_now(socket, body, pace.as_mut(), &mut output)? else { continue };
                    if count == 0 {
                        return if body.is_cut_by_close() {
                            Err(malformed("truncated body"))
                        } else {
                            Ok(None)
                        };
                    }
                }
                Ok(Some(output))
            }
        }
    }

    pub(super) fn set_pace(&mut self, bytes_per_sec: u64) {
        match self {
            Self::Socket { pace, .. } => *pace = Some(Pace::new(bytes_per_sec)),
            Self::Http2 { .. } => panic!("read_slowly is only supported on HTTP/1.1"),
        }
    }
}

/// Reads the available bytes; None if there are none. The buffer is on the stack, so that thousands of waiting streams
/// have no read buffer.
fn read_now(
    socket: &TcpStream,
    body: &mut Body,
    pace: Option<&mut Pace>,
    output: &mut Vec<u8>,
) -> io::Result<Option<usize>> {
    let mut piece = [0; MAX_READ_SIZE];
    let max = pace.as_ref().map_or(MAX_READ_SIZE, |pace| pace.step());
    match socket.try_read(&mut piece[..max]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
        Ok(count) => {
            if let Some(pace) = pace {
                pace.record_read(count);
            }
            body.feed(&piece[..count], output)?;
            Ok(Some(count))
        }
    }
}
