//! A seeded source of random numbers.

use std::time::Duration;

/// A source of random numbers (xorshift). Its parts do not depend on the order in which they are used.
#[derive(Clone, Debug)]
pub(crate) struct ChaosRandom(u64);

impl ChaosRandom {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        // Similar seeds have similar first numbers.
        for _ in 0..16 {
            random.below(2);
        }
        random
    }

    /// Returns a source for one part of a run, which has a number.
    pub(crate) fn part(seed: u64, part: usize) -> Self {
        let part = u64::try_from(part).unwrap_or(0);
        Self::new(seed ^ (part + 1).wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % most.max(1)
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(u64::try_from(length).unwrap_or(1))).unwrap_or(0)
    }

    /// Returns a number in this range, without its end.
    pub(crate) fn between(&mut self, first: u64, end: u64) -> u64 {
        first + self.below(end.saturating_sub(first))
    }

    /// Returns a time between half of the mean and one and a half of it.
    pub(crate) fn around(&mut self, mean: Duration) -> Duration {
        let mean = u64::try_from(mean.as_millis()).unwrap_or(u64::MAX / 2);
        Duration::from_millis(mean / 2 + self.below(mean + 1))
    }

    pub(crate) fn is_hit(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
