//! The client's side of HTTP/1.1, by hand and strict: the head of an answer and the framing of its body.
//!
//! Bytes come in as the socket gives them, cut anywhere. What a lenient client would repair is an error here,
//! because the hub must never send it.

mod chunked;

use std::io;

use http::{HeaderMap, HeaderName, HeaderValue};

use chunked::Chunked;

const MAX_HEAD: usize = 64 * 1024;

/// Status line and headers.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// How many bytes the head took.
    pub(crate) length: usize,
}

/// The head at the start of `bytes`; none while it is incomplete.
pub(crate) fn parse_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() > MAX_HEAD { Err(bad("a head without end")) } else { Ok(None) };
    };
    let text = std::str::from_utf8(&bytes[..end]).map_err(|_| bad("a head that is not text"))?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(parse_status).ok_or_else(|| bad("no status line"))?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(':').ok_or_else(|| bad("a header without a colon"))?;
        let name = HeaderName::try_from(name).map_err(|_| bad("a header's name"))?;
        let value = HeaderValue::from_str(value.trim()).map_err(|_| bad("a header's value"))?;
        headers.append(name, value);
    }
    Ok(Some(Head { status, headers, length: end + 4 }))
}

fn parse_status(line: &str) -> Option<u16> {
    let rest = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "))?;
    let code = rest.get(..3)?;
    // A space has to follow, even before an empty reason.
    (rest.as_bytes().get(3) == Some(&b' ')).then(|| code.parse().ok())?
}

/// How the rest of a body is framed.
#[derive(Debug)]
pub(crate) enum Body {
    Chunked(Chunked),
    /// So many bytes are left.
    Length(u64),
    UntilClose,
}

impl Body {
    pub(crate) fn of(head: &Head, is_head_request: bool) -> io::Result<Self> {
        if is_head_request || matches!(head.status, 100..=199 | 204 | 304) {
            return Ok(Self::Length(0));
        }
        let mut lengths = head.headers.get_all("content-length").iter();
        match (head.headers.get("transfer-encoding"), lengths.next(), lengths.next()) {
            (None, None, _) => Ok(Self::UntilClose),
            (Some(coding), None, _) if coding == "chunked" => Ok(Self::Chunked(Chunked::default())),
            (None, Some(length), None) => {
                let length = length.to_str().ok().and_then(|length| length.parse().ok());
                length.map(Self::Length).ok_or_else(|| bad("a content-length"))
            }
            _ => Err(bad("two framings of one body")),
        }
    }

    /// Takes bytes from the socket, gives those of the body. What comes after the body's end is an error.
    pub(crate) fn feed(&mut self, input: &[u8], output: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Self::Chunked(chunked) => chunked.feed(input, output),
            Self::Length(left) => {
                *left = left.checked_sub(input.len() as u64).ok_or_else(|| bad("more than its length"))?;
                output.extend_from_slice(input);
                Ok(())
            }
            Self::UntilClose => {
                output.extend_from_slice(input);
                Ok(())
            }
        }
    }

    /// Whether the body is complete without the connection's end.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            Self::Chunked(chunked) => chunked.is_complete(),
            Self::Length(left) => *left == 0,
            Self::UntilClose => false,
        }
    }

    /// Whether a connection that ends here cuts the body off.
    pub(crate) fn is_cut_by_close(&self) -> bool {
        !self.is_complete() && !matches!(self, Self::UntilClose)
    }
}

pub(crate) fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("malformed answer: {what}"))
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
        assert!(parse_head(&vec![b'a'; MAX_HEAD + 1]).is_err());
    }

    #[test]
    fn framing_follows_the_head() {
        let body = |rest: &str| {
            let head = head(&format!("HTTP/1.1 200 OK\r\n{rest}\r\n")).unwrap().unwrap();
            Body::of(&head, false)
        };
        assert!(matches!(body(""), Ok(Body::UntilClose)));
        assert!(matches!(body("Content-Length: 5\r\n"), Ok(Body::Length(5))));
        assert!(matches!(body("Transfer-Encoding: chunked\r\n"), Ok(Body::Chunked(_))));
        assert!(body("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n").is_err());
        assert!(body("Content-Length: 5\r\nContent-Length: 6\r\n").is_err());
        assert!(Body::Length(2).feed(b"abc", &mut Vec::new()).is_err());
        let empty = head("HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap();
        assert!(Body::of(&empty, false).unwrap().is_complete());
    }
}
