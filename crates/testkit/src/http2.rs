//! A minimal HTTP/2 client whose flow control windows have a fixed size that the test chooses.
//!
//! The client acknowledges SETTINGS and PING while the test reads frames, and returns all frames of streams to the
//! test.

use std::io;
use std::net::SocketAddr;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Length of a frame header, in bytes.
const FRAME_HEADER_LENGTH: usize = 9;
const ACK: u8 = 1;
/// The flags END_STREAM and END_HEADERS.
const END_STREAM_AND_HEADERS: u8 = 0x5;
/// The identifier of the setting SETTINGS_INITIAL_WINDOW_SIZE.
const INITIAL_WINDOW_SIZE: u16 = 4;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

/// An HTTP/2 connection. Its streams have the ids 1, 3, 5 and so on.
pub struct Http2 {
    socket: TcpStream,
    received: BytesMut,
    next_stream: u32,
}

/// A frame that the server sent.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub stream: u32,
    pub payload: Bytes,
}

impl Http2 {
    /// Connects. The server may send at most `window` bytes on each stream.
    pub async fn connect(addr: SocketAddr, window: u32) -> Self {
        let mut socket = TcpStream::connect(addr).await.expect("cannot connect");
        socket.set_nodelay(true).expect("cannot set TCP_NODELAY");
        let mut hello = PREFACE.to_vec();
        let settings = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window.to_be_bytes()].concat();
        hello.extend(frame(SETTINGS, 0, 0, &settings));
        socket.write_all(&hello).await.expect("cannot write the connection preface");
        Self { socket, received: BytesMut::new(), next_stream: 1 }
    }

    /// Sends a GET with these headers and returns the id of its stream.
    pub async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> io::Result<u32> {
        // HPACK: indexed fields for the method GET and the scheme http, then literals without indexing.
        let mut block = vec![0x82, 0x86];
        for (name, value) in [(4, path), (1, "localhost")] {
            block.push(name);
            push_string(&mut block, value);
        }
        for (name, value) in headers {
            block.push(0);
            push_string(&mut block, name);
            push_string(&mut block, value);
        }
        let stream = self.next_stream;
        self.next_stream += 2;
        self.socket.write_all(&frame(HEADERS, END_STREAM_AND_HEADERS, stream, &block)).await?;
        Ok(stream)
    }

    /// The next frame of a stream; None at the end of the connection.
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
        let head = self.received.get(..FRAME_HEADER_LENGTH)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5] & 0x7f, head[6], head[7], head[8]]);
        if self.received.len() < FRAME_HEADER_LENGTH + length {
            return None;
        }
        self.received.advance(FRAME_HEADER_LENGTH);
        Some((Frame { kind, stream, payload: self.received.split_to(length).freeze() }, flags))
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("the frame is too long").to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Appends an HPACK string literal without Huffman coding.
fn push_string(block: &mut Vec<u8>, text: &str) {
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
    fn string_lengths_are_encoded_as_hpack_integers() {
        let head = |length: usize| {
            let mut block = Vec::new();
            push_string(&mut block, &"a".repeat(length));
            block[..block.len() - length].to_vec()
        };
        assert_eq!(head(0), [0]);
        assert_eq!(head(126), [126]);
        assert_eq!(head(127), [127, 0]);
        assert_eq!(head(300), [127, 173, 1]);
    }
}
