//! Random numbers: secrets from the operating system's generator, and fast numbers for jitter.

use std::cell::Cell;

/// 32 bytes from the operating system's generator.
pub fn secret() -> [u8; 32] {
    let mut bytes = [0; 32];
    // The generator cannot fail after the boot of the system. Without random bytes, secrets would be predictable, so
    // the process ends instead.
    #[expect(clippy::expect_used, reason = "no safe way to continue without randomness")]
    getrandom::fill(&mut bytes).expect("the operating system provides random bytes");
    bytes
}

thread_local! {
    static STATE: Cell<u64> = Cell::new(u64::from_le_bytes(
        secret().first_chunk::<8>().copied().unwrap_or([7; 8]),
    ));
}

/// A number from `min` to `max`, both included. For jitter, not for secrets.
pub fn between(min: u64, max: u64) -> u64 {
    let next = STATE.with(|state| {
        // SplitMix64, which costs one addition and a few shifts and multiplications per number.
        let seed = state.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        state.set(seed);
        let mut z = seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    });
    min + next % (max - min + 1)
}

/// A random UUID (version 4) as text.
pub fn uuid() -> String {
    let mut bytes = secret();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes[..16].iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_within_their_bounds_and_vary() {
        let drawn: Vec<u64> = (0..200).map(|_| between(10, 12)).collect();
        assert!(drawn.iter().all(|n| (10..=12).contains(n)));
        assert!((10..=12).all(|n| drawn.contains(&n)));
        assert_ne!(secret(), secret());
    }
}
