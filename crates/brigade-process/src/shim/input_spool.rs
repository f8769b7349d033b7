//! Bytes on their way to a command's input, in a file between the runtime and the shim.
//!
//! The runtime puts bytes into a ring and then says so in the header, in one write; the shim writes them to the
//! command and says how far it has come in its record. Each byte has a position, and who brings it counts its
//! own: what is brought twice, because a runtime died before it could answer, is known and not taken again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::fnv::fnv1a;
use super::layout::{self, PIECE};

/// Bytes that may be on their way.
pub const SPOOL_BYTES: u64 = 1 << 20;
/// The ring follows the page of the header.
const RING_OFFSET: u64 = 4096;
const HEADER_WORDS: usize = 6;
const MAGIC: u64 = u64::from_le_bytes(*b"brinput\x01");

/// What has been brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolHeader {
    /// Bytes in all.
    pub end: u64,
    /// Who brought bytes last: a random number of its own, or zero.
    pub writer: u64,
    /// How many bytes it has brought.
    pub writer_end: u64,
    /// Nothing follows.
    pub closed: bool,
}

impl SpoolHeader {
    /// None when there is no whole header in the file.
    pub fn read_from(file: &File) -> Option<Self> {
        let mut bytes = [0; HEADER_WORDS * 8];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let (words, _) = bytes.as_chunks();
        let [magic, sum, fields @ ..]: [u64; HEADER_WORDS] =
            std::array::from_fn(|at| u64::from_le_bytes(words[at]));
        let [end, writer, writer_end, closed] = fields;
        let is_whole = magic == MAGIC && sum == fnv1a(fields);
        is_whole.then_some(Self { end, writer, writer_end, closed: closed != 0 })
    }

    pub fn write_to(&self, file: &File) -> io::Result<()> {
        let fields = [self.end, self.writer, self.writer_end, u64::from(self.closed)];
        let mut bytes = [0; HEADER_WORDS * 8];
        let words = [MAGIC, fnv1a(fields)].into_iter().chain(fields);
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        file.write_all_at(&bytes, 0)
    }
}

/// Where a position lies in the file, and how many bytes follow it there without a break.
pub fn ring_location(position: u64) -> (u64, u64) {
    let at = position % SPOOL_BYTES;
    (RING_OFFSET + at, SPOOL_BYTES - at)
}

/// The shim's side.
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

    /// Finds out what was brought.
    pub(super) fn refresh(&mut self) {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        if let Some(header) = self.file.as_ref().and_then(SpoolHeader::read_from) {
            self.end = header.end;
            self.closed |= header.closed;
        }
    }

    /// Nothing follows what was brought.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn has_unread(&self, taken: u64) -> bool {
        taken < self.end
    }

    /// Whether that was all.
    pub(super) fn is_finished(&self, taken: u64) -> bool {
        self.closed && !self.has_unread(taken)
    }

    /// Reads a piece from this position on.
    pub(super) fn read<'a>(&self, taken: u64, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let (at, together) = ring_location(taken);
        let length = together.min(self.end - taken).min(PIECE).min(buffer.len() as u64);
        let piece = &mut buffer[..length as usize];
        match &self.file {
            Some(file) => file.read_exact_at(piece, at)?,
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written_or_not_at_all() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(SpoolHeader::read_from(&file), None);
        let header = SpoolHeader { end: 1 << 40, writer: 7, writer_end: 9, closed: true };
        header.write_to(&file).unwrap();
        assert_eq!(SpoolHeader::read_from(&file), Some(header));
        file.write_all_at(&[1], 20).unwrap();
        assert_eq!(SpoolHeader::read_from(&file), None);
    }
}
