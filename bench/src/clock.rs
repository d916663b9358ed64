//! Monotonic time, and the stamp: the send time inside an event, as `"sentNs":<16 digits>`.
//! A stamp always has 16 digits, so that it can be overwritten in place, and is below 2^53, so that every JSON parser
//! reads it exactly. Stamps count from the start of a clock, so only the process that wrote a stamp can interpret it.

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

/// Overwrites `digits` with the decimal digits of `value`, with leading zeros.
pub(crate) fn put_digits(digits: &mut [u8], mut value: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

pub(crate) fn put_stamp(digits: &mut [u8], now_ns: u64) {
    put_digits(digits, STAMP_BASE + now_ns);
}

/// Parses the unsigned number at the start of `text`. Returns it with its number of digits; None when there is none.
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

/// Finds stamps. Tries the offset of the previous stamp first, because nearly all events have the same layout.
#[derive(Default)]
pub(crate) struct StampReader {
    last_offset: usize,
}

impl StampReader {
    /// The offset of the stamp's digits.
    pub(crate) fn locate(&mut self, data: &[u8]) -> Option<usize> {
        let key_end = self.last_offset + STAMP_KEY.len();
        if data.get(self.last_offset..key_end) == Some(STAMP_KEY) {
            return Some(key_end);
        }
        let found = data.windows(STAMP_KEY.len()).position(|window| window == STAMP_KEY)?;
        self.last_offset = found;
        Some(found + STAMP_KEY.len())
    }

    /// The send time, in nanoseconds since the start of the clock that wrote the stamp.
    pub(crate) fn read(&mut self, data: &[u8]) -> Option<u64> {
        let offset = self.locate(data)?;
        let digits = data.get(offset..offset + STAMP_DIGITS)?;
        leading_number(digits)?.0.checked_sub(STAMP_BASE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_read_at_any_offset() {
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
    fn missing_or_short_stamps_are_not_read() {
        let mut reader = StampReader::default();
        assert_eq!(reader.read(b"{\"onlineUsers\":[1]}"), None);
        assert_eq!(reader.read(b"{\"sentNs\":12}"), None);
        assert_eq!(leading_number(b"17-4"), Some((17, 2)));
        assert_eq!(leading_number(b"-4"), None);
    }
}
