//! Monotonic time, and the send time that travels inside an event as `"sentNs":<16 digits>`.
//! Sixteen digits always, so that a request is patched in place, and below 2^53, so that it stays an exact JSON
//! number whoever parses it. Only the process that wrote a stamp can read it: the base is its own start.

use std::time::Instant;

pub(crate) const STAMP_DIGITS: usize = 16;
const STAMP_KEY: &[u8] = b"\"sentNs\":";
const STAMP_BASE: u64 = 1_000_000_000_000_000;

#[derive(Clone, Copy)]
pub(crate) struct Clock {
    base: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { base: Instant::now() }
    }

    pub(crate) fn now_ns(self) -> u64 {
        u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Writes the decimal digits of `value` right-aligned over all of `place`.
pub(crate) fn put_digits(place: &mut [u8], mut value: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

pub(crate) fn put_stamp(place: &mut [u8], now_ns: u64) {
    put_digits(place, STAMP_BASE + now_ns);
}

/// The digits of an unsigned number at the start of `text`, and the number; None when there is none.
pub(crate) fn leading_number(text: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0u64;
    let mut length = 0;
    for byte in text {
        if !byte.is_ascii_digit() {
            break;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        length += 1;
    }
    (length > 0).then_some((value, length))
}

/// Finds stamps; remembers where the last one stood, as nearly every event has it at the same place.
#[derive(Default)]
pub(crate) struct StampReader {
    likely_at: usize,
}

impl StampReader {
    /// Where the digits begin.
    pub(crate) fn locate(&mut self, data: &[u8]) -> Option<usize> {
        let key_end = self.likely_at + STAMP_KEY.len();
        if data.get(self.likely_at..key_end) == Some(STAMP_KEY) {
            return Some(key_end);
        }
        let found = data.windows(STAMP_KEY.len()).position(|window| window == STAMP_KEY)?;
        self.likely_at = found;
        Some(found + STAMP_KEY.len())
    }

    /// When the event was sent, in nanoseconds of the clock that wrote the stamp.
    pub(crate) fn read(&mut self, data: &[u8]) -> Option<u64> {
        let at = self.locate(data)?;
        let digits = data.get(at..at + STAMP_DIGITS)?;
        leading_number(digits)?.0.checked_sub(STAMP_BASE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_back_wherever_it_stands() {
        let mut reader = StampReader::default();
        for before in ["{", "{\"a\":1,", "{\"a\":1,", "{\"title\":\"x\",\"b\":[],"] {
            let mut text = format!("{before}\"sentNs\":0000000000000000}}").into_bytes();
            let at = reader.locate(&text).unwrap();
            put_stamp(&mut text[at..at + STAMP_DIGITS], 12_345);
            assert_eq!(reader.read(&text), Some(12_345));
            assert!(text.ends_with(b"\"sentNs\":1000000000012345}"));
        }
    }

    #[test]
    fn no_stamp_is_no_number() {
        let mut reader = StampReader::default();
        assert_eq!(reader.read(b"{\"onlineUsers\":[1]}"), None);
        assert_eq!(reader.read(b"{\"sentNs\":12}"), None);
        assert_eq!(leading_number(b"17-4"), Some((17, 2)));
        assert_eq!(leading_number(b"-4"), None);
    }
}
