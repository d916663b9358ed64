//! Which slot of a Cluster a key belongs to, and which keys belong to a slot.

use std::sync::OnceLock;

pub(crate) const SLOTS: u16 = 16_384;

/// By what stands in the key's first braces, if anything does; else by all of it.
pub(crate) fn of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

/// A number whose text in braces gives a key this slot.
pub(crate) fn tag_of(slot: u16) -> u32 {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![None; usize::from(SLOTS)];
        let (mut missing, mut number) = (tags.len(), 0);
        while missing > 0 {
            let tag = &mut tags[usize::from(of(&number.to_string()))];
            missing -= usize::from(tag.is_none());
            tag.get_or_insert(number);
            number += 1;
        }
        tags.into_iter().flatten().collect()
    });
    tags[usize::from(slot)]
}

/// XMODEM's: polynomial 0x1021, from zero.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |mut crc: u16, byte| {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
        crc
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_that_redis_gives() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(of("foo"), 12_182);
        assert_eq!(of("{room:events:42}:bus"), of("room:events:42"));
        assert_eq!(of("a{}b"), crc16(b"a{}b") % SLOTS);
        assert_eq!(of("a{b}{c}"), of("b"));
        for slot in 0..SLOTS {
            assert_eq!(of(&format!("prefix:{{{}}}", tag_of(slot))), slot);
        }
    }
}
