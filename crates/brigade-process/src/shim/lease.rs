//! Leases of readers on the output of a command.
//!
//! A reader that must not miss anything says how far it has read, again and again. While its lease is fresh,
//! the shim drops nothing that it has not read, and rather lets the command wait. The runtime writes the
//! file, the shim reads it; both go by the clock of the machine since its start, so that a lease ends
//! whoever has died.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::fnv::fnv1a;

/// Readers that can hold the output of one command at a time.
const LEASES_MAX: usize = 15;
const TABLE_WORDS: usize = 2 + LEASES_MAX * 3;
/// Bytes of the file. One page holds it.
pub const LEASE_BYTES: usize = TABLE_WORDS * 8;
const MAGIC: u64 = u64::from_le_bytes(*b"brlease\x01");

/// One reader's lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLease {
    /// Chosen by the reader, at random. Zero is a free place.
    pub holder: u64,
    /// Bytes of both streams together that it has read.
    pub position: u64,
    /// Milliseconds of the machine's clock.
    pub expires_at: u64,
}

/// The leases on one command's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseTable([OutputLease; LEASES_MAX]);

impl LeaseTable {
    /// None when there is no whole table in the file.
    pub fn read_from(file: &File) -> Option<Self> {
        let mut bytes = [0; LEASE_BYTES];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Self::decode(&bytes)
    }

    /// Overwrites the table in place.
    pub fn write_to(&self, file: &File) -> io::Result<()> {
        file.write_all_at(&self.encode(), 0)
    }

    /// Puts a lease in the place of the same holder's, or in a free one. False when all are taken.
    pub fn insert(&mut self, lease: OutputLease, now: u64) -> bool {
        let own = self.0.iter().position(|one| one.holder == lease.holder);
        let free = || self.0.iter().position(|one| one.holder == 0 || one.expires_at <= now);
        let Some(at) = own.or_else(free) else { return false };
        self.0[at] = lease;
        true
    }

    pub fn remove(&mut self, holder: u64) {
        self.0
            .iter_mut()
            .filter(|one| one.holder == holder)
            .for_each(|one| *one = OutputLease::default());
    }

    /// How far the slowest of the readers has read whose leases are fresh.
    pub fn slowest_position(&self, now: u64) -> Option<u64> {
        let fresh = self.0.iter().filter(|one| one.holder != 0 && one.expires_at > now);
        fresh.map(|one| one.position).min()
    }

    /// The time of the machine's clock, which nobody sets.
    pub fn now_millis() -> u64 {
        super::sys::monotonic_milliseconds()
    }

    fn encode(&self) -> [u8; LEASE_BYTES] {
        let fields = self.0.iter().flat_map(|one| [one.holder, one.position, one.expires_at]);
        let sum = fnv1a(fields.clone());
        let mut bytes = [0; LEASE_BYTES];
        let words = [MAGIC, sum].into_iter().chain(fields);
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
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

    fn lease(holder: u64, position: u64, expires: u64) -> OutputLease {
        OutputLease { holder, position, expires_at: expires }
    }

    #[test]
    fn the_slowest_reader_counts_until_its_lease_is_over() {
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
    fn places_are_bounded_and_given_to_others_when_a_lease_is_over() {
        let mut table = LeaseTable::default();
        for holder in 1..=LEASES_MAX as u64 {
            assert!(table.insert(lease(holder, holder, 100), 0));
        }
        assert!(!table.insert(lease(77, 0, 100), 99));
        assert!(table.insert(lease(77, 0, 200), 100));
        assert_eq!(table.slowest_position(150), Some(0));
    }

    #[test]
    fn a_table_is_read_as_it_was_written_or_not_at_all() {
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
