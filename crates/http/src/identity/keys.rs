//! Keys of services and operators: several valid at once, compared in constant time.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// Holds only digests, so that neither a length nor a prefix can be measured.
pub(super) struct KeyRing(Vec<[u8; 32]>);

impl KeyRing {
    pub(super) fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| digest(key.as_bytes())).collect())
    }

    pub(super) fn holds(&self, given: &[u8]) -> bool {
        let given = digest(given);
        // Every key is compared, whichever matches.
        self.0.iter().fold(Choice::from(0), |found, key| found | key.ct_eq(&given)).into()
    }
}

fn digest(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_keys_are_valid_together() {
        let ring = KeyRing::new(&["old".to_owned(), "new".to_owned()]);
        assert!(ring.holds(b"old") && ring.holds(b"new"));
        assert!(!ring.holds(b"") && !ring.holds(b"ol") && !ring.holds(b"old,new"));
        assert!(!KeyRing::new(&[]).holds(b""));
    }
}
