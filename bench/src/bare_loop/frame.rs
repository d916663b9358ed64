//! The frame of the bare loop: it has the format of the hub's frames and a given size, is built once, and gets a new id
//! and send time for each event.

use crate::Result;
use crate::clock::{STAMP_DIGITS, put_digits};

const ID_START: &str = "event: retrospect.submitted\nid: 1700000000000-";
/// Starts so high that the number of digits stays the same for all events.
const FIRST_SEQUENCE: u64 = 1_000_000;
const SEQUENCE_DIGITS: usize = 7;
const DATA_START: &str = "\ndata: {\"userId\":1,\"title\":\"";
const STAMP_START: &str = "\",\"sentNs\":";
const END: &str = "}\n\n";

pub(super) struct FrameTemplate {
    bytes: Vec<u8>,
    sequence: u64,
    stamp_offset: usize,
}

impl FrameTemplate {
    pub(super) fn new(size: usize) -> Result<Self> {
        let fixed = ID_START.len()
            + SEQUENCE_DIGITS
            + DATA_START.len()
            + STAMP_START.len()
            + STAMP_DIGITS
            + END.len();
        let padding = size.checked_sub(fixed).ok_or_else(|| format!("a frame has at least {fixed} bytes"))?;
        let before_stamp =
            format!("{ID_START}{FIRST_SEQUENCE}{DATA_START}{}{STAMP_START}", "x".repeat(padding));
        let stamp_offset = before_stamp.len();
        let bytes = format!("{before_stamp}{}{END}", "0".repeat(STAMP_DIGITS)).into_bytes();
        Ok(Self { bytes, sequence: FIRST_SEQUENCE, stamp_offset })
    }

    /// The frame of the next event, with the publisher's send time.
    pub(super) fn next(&mut self, stamp: &[u8]) -> &[u8] {
        self.sequence += 1;
        let id = ID_START.len()..ID_START.len() + SEQUENCE_DIGITS;
        put_digits(&mut self.bytes[id], self.sequence);
        self.bytes[self.stamp_offset..self.stamp_offset + STAMP_DIGITS].copy_from_slice(stamp);
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::StampReader;
    use crate::wire::frames::FrameScanner;

    #[test]
    fn frames_have_the_given_size_and_the_format_of_the_hub() {
        let mut template = FrameTemplate::new(210).unwrap();
        let mut ids = Vec::new();
        for stamp in [b"1000000000000001", b"1000000000000002"] {
            let bytes = template.next(stamp).to_vec();
            assert_eq!(bytes.len(), 210);
            FrameScanner::default().feed(&bytes, |frame| {
                ids.push(String::from_utf8_lossy(frame.id).into_owned());
                assert_eq!(frame.event, b"retrospect.submitted");
                assert_eq!(StampReader::default().read(frame.data), Some(ids.len() as u64));
            });
        }
        assert_eq!(ids, ["1700000000000-1000001", "1700000000000-1000002"]);
        assert!(FrameTemplate::new(50).is_err());
    }
}
