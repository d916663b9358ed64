//! A deterministic random number generator (SplitMix64): the same seed gives the same sequence.

use std::ops::Range;

/// Pseudo-random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A generator for one test. Its sequence depends on the run's seed and the test's name only, not on the
    /// numbers that other tests drew before.
    pub fn for_test(name: &str) -> Self {
        // FNV-1a: the hash only has to differ between names and to be the same in every build.
        let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
        });
        Self::new(crate::tier::seed() ^ hash)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to `bound` − 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound must be greater than 0");
        // Multiply and shift: the bias is negligible at test sizes.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    pub fn range(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    /// True with the probability `numerator` / `denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_published_sequence() {
        // The reference values of SplitMix64 for seed 1234567.
        let mut rng = Rng::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn stays_in_its_bounds_and_reaches_them() {
        let mut rng = Rng::new(1);
        let drawn: std::collections::BTreeSet<u64> = (0..1000).map(|_| rng.range(5..8)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [5, 6, 7]);
        let mut items: Vec<u32> = (0..50).collect();
        rng.shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
