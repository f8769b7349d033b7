//! Maps whose keys are ids.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by ids. Callers do not choose ids, so it needs no protection from chosen keys, and its hash
/// is cheap.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// The hasher of [`IdMap`].
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

impl IdHasher {
    /// An odd number with about as many ones as zeros: the fraction of the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    fn add(&mut self, word: u64) {
        // Both halves of the product depend on all bits of the word.
        let product = u128::from(self.0 ^ word ^ Self::FACTOR) * u128::from(Self::FACTOR);
        self.0 = (product ^ (product >> 64)) as u64;
    }
}

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::Hash;

    use super::*;
    use crate::ids::{SessionId, TaskNo};

    fn hash_of(key: impl Hash) -> u64 {
        let mut hasher = IdHasher::default();
        key.hash(&mut hasher);
        hasher.finish()
    }

    /// A table uses the low bits for the bucket and the high bits to compare.
    #[test]
    fn consecutive_numbers_and_ids_spread_over_low_and_high_bits() {
        let numbers = (1..=4_096).map(|no| hash_of(TaskNo::new(no).unwrap()));
        let session = |number| SessionId::from_uuid(uuid::Uuid::from_u128(number));
        let sessions = (0..4_096).map(|number| hash_of(session(number << 80)));
        for hashes in [numbers.collect::<Vec<_>>(), sessions.collect()] {
            let low: HashSet<u64> = hashes.iter().map(|hash| hash & 0xfff).collect();
            let high: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            // Random values fill 63 % of the buckets.
            assert!(low.len() > 2_300, "{} of 4,096 buckets", low.len());
            assert_eq!(high.len(), 128);
        }
    }
}
