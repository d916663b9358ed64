//! One connection to a Redis server, by hand: nothing that a client library would do (connecting again, following
//! a redirection, repeating) stands between a test and what the server says.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::resp::{Frames, NotResp, Reply};

/// A connection.
pub struct Client {
    socket: TcpStream,
    received: Vec<u8>,
    /// How much of it has been looked through for the end of the next reply.
    seen: usize,
    frames: Frames,
}

impl Client {
    pub async fn connect(addr: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(addr).await?;
        socket.set_nodelay(true)?;
        Ok(Self { socket, received: Vec::new(), seen: 0, frames: Frames::default() })
    }

    /// Sends a command and gives the next reply.
    pub async fn call(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<Reply> {
        self.send(words).await?;
        self.read().await
    }

    /// Sends a command and waits for nothing: for subscriptions, and to have several under way.
    pub async fn send(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let mut frame = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            frame.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            frame.extend_from_slice(word);
            frame.extend_from_slice(b"\r\n");
        }
        self.socket.write_all(&frame).await
    }

    /// The next reply, or message; an error when the connection ended. Cancelling loses nothing.
    pub async fn read(&mut self) -> io::Result<Reply> {
        loop {
            if self.seen < self.received.len() {
                match self.frames.end_in(&self.received[self.seen..]).map_err(not_resp)? {
                    None => self.seen = self.received.len(),
                    Some(end) => {
                        let rest = self.received.split_off(self.seen + end);
                        let frame = std::mem::replace(&mut self.received, rest);
                        self.seen = 0;
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
    io::Error::new(io::ErrorKind::InvalidData, "not the protocol of Redis")
}
