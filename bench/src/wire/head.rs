//! Parses the head of an HTTP/1.1 request or answer: first line, content length and transfer coding. Other headers are
//! ignored.

use super::find_newline;

pub(crate) struct Head<'a> {
    /// The first line without its line end.
    pub(crate) first_line: &'a [u8],
    pub(crate) content_length: Option<usize>,
    pub(crate) is_chunked: bool,
    /// Length of the head in bytes, including the empty line.
    pub(crate) bytes: usize,
}

impl<'a> Head<'a> {
    /// Parses the head at the start of `message`; None while it is incomplete.
    pub(crate) fn parse(message: &'a [u8]) -> Option<Self> {
        let mut head = Self { first_line: b"", content_length: None, is_chunked: false, bytes: 0 };
        let mut start = 0;
        loop {
            let end = find_newline(message, start)?;
            let line = message[start..end].trim_ascii_end();
            if start == 0 {
                head.first_line = line;
            } else if line.is_empty() {
                head.bytes = end + 1;
                return Some(head);
            } else if let Some(value) = value_of(line, b"content-length:") {
                head.content_length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            } else if let Some(value) = value_of(line, b"transfer-encoding:") {
                head.is_chunked = value.eq_ignore_ascii_case(b"chunked");
            }
            start = end + 1;
        }
    }

    /// The status of an answer; 0 when the first line is not a status line.
    pub(crate) fn status(&self) -> u16 {
        let code = self.first_line.get(9..12).unwrap_or_default();
        std::str::from_utf8(code).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::Head;

    #[test]
    fn length_and_coding_are_parsed_and_other_headers_ignored() {
        let answer = b"HTTP/1.1 200 OK\r\nVary: x\r\nContent-Length: 17\r\n\r\nbody";
        let head = Head::parse(answer).unwrap();
        assert_eq!((head.status(), head.content_length, head.is_chunked), (200, Some(17), false));
        assert_eq!(&answer[head.bytes..], b"body");
        let stream = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n";
        assert!(Head::parse(stream).unwrap().is_chunked);
        for cut in 0..stream.len() {
            assert!(Head::parse(&stream[..cut]).is_none());
        }
    }
}
