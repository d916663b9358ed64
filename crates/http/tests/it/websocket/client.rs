//! A hand-written WebSocket client, which can also violate the protocol.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::WAIT_TIMEOUT;

/// The key of the example in RFC 6455, and the `Sec-WebSocket-Accept` for it.
pub(crate) const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
pub(crate) const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

pub(crate) const TEXT: u8 = 0x81;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;
pub(crate) const PONG: u8 = 0x8a;

pub(crate) struct Client {
    pub(crate) tcp: TcpStream,
    /// The head of the response, in lower case.
    pub(crate) head: String,
    received: Vec<u8>,
}

/// A valid handshake, with extra header lines.
pub(crate) fn handshake(path: &str, extra_headers: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: hub.example\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{extra_headers}\r\n"
    )
}

/// A masked frame of a client. `first` has the opcode and the flags.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 0, 200, 33];
    let mut wire = vec![first];
    match payload.len() {
        length @ ..126 => wire.push(0x80 + length as u8),
        length @ 126..0x1_0000 => wire.extend([0xfe, (length >> 8) as u8, length as u8]),
        length => {
            wire.push(0xff);
            wire.extend((length as u64).to_be_bytes());
        }
    }
    wire.extend(mask);
    wire.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
    wire
}

/// The payload of a close frame.
pub(crate) fn close_payload(code: u16, reason: &str) -> Vec<u8> {
    [&code.to_be_bytes(), reason.as_bytes()].concat()
}

impl Client {
    pub(crate) async fn open(addr: SocketAddr) -> Self {
        Self::connect(addr, &handshake("/ws", ""), b"").await
    }

    /// Sends a handshake and `early` bytes in one write. The server must accept the handshake.
    pub(crate) async fn connect(addr: SocketAddr, request: &str, early: &[u8]) -> Self {
        // A small receive buffer, so that the kernel buffers little for a client that does not read.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(8 << 10).unwrap();
        let mut tcp = socket.connect(addr).await.unwrap();
        tcp.write_all(&[request.as_bytes(), early].concat()).await.unwrap();
        let mut client = Self { tcp, head: String::new(), received: Vec::new() };
        let end = loop {
            match client.received.windows(4).position(|four| four == b"\r\n\r\n") {
                Some(at) => break at + 4,
                None => assert!(client.read().await, "no response"),
            }
        };
        let head: Vec<u8> = client.received.drain(..end).collect();
        client.head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(client.head.starts_with("http/1.1 101 switching protocols\r\n"), "{}", client.head);
        client
    }

    /// Reads more bytes. Returns false at the end of the connection.
    async fn read(&mut self) -> bool {
        let read = timeout(WAIT_TIMEOUT, self.tcp.read_buf(&mut self.received))
            .await
            .expect("bytes or the end in time");
        read.is_ok_and(|read| read > 0)
    }

    pub(crate) async fn send(&mut self, first: u8, payload: &[u8]) {
        self.send_raw(&frame(first, payload)).await;
    }

    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        timeout(WAIT_TIMEOUT, self.tcp.write_all(bytes)).await.expect("the server reads in time").unwrap();
    }

    /// The first byte and the payload of the next frame. None at the end of the connection.
    pub(crate) async fn next_frame(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some((head, length)) = self.frame_lengths()
                && self.received.len() >= head + length
            {
                let first = self.received[0];
                self.received.drain(..head);
                return Some((first, self.received.drain(..length).collect()));
            }
            if !self.read().await {
                assert!(self.received.is_empty(), "the server ended within a frame");
                return None;
            }
        }
    }

    /// The lengths of the head and the payload of the next frame. None while the head is incomplete.
    fn frame_lengths(&self) -> Option<(usize, usize)> {
        match *self.received.get(1)? {
            126 => {
                let length = self.received.get(2..4)?.try_into().unwrap();
                Some((4, usize::from(u16::from_be_bytes(length))))
            }
            127 => {
                let length = self.received.get(2..10)?.try_into().unwrap();
                Some((10, u64::from_be_bytes(length) as usize))
            }
            length @ ..126 => Some((2, usize::from(length))),
            _ => panic!("a server must not mask its frames"),
        }
    }

    pub(crate) async fn next_text(&mut self) -> String {
        let (first, payload) = self.next_frame().await.expect("a message");
        assert_eq!(first, TEXT);
        String::from_utf8(payload).unwrap()
    }

    /// Reads a close frame, after which the connection must end.
    pub(crate) async fn final_close_frame(&mut self) -> (u16, String) {
        let close = self.close_frame().await;
        assert_eq!(self.next_frame().await, None, "no frame follows a close frame");
        close
    }

    pub(crate) async fn close_frame(&mut self) -> (u16, String) {
        let (first, payload) = self.next_frame().await.expect("a close frame");
        assert_eq!(first, CLOSE);
        let (code, reason) = payload.split_at(2);
        (u16::from_be_bytes(code.try_into().unwrap()), String::from_utf8(reason.to_vec()).unwrap())
    }
}
