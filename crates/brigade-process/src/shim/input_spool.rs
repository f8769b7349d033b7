//! A file with bytes for the stdin of a process, between the runtime and the shim.
//!
//! The runtime writes bytes into a ring, then updates the header in one write. The shim writes them
//! to the process and records its progress. A writer counts its own bytes, so bytes that arrive
//! twice after a crash of the runtime are detected and stored once.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::fnv::fnv1a;
use super::layout::{self, FileRange, PIECE};

/// The most undelivered bytes.
pub const SPOOL_BYTES: u64 = 1 << 20;
/// The ring starts after the header's page.
const RING_OFFSET: u64 = 4096;
const HEADER_WORDS: usize = 6;
const MAGIC: u64 = u64::from_le_bytes(*b"brinput\x01");

/// The header of the spool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolHeader {
    /// The number of all bytes stored so far.
    pub end: u64,
    /// The id of the last writer: a random number, or zero.
    pub writer: u64,
    /// The number of bytes from that writer.
    pub writer_end: u64,
    /// True if no bytes follow.
    pub closed: bool,
}

impl SpoolHeader {
    /// Reads the header. Returns `None` if the file has no complete one.
    pub fn read_from(file: &File) -> Option<Self> {
        let mut bytes = [0; HEADER_WORDS * 8];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let (words, _) = bytes.as_chunks();
        let [magic, sum, fields @ ..]: [u64; HEADER_WORDS] =
            std::array::from_fn(|at| u64::from_le_bytes(words[at]));
        let [end, writer, writer_end, closed] = fields;
        let is_valid = magic == MAGIC && sum == fnv1a(fields);
        is_valid.then_some(Self { end, writer, writer_end, closed: closed != 0 })
    }

    pub fn write_to(&self, file: &File) -> io::Result<()> {
        let fields = [self.end, self.writer, self.writer_end, u64::from(self.closed)];
        let mut bytes = [0; HEADER_WORDS * 8];
        let words = [MAGIC, fnv1a(fields)].into_iter().chain(fields);
        for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        file.write_all_at(&bytes, 0)
    }
}

/// Returns the place of a position in the file.
pub fn ring_location(position: u64) -> FileRange {
    let at = position % SPOOL_BYTES;
    FileRange { offset: RING_OFFSET + at, contiguous: SPOOL_BYTES - at }
}

/// The shim's side of the spool.
#[derive(Debug)]
pub(super) struct InputSpool {
    path: PathBuf,
    file: Option<File>,
    end: u64,
    closed: bool,
}

impl InputSpool {
    pub(super) fn new(directory: &std::path::Path) -> Self {
        Self { path: directory.join(layout::SPOOL), file: None, end: 0, closed: false }
    }

    /// Reads the header again.
    pub(super) fn refresh(&mut self) {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        if let Some(header) = self.file.as_ref().and_then(SpoolHeader::read_from) {
            self.end = header.end;
            self.closed |= header.closed;
        }
    }

    /// Marks the stored bytes as the last ones.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn has_unread(&self, delivered: u64) -> bool {
        delivered < self.end
    }

    /// Returns true if all bytes were delivered and none follow.
    pub(super) fn is_finished(&self, delivered: u64) -> bool {
        self.closed && !self.has_unread(delivered)
    }

    /// Reads a piece from this position on.
    pub(super) fn read<'a>(&self, delivered: u64, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let range = ring_location(delivered);
        let length = range.contiguous.min(self.end - delivered).min(PIECE).min(buffer.len() as u64);
        let piece = &mut buffer[..length as usize];
        match &self.file {
            Some(file) => file.read_exact_at(piece, range.offset)?,
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_round_trips_or_is_rejected() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(SpoolHeader::read_from(&file), None);
        let header = SpoolHeader { end: 1 << 40, writer: 7, writer_end: 9, closed: true };
        header.write_to(&file).unwrap();
        assert_eq!(SpoolHeader::read_from(&file), Some(header));
        file.write_all_at(&[1], 20).unwrap();
        assert_eq!(SpoolHeader::read_from(&file), None);
    }
}
