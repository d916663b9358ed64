//! One connection to a Redis server, without a client library: it does not reconnect, follow redirections or repeat
//! commands, so a test sees every reply of the server.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::resp::{FrameSplitter, NotResp, Reply};

/// A connection.
pub struct Client {
    socket: TcpStream,
    received: Vec<u8>,
    /// Number of received bytes that were already searched for the end of the next reply.
    scanned: usize,
    frames: FrameSplitter,
}

impl Client {
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(addr).await?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, received: Vec::new(), scanned: 0, frames: FrameSplitter::default() })
    }

    /// Sends a command and returns the next reply.
    pub async fn call(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.send(words).await?;
        self.read().await
    }

    /// Sends a command without waiting for a reply: for subscriptions, and for several outstanding commands.
    pub async fn send(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let mut frame = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            frame.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            frame.extend_from_slice(word);
            frame.extend_from_slice(b"\r\n");
        }
        self.socket.write_all(&frame).await
    }

    /// Reads the next reply or message. Fails when the connection ends. Cancellation-safe.
    pub async fn read(&mut self) -> io::Result<Reply> {
        loop {
            if self.scanned < self.received.len() {
                match self.frames.end_in(&self.received[self.scanned..]).map_err(not_resp)? {
                    None => self.scanned = self.received.len(),
                    Some(end) => {
                        let rest = self.received.split_off(self.scanned + end);
                        let frame = std::mem::replace(&mut self.received, rest);
                        self.scanned = 0;
                        return Ok(Reply::parse(&frame).map_err(not_resp)?.0);
                    }
                }
            }
            if self.socket.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn not_resp(_: NotResp) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the bytes are not RESP")
}
