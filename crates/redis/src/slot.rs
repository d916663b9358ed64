//! The hash slots of a Redis Cluster: the slot of a key, and a key for a slot.

use std::sync::OnceLock;

pub(crate) const SLOT_COUNT: u16 = 16_384;

/// Returns the slot of a key: the hash of the text in its first braces, or of the whole key if that text is missing or
/// empty.
pub(crate) fn of_key(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOT_COUNT
}

/// Returns a number that, as text in braces, gives a key this slot.
pub(crate) fn hash_tag(slot: u16) -> u32 {
    static TAGS: OnceLock<Vec<u32>> = OnceLock::new();
    let tags = TAGS.get_or_init(|| {
        let mut tags = vec![None; usize::from(SLOT_COUNT)];
        let (mut missing, mut number) = (tags.len(), 0);
        while missing > 0 {
            let tag = &mut tags[usize::from(of_key(&number.to_string()))];
            missing -= usize::from(tag.is_none());
            tag.get_or_insert(number);
            number += 1;
        }
        tags.into_iter().flatten().collect()
    });
    tags[usize::from(slot)]
}

/// CRC-16/XMODEM: polynomial 0x1021, initial value 0.
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
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(of_key("foo"), 12_182);
        assert_eq!(of_key("{room:events:42}:bus"), of_key("room:events:42"));
        assert_eq!(of_key("a{}b"), crc16(b"a{}b") % SLOT_COUNT);
        assert_eq!(of_key("a{b}{c}"), of_key("b"));
        for slot in 0..SLOT_COUNT {
            assert_eq!(of_key(&format!("prefix:{{{}}}", hash_tag(slot))), slot);
        }
    }
}
