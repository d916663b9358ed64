//! Takes the chunked coding off a body, a slice at a time: chunk lines may be cut anywhere, and a frame may span chunks.

#[derive(Clone, Copy)]
pub(crate) struct Dechunker {
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Size(usize),
    Extension(usize),
    Data(usize),
    LineEnd,
    Ended,
}

impl Dechunker {
    pub(crate) fn new() -> Self {
        Self { state: State::Size(0) }
    }

    /// Hands every piece of payload in `bytes` to `on_payload`. False once the last chunk was seen.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut on_payload: impl FnMut(&[u8])) -> bool {
        while let Some((&first, rest)) = bytes.split_first() {
            if let State::Data(left) = self.state {
                let (payload, behind) = bytes.split_at(left.min(bytes.len()));
                on_payload(payload);
                let left = left - payload.len();
                self.state = if left == 0 { State::LineEnd } else { State::Data(left) };
                bytes = behind;
                continue;
            }
            self.state = match self.state {
                State::Size(0) | State::Extension(0) if first == b'\n' => State::Ended,
                State::Size(size) | State::Extension(size) if first == b'\n' => State::Data(size),
                State::Size(size) => match char::from(first).to_digit(16) {
                    Some(digit) => State::Size(size.saturating_mul(16).saturating_add(digit as usize)),
                    None => State::Extension(size),
                },
                State::LineEnd if first == b'\n' => State::Size(0),
                other => other,
            };
            bytes = rest;
        }
        !matches!(self.state, State::Ended)
    }
}

#[cfg(test)]
mod tests {
    use super::Dechunker;

    const CODED: &[u8] = b"5\r\nevent\r\nA;x=1\r\n: a\ndata: \r\n3\r\n{}\n\r\n1\r\n\n\r\n0\r\n\r\n";
    const PLAIN: &[u8] = b"event: a\ndata: {}\n\n";

    #[test]
    fn payload_comes_out_whole_however_reads_cut_it() {
        for step in 1..CODED.len() {
            let mut dechunker = Dechunker::new();
            let mut payload = Vec::new();
            let mut open = true;
            for piece in CODED.chunks(step) {
                open = dechunker.feed(piece, |bytes| payload.extend_from_slice(bytes));
            }
            assert_eq!(payload, PLAIN, "in steps of {step}");
            assert!(!open);
        }
    }
}
