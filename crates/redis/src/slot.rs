//! Which slot of a Cluster a key belongs to.

pub(crate) const SLOTS: u16 = 16_384;

/// By what stands in the key's first braces, if anything does; else by all of it.
pub(crate) fn of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
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
    }
}
