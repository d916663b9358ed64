//! Keys of services and operators. Several are valid at the same time; they are compared in constant time.

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The digests of the valid keys. The time of a comparison of digests reveals neither the length nor a prefix
/// of a key.
pub(super) struct KeyRing(Vec<[u8; 32]>);

impl KeyRing {
    pub(super) fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| digest(key.as_bytes())).collect())
    }

    pub(super) fn contains(&self, key: &[u8]) -> bool {
        let candidate = digest(key);
        // Compares every key, also after a match, so that the time does not depend on the key that matches.
        self.0.iter().fold(Choice::from(0), |found, known| found | known.ct_eq(&candidate)).into()
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
        assert!(ring.contains(b"old") && ring.contains(b"new"));
        assert!(!ring.contains(b"") && !ring.contains(b"ol") && !ring.contains(b"old,new"));
        assert!(!KeyRing::new(&[]).contains(b""));
    }
}
