//! Decodes the chunked transfer coding incrementally. Input may be split at any byte, and a frame may span several
//! chunks.

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

    /// Calls `on_payload` with each piece of payload in `bytes`. Returns false once the last chunk has been decoded.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut on_payload: impl FnMut(&[u8])) -> bool {
        while let Some((&first, rest)) = bytes.split_first() {
            if let State::Data(remaining) = self.state {
                let (payload, behind) = bytes.split_at(remaining.min(bytes.len()));
                on_payload(payload);
                let remaining = remaining - payload.len();
                self.state = if remaining == 0 { State::LineEnd } else { State::Data(remaining) };
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
    fn payload_is_the_same_for_every_split_of_the_input() {
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
