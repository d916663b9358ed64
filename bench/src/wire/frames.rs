//! Finds the frames of an SSE stream in the bytes of a connection. A read may contain many frames, or a part of one.
//! Complete frames are neither copied nor allocated; only the beginning of an incomplete frame is copied.

use super::find_newline;

/// One frame. Missing fields are empty; a comment such as `:keepalive` is a frame without fields.
#[derive(Default)]
pub(crate) struct Frame<'a> {
    pub(crate) event: &'a [u8],
    pub(crate) id: &'a [u8],
    pub(crate) data: &'a [u8],
    /// Length on the wire in bytes, including the empty line.
    pub(crate) bytes: usize,
}

#[derive(Default)]
pub(crate) struct FrameScanner {
    /// The beginning of an incomplete frame.
    tail: Vec<u8>,
}

impl FrameScanner {
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut on_frame: impl FnMut(&Frame<'_>)) {
        if !self.tail.is_empty() {
            // Only the rest of this frame is copied; later frames are scanned in place.
            let (missing, rest) = bytes.split_at(self.bytes_to_end(bytes));
            self.tail.extend_from_slice(missing);
            let Some(frame) = first_frame(&self.tail) else { return };
            on_frame(&frame);
            self.tail.clear();
            bytes = rest;
        }
        while let Some(frame) = first_frame(bytes) {
            if frame.bytes > 1 {
                on_frame(&frame);
            }
            bytes = &bytes[frame.bytes..];
        }
        self.tail.extend_from_slice(bytes);
    }

    /// The number of bytes up to the end of the incomplete frame; all bytes if the frame does not end in them.
    fn bytes_to_end(&self, bytes: &[u8]) -> usize {
        if self.tail.ends_with(b"\n") && bytes.first() == Some(&b'\n') {
            return 1;
        }
        let mut from = 0;
        while let Some(at) = find_newline(bytes, from) {
            if bytes.get(at + 1) == Some(&b'\n') {
                return at + 2;
            }
            from = at + 1;
        }
        bytes.len()
    }
}

/// Parses the frame at the start of `bytes`; None while it is incomplete.
fn first_frame(bytes: &[u8]) -> Option<Frame<'_>> {
    let mut frame = Frame::default();
    let mut start = 0;
    loop {
        let end = find_newline(bytes, start)?;
        let line = &bytes[start..end];
        match line.first() {
            None => {
                frame.bytes = end + 1;
                return Some(frame);
            }
            Some(b'd') => frame.data = line.strip_prefix(b"data: ").unwrap_or(frame.data),
            Some(b'i') => frame.id = line.strip_prefix(b"id: ").unwrap_or(frame.id),
            Some(b'e') => frame.event = line.strip_prefix(b"event: ").unwrap_or(frame.event),
            Some(_) => {}
        }
        start = end + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"retry: 3000\n\n:keepalive\n\nevent: like.toggled\nid: 17-0\ndata: {\"a\":1}\n\n\
        event: presence.update\ndata: {}\n\nevent: like.toggled\nid: 17-1\ndata: {\"a\":\"\\n\\n\"}\n\n";

    fn scan(step: usize) -> Vec<(String, String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut scanner = FrameScanner::default();
        let mut found = Vec::new();
        for piece in STREAM.chunks(step) {
            scanner.feed(piece, |frame| found.push((text(frame.event), text(frame.id), text(frame.data))));
        }
        assert!(scanner.tail.is_empty());
        found
    }

    #[test]
    fn frames_are_the_same_for_every_split_of_the_input() {
        let whole = scan(STREAM.len());
        let ids: Vec<&str> = whole.iter().map(|(_, id, _)| id.as_str()).collect();
        assert_eq!(ids, ["", "", "17-0", "", "17-1"]);
        assert_eq!(whole[2], ("like.toggled".into(), "17-0".into(), "{\"a\":1}".into()));
        assert_eq!(whole[4].2, "{\"a\":\"\\n\\n\"}");
        for step in 1..STREAM.len() {
            assert_eq!(scan(step), whole, "in steps of {step}");
        }
    }

    #[test]
    fn lengths_add_up_to_the_stream() {
        let mut bytes = 0;
        FrameScanner::default().feed(STREAM, |frame| bytes += frame.bytes);
        assert_eq!(bytes, STREAM.len());
    }

    #[test]
    fn only_an_incomplete_frame_is_kept() {
        let mut scanner = FrameScanner::default();
        let mut many = b"data: 1\n\n".repeat(1_000);
        many.extend_from_slice(b"data: 2");
        scanner.feed(b"data", |_| {});
        scanner.feed(b": 0\n", |_| {});
        let mut count = 0;
        scanner.feed(&[b"\n".as_slice(), &many].concat(), |_| count += 1);
        assert_eq!((count, scanner.tail.len()), (1_001, 7));
    }
}
