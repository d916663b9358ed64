//! Where a stream's bytes come from: a plain socket with HTTP/1.1 read by hand, or one HTTP/2 stream.
//!
//! Nothing is read ahead of the parser, so that a test decides how fast its reader is.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep_until};

use crate::answer::Answer;
use crate::wire::{Body, bad, parse_head};

/// The longest read at full speed.
const READ: usize = 16 * 1024;

pub(super) enum Source {
    Socket { socket: TcpStream, body: Body, early: Vec<u8>, pace: Option<Pace> },
    Http2 { response: reqwest::Response },
}

/// Reads no faster than so many bytes a second, in steps of a tenth of it.
pub(super) struct Pace {
    bytes_per_sec: u64,
    next_read: Instant,
}

impl Pace {
    pub(super) fn new(bytes_per_sec: u64) -> Self {
        Self { bytes_per_sec: bytes_per_sec.max(1), next_read: Instant::now() }
    }

    fn step(&self) -> usize {
        usize::try_from(self.bytes_per_sec / 10).unwrap_or(READ).clamp(1, READ)
    }

    fn took(&mut self, bytes: usize) {
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_sec as f64);
        self.next_read = Instant::now() + cost;
    }
}

/// What opening found: the head, and where the body comes from.
pub(super) struct Opened {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) source: Source,
}

/// Asks over a socket of its own, with a receive buffer of this size if one is given.
pub(super) async fn open_socket(
    addr: SocketAddr,
    path: &str,
    headers: &[(String, String)],
    receive_buffer: Option<u32>,
) -> io::Result<Opened> {
    let socket = TcpSocket::new_v4()?;
    if let Some(size) = receive_buffer {
        // Before connecting: the window that is offered depends on it.
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
        // Small reads: a client that then stops reading has taken little more than the head.
        let mut piece = [0; 512];
        let count = socket.read(&mut piece).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        received.extend_from_slice(&piece[..count]);
    };
    let body = Body::of(&head, false)?;
    let early = received.split_off(head.length);
    Ok(Opened {
        status: head.status,
        headers: head.headers,
        source: Source::Socket { socket, body, early, pace: None },
    })
}

/// Asks over an HTTP/2 connection of its own.
pub(super) async fn open_http2(
    addr: SocketAddr,
    path: &str,
    headers: &[(String, String)],
) -> io::Result<Opened> {
    let client = reqwest::Client::builder().no_proxy().http2_prior_knowledge();
    let client = client.redirect(reqwest::redirect::Policy::none()).build().map_err(io::Error::other)?;
    let mut request = client.get(format!("http://{addr}{path}"));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let response = request.send().await.map_err(io::Error::other)?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Ok(Opened { status, headers, source: Source::Http2 { response } })
}

impl Opened {
    /// Reads the rest as an ordinary answer.
    pub(super) async fn into_answer(mut self) -> io::Result<Answer> {
        let mut bytes = Vec::new();
        while let Some(more) = self.source.read().await? {
            bytes.extend(more);
        }
        Ok(Answer::new(self.status, self.headers, Bytes::from(bytes)))
    }
}

impl Source {
    /// The body's next bytes; none at its proper end, an error when it is cut off. Cancelling loses nothing.
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
                        return if body.is_cut_by_close() { Err(bad("cut off")) } else { Ok(None) };
                    }
                }
                Ok(Some(output))
            }
        }
    }

    pub(super) fn set_pace(&mut self, bytes_per_sec: u64) {
        match self {
            Self::Socket { pace, .. } => *pace = Some(Pace::new(bytes_per_sec)),
            Self::Http2 { .. } => panic!("reading slowly is only possible on a socket of its own (HTTP/1.1)"),
        }
    }
}

/// Reads what is there; none when nothing is. The buffer lives only here: thousands of waiting streams have none.
fn read_now(
    socket: &TcpStream,
    body: &mut Body,
    pace: Option<&mut Pace>,
    output: &mut Vec<u8>,
) -> io::Result<Option<usize>> {
    let mut piece = [0; READ];
    let most = pace.as_ref().map_or(READ, |pace| pace.step());
    match socket.try_read(&mut piece[..most]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
        Ok(count) => {
            if let Some(pace) = pace {
                pace.took(count);
            }
            body.feed(&piece[..count], output)?;
            Ok(Some(count))
        }
    }
}
