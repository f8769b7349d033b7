//! Leases of readers on the output of a process.
//!
//! A reader that must not miss output reports its position regularly. While its lease is valid, the
//! shim drops no output that it has not read; instead the process waits. The runtime writes the
//! file, and the shim reads it. Both use the machine's monotonic clock, so that a lease expires
//! whichever side died.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::fnv::fnv1a;

/// The most readers with a lease on one process.
const LEASES_MAX: usize = 15;
const TABLE_WORDS: usize = 2 + LEASES_MAX * 3;
/// The size of the file. It fits into one page.
pub const LEASE_BYTES: usize = TABLE_WORDS * 8;
const MAGIC: u64 = u64::from_le_bytes(*b"brlease\x01");

/// The lease of one reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLease {
    /// A random number chosen by the reader. Zero marks a free entry.
    pub holder: u64,
    /// The bytes that it has read of both streams together.
    pub position: u64,
    /// The end of the lease, in milliseconds of the monotonic clock.
    pub expires_at: u64,
}

/// The leases on the output of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseTable([OutputLease; LEASES_MAX]);

impl LeaseTable {
    /// Reads the table. Returns `None` if the file has no complete entry.
    pub fn read_from(file: &File) -> Option<Self> {
        let mut bytes = [0; LEASE_BYTES];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Self::decode(&bytes)
    }

    /// Overwrites the table in place.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.encode(), 0)
    }

    /// Replaces the lease of the same holder, or takes a free entry. Returns false if all are
    /// taken.
    pub fn insert(&mut self, lease: OutputLease, now: u64) -> bool {
        let existing = self.0.iter().position(|entry| entry.holder == lease.holder);
        let free = || self.0.iter().position(|entry| entry.holder == 0 || entry.expires_at <= now);
        let Some(at) = existing.or_else(free) else { return false };
        self.0[at] = lease;
        true
    }

    pub fn remove(&mut self, holder: u64) {
        self.0
            .iter_mut()
            .filter(|entry| entry.holder == holder)
            .for_each(|entry| *entry = OutputLease::default());
    }

    /// Returns the position of the slowest reader with a valid lease.
    pub fn slowest_position(&self, now: u64) -> Option<u64> {
        let valid = self.0.iter().filter(|entry| entry.holder != 0 && entry.expires_at > now);
        valid.map(|entry| entry.position).min()
    }

    /// Returns the time of the monotonic clock.
    pub fn now_millis() -> u64 {
        super::sys::monotonic_milliseconds()
    }

    fn encode(&self) -> [u8; LEASE_BYTES] {
        let fields =
            self.0.iter().flat_map(|entry| [entry.holder, entry.position, entry.expires_at]);
        let sum = fnv1a(fields.clone());
        let mut bytes = [0; LEASE_BYTES];
        let words = [MAGIC, sum].into_iter().chain(fields);
        for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; LEASE_BYTES]) -> Option<Self> {
        let (words, _) = bytes.as_chunks();
        let words: [u64; TABLE_WORDS] = std::array::from_fn(|at| u64::from_le_bytes(words[at]));
        let (head, fields) = words.split_at(2);
        if head != [MAGIC, fnv1a(fields.iter().copied())] {
            return None;
        }
        Some(Self(std::array::from_fn(|at| OutputLease {
            holder: fields[3 * at],
            position: fields[3 * at + 1],
            expires_at: fields[3 * at + 2],
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(holder: u64, position: u64, expires_at: u64) -> OutputLease {
        OutputLease { holder, position, expires_at }
    }

    #[test]
    fn the_slowest_reader_counts_until_its_lease_expires() {
        let mut table = LeaseTable::default();
        assert_eq!(table.slowest_position(0), None);
        assert!(table.insert(lease(1, 500, 100), 0));
        assert!(table.insert(lease(2, 300, 50), 0));
        assert_eq!(table.slowest_position(49), Some(300));
        assert_eq!(table.slowest_position(50), Some(500));
        assert_eq!(table.slowest_position(100), None);
        assert!(table.insert(lease(2, 400, 90), 10));
        assert_eq!(table.slowest_position(60), Some(400), "renewed");
        table.remove(2);
        assert_eq!(table.slowest_position(60), Some(500));
    }

    #[test]
    fn entries_are_limited_and_reused_after_a_lease_expires() {
        let mut table = LeaseTable::default();
        for holder in 1..=LEASES_MAX as u64 {
            assert!(table.insert(lease(holder, holder, 100), 0));
        }
        assert!(!table.insert(lease(77, 0, 100), 99));
        assert!(table.insert(lease(77, 0, 200), 100));
        assert_eq!(table.slowest_position(150), Some(0));
    }

    #[test]
    fn a_table_round_trips_or_is_rejected() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(LeaseTable::read_from(&file), None);
        let mut table = LeaseTable::default();
        assert!(table.insert(lease(u64::MAX, 7, 9), 0));
        table.write_to(&file).unwrap();
        assert_eq!(LeaseTable::read_from(&file), Some(table));
        for at in 0..LEASE_BYTES {
            let mut bytes = table.encode();
            bytes[at] ^= 1;
            assert_eq!(LeaseTable::decode(&bytes), None, "byte {at}");
        }
    }
}
