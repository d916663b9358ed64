//! A strict HTTP/1.1 response parser: the head of a response and the framing of its body.
//!
//! Input may be split at any byte. Malformed input that a lenient client would accept is an error here, because the hub
//! must never send it.

mod chunked;

use std::io;

use http::{HeaderMap, HeaderName, HeaderValue};

use chunked::ChunkedDecoder;

/// Maximum length of a head, in bytes.
const MAX_HEAD_LENGTH: usize = 64 * 1024;

/// Status line and headers.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// The length of the head, in bytes.
    pub(crate) length: usize,
}

/// Parses the head at the start of `bytes`; None while it is incomplete.
pub(crate) fn parse_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() > MAX_HEAD_LENGTH { Err(malformed("head too long")) } else { Ok(None) };
    };
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| malformed("head is not UTF-8"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(parse_status).ok_or_else(|| malformed("no status line"))?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| malformed("header without a colon"))?;
        let name = HeaderName::try_from(name).map_err(|_| malformed("invalid header name"))?;
        let value = HeaderValue::from_str(value.trim()).map_err(|_| malformed("invalid header value"))?;
        headers.append(name, value);
    }
    Ok(Some(Head { status, headers, length: end + 4 }))
}

fn parse_status(line: &str) -> Option<u16> {
    let rest = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "))?;
    let code = rest.get(..3)?;
    // The space after the code is required, even if the reason phrase is empty.
    (rest.as_bytes().get(3) == Some(&b' ')).then(|| code.parse().ok())?
}

/// The framing of the rest of a body.
#[derive(Debug)]
pub(crate) enum Body {
    ChunkedDecoder(ChunkedDecoder),
    /// The number of bytes that are left.
    Length(u64),
    UntilClose,
}

impl Body {
    pub(crate) fn from_head(head: &Head, is_head_request: bool) -> io::Result<Self> {
        if is_head_request || matches!(head.status, 100..=199 | 204 | 304) {
            return Ok(Self::Length(0));
        }
        let mut lengths = head.headers.get_all("content-length").iter();
        match (head.headers.get("transfer-encoding"), lengths.next(), lengths.next()) {
            (None, None, _) => Ok(Self::UntilClose),
            (Some(coding), None, _) if coding == "chunked" => {
                Ok(Self::ChunkedDecoder(ChunkedDecoder::default()))
            }
            (None, Some(length), None) => {
                let length = length.to_str().ok().and_then(|length| length.parse().ok());
                length.map(Self::Length).ok_or_else(|| malformed("invalid content-length"))
            }
            _ => Err(malformed("conflicting or unknown framing of the body")),
        }
    }

    /// Decodes bytes from the socket and appends those of the body to `output`. Bytes after the end of the body are an
    /// error.
    pub(crate) fn feed(&mut self, input: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::ChunkedDecoder(chunked) => chunked.feed(input, output),
            Self::Length(left) => {
                *left = left
                    .checked_sub(input.len() as u64)
                    .ok_or_else(|| malformed("body longer than its content-length"))?;
                output.extend_from_slice(input);
                Ok(())
            }
            Self::UntilClose => {
                output.extend_from_slice(input);
                Ok(())
            }
        }
    }

    /// Whether the body is complete without the end of the connection.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Self::ChunkedDecoder(chunked) => chunked.is_complete(),
            Self::Length(left) => *left == 0,
            Self::UntilClose => false,
        }
    }

    /// Whether the body would be truncated if the connection ended now.
    pub(crate) fn is_cut_by_close(&self) -> bool {
        !self.is_complete() && !matches!(self, Self::UntilClose)
    }
}

/// The error for a malformed response.
pub(crate) fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed response: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> io::Result<Option<Head>> {
        parse_head(text.as_bytes())
    }

    #[test]
    fn a_head_is_read_once_it_is_complete() {
        let whole = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-A: 1\r\nx-a: 2\r\n\r\nrest";
        let end = whole.len() - 4;
        assert!((0..end).all(|cut| head(&whole[..cut]).unwrap().is_none()));
        let read = head(whole).unwrap().unwrap();
        assert_eq!((read.status, read.length), (200, end));
        assert_eq!(read.headers["content-type"], "text/plain");
        assert_eq!(read.headers.get_all("X-A").iter().count(), 2);
    }

    #[test]
    fn malformed_heads_are_refused() {
        for text in
            ["HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n"]
        {
            assert!(head(text).is_err(), "{text:?}");
        }
        assert!(parse_head(&vec![b'a'; MAX_HEAD_LENGTH + 1]).is_err());
    }

    #[test]
    fn framing_follows_the_head() {
        let body = |rest: &str| {
            let head = head(&format!("HTTP/1.1 200 OK\r\n{rest}\r\n")).unwrap().unwrap();
            Body::from_head(&head, false)
        };
        assert!(matches!(body(""), Ok(Body::UntilClose)));
        assert!(matches!(body("Content-Length: 5\r\n"), Ok(Body::Length(5))));
        assert!(matches!(body("Transfer-Encoding: chunked\r\n"), Ok(Body::ChunkedDecoder(_))));
        assert!(body("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n").is_err());
        assert!(body("Content-Length: 5\r\nContent-Length: 6\r\n").is_err());
        assert!(Body::Length(2).feed(b"abc", &mut Vec::new()).is_err());
        let empty = head("HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap();
        assert!(Body::from_head(&empty, false).unwrap().is_complete());
    }
}
