//! An HTTP/2 client by hand, whose windows are as small as a test wants them and never grow.
//!
//! It answers what keeps a connection alive (SETTINGS, PING) while it is read, and gives everything else to the test.

use std::io;
use std::net::SocketAddr;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
const ACK: u8 = 1;
const END_STREAM_AND_HEADERS: u8 = 0x5;
/// SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW: u16 = 4;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

/// A connection. Streams have the numbers 1, 3, 5 and so on.
pub struct Http2 {
    socket: TcpStream,
    received: BytesMut,
    next_stream: u32,
}

/// A frame from the server.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub stream: u32,
    pub payload: Bytes,
}

impl Http2 {
    /// Connects; every stream may be sent `window` bytes, and no more.
    pub async fn connect(addr: SocketAddr, window: u32) -> Self {
        let mut socket = TcpStream::connect(addr).await.expect("the server accepts");
        socket.set_nodelay(true).expect("a socket");
        let mut hello = PREFACE.to_vec();
        let settings = [&INITIAL_WINDOW.to_be_bytes()[..], &window.to_be_bytes()].concat();
        hello.extend(frame(SETTINGS, 0, 0, &settings));
        socket.write_all(&hello).await.expect("the server reads");
        Self { socket, received: BytesMut::new(), next_stream: 1 }
    }

    /// Sends a GET with these headers and gives its stream.
    pub async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> io::Result<u32> {
        // Indexed: GET and http. Literals, not indexed: path, authority, and the rest by name.
        let mut block = vec![0x82, 0x86];
        for (name, value) in [(4, path), (1, "localhost")] {
            block.push(name);
            push_text(&mut block, value);
        }
        for (name, value) in headers {
            block.push(0);
            push_text(&mut block, name);
            push_text(&mut block, value);
        }
        let stream = self.next_stream;
        self.next_stream += 2;
        self.socket.write_all(&frame(HEADERS, END_STREAM_AND_HEADERS, stream, &block)).await?;
        Ok(stream)
    }

    /// The next frame that is about a stream; none at the end of the connection.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some((head, flags)) = self.take_frame() {
                match head.kind {
                    SETTINGS | PING if flags & ACK != 0 => {}
                    SETTINGS => self.socket.write_all(&frame(SETTINGS, ACK, 0, &[])).await.ok()?,
                    PING => self.socket.write_all(&frame(PING, ACK, 0, &head.payload)).await.ok()?,
                    _ if head.stream == 0 => {}
                    _ => return Some(head),
                }
            } else if self.socket.read_buf(&mut self.received).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    fn take_frame(&mut self) -> Option<(Frame, u8)> {
        let head = self.received.get(..FRAME_HEAD)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        if self.received.len() < FRAME_HEAD + length {
            return None;
        }
        self.received.advance(FRAME_HEAD);
        Some((Frame { kind, stream, payload: self.received.split_to(length).freeze() }, flags))
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a small frame").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A string of HPACK, as it is.
fn push_text(block: &mut Vec<u8>, text: &str) {
    let mut left = text.len();
    if left < 127 {
        block.push(left as u8);
    } else {
        block.push(127);
        left -= 127;
        while left >= 128 {
            block.push((left % 128) as u8 | 128);
            left /= 128;
        }
        block.push(left as u8);
    }
    block.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_strings_are_written_as_hpack_has_them() {
        let head = |length: usize| {
            let mut block = Vec::new();
            push_text(&mut block, &"a".repeat(length));
            block[..block.len() - length].to_vec()
        };
        assert_eq!(head(0), [0]);
        assert_eq!(head(126), [126]);
        assert_eq!(head(127), [127, 0]);
        assert_eq!(head(300), [127, 173, 1]);
    }
}
