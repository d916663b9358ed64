//! Parsers for the bytes of a connection: HTTP/1.1 heads, the chunked transfer coding, SSE frames and WebSocket
//! messages. They work on slices of one shared read buffer and copy only incomplete frames and messages.

pub(crate) mod chunks;
pub(crate) mod frames;
pub(crate) mod head;
pub(crate) mod messages;

/// The offset of the first line feed at or after `from`. Blocks without a line feed are skipped with a comparison that
/// compiles to vector instructions. A crate for this would be a dependency for one function.
pub(crate) fn find_newline(bytes: &[u8], from: usize) -> Option<usize> {
    const BLOCK: usize = 32;
    let mut at = from;
    while let Some(block) = bytes.get(at..at + BLOCK) {
        if block.iter().fold(0u8, |hit, byte| hit | u8::from(*byte == b'\n')) != 0 {
            break;
        }
        at += BLOCK;
    }
    bytes.get(at..)?.iter().position(|byte| *byte == b'\n').map(|offset| at + offset)
}

#[cfg(test)]
mod tests {
    use super::find_newline;

    #[test]
    fn newlines_are_found_at_any_offset() {
        let mut bytes = vec![b'x'; 200];
        assert_eq!(find_newline(&bytes, 0), None);
        for at in [0, 1, 31, 32, 33, 63, 64, 199] {
            bytes.fill(b'x');
            bytes[at] = b'\n';
            assert_eq!(find_newline(&bytes, 0), Some(at));
            assert_eq!(find_newline(&bytes, at), Some(at));
            assert_eq!(find_newline(&bytes, at + 1), None);
        }
        assert_eq!(find_newline(&bytes, 201), None);
    }
}
