//! Writes the frames of the server. They are not masked, so the bytes of a frame are the same for every client and can
//! be shared. The frames of clients are read by `parser`.

use bytes::Bytes;

pub(super) const FINAL: u8 = 0x80;
pub(super) const CONTINUATION: u8 = 0x0;
pub(super) const TEXT: u8 = 0x1;
pub(super) const BINARY: u8 = 0x2;
pub(super) const CLOSE: u8 = 0x8;
pub(super) const PING: u8 = 0x9;
pub(super) const PONG: u8 = 0xA;

/// Maximum bytes of the payload of a control frame, by the standard.
pub(super) const MAX_CONTROL_SIZE: usize = 125;

/// A whole text message. The payload must be UTF-8.
pub fn text(payload: &[u8]) -> Bytes {
    frame(TEXT, payload)
}

/// A ping without a payload, which the client answers with a pong.
pub fn ping() -> Bytes {
    Bytes::from_static(&[FINAL | PING, 0])
}

/// The pong that answers a ping with this payload.
pub(crate) fn pong(payload: &[u8]) -> Bytes {
    frame(PONG, payload)
}

/// A close frame. A reason that is too long is cut at a character boundary.
pub(crate) fn close(code: u16, reason: &str) -> Bytes {
    let reason = &reason[..reason.floor_char_boundary(MAX_CONTROL_SIZE - 2)];
    frame(CLOSE, &[&code.to_be_bytes(), reason.as_bytes()].concat())
}

fn frame(opcode: u8, payload: &[u8]) -> Bytes {
    let (head, length) = head(opcode, payload.len());
    [&head[..length], payload].concat().into()
}

/// The head of a frame with a whole message, and its number of bytes. The payload length has the shortest of the three
/// forms.
fn head(opcode: u8, payload: usize) -> ([u8; 10], usize) {
    let mut head = [0; 10];
    head[0] = FINAL | opcode;
    if payload <= MAX_CONTROL_SIZE {
        head[1] = payload as u8;
        (head, 2)
    } else if let Ok(short) = u16::try_from(payload) {
        head[1] = 126;
        head[2..4].copy_from_slice(&short.to_be_bytes());
        (head, 4)
    } else {
        head[1] = 127;
        head[2..].copy_from_slice(&(payload as u64).to_be_bytes());
        (head, 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_the_shortest_form() {
        for (payload, head) in [
            (0, &[0x81, 0][..]),
            (125, &[0x81, 125]),
            (126, &[0x81, 126, 0, 126]),
            (65_535, &[0x81, 126, 0xff, 0xff]),
            (65_536, &[0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let payload = vec![b'a'; payload];
            let frame = text(&payload);
            assert_eq!(&frame[..head.len()], head);
            assert_eq!(&frame[head.len()..], payload);
        }
    }

    #[test]
    fn control_frames_follow_the_standard() {
        assert_eq!(&ping()[..], [0x89, 0]);
        assert_eq!(&pong(b"hi")[..], [0x8a, 2, b'h', b'i']);
        assert_eq!(&close(3000, "go")[..], [0x88, 4, 0x0b, 0xb8, b'g', b'o']);
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let frame = close(1000, &"봉".repeat(100));
        assert_eq!(frame.len(), 2 + 2 + 123);
        assert_eq!(str::from_utf8(&frame[4..]).unwrap(), "봉".repeat(41));
        let frame = close(1000, &format!("a{}", "봉".repeat(100)));
        assert_eq!(str::from_utf8(&frame[4..]).unwrap(), format!("a{}", "봉".repeat(40)));
    }
}
