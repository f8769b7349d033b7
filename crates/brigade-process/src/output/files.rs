//! The files of a shim's directory, opened for one read.
//!
//! They are opened again for each read. Otherwise many followers would hold many descriptors, and
//! nobody would notice a removed directory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::StdStream;
use crate::shim::layout::{CLAIM, FileLayout, ORDER, STREAMS, SWITCH_BYTES};
use crate::shim::record::ShimRecord;

#[derive(Debug)]
pub(super) struct ShimFiles<'a> {
    dir: &'a Path,
    claim: File,
}

/// The file of one stream. It exists from the first byte on.
#[derive(Debug)]
pub(super) struct StreamFile {
    file: Option<File>,
    layout: FileLayout,
}

impl<'a> ShimFiles<'a> {
    /// Opens the record. Returns `None` if the directory has no record yet.
    pub(super) fn open(dir: &'a Path) -> io::Result<Option<Self>> {
        let claim = open_if_exists(dir, CLAIM)?;
        Ok(claim.map(|claim| Self { dir, claim }))
    }

    pub(super) fn record(&self) -> io::Result<ShimRecord> {
        ShimRecord::read_from(&self.claim)
    }

    pub(super) fn stream(&self, stream: StdStream, cap: u64) -> io::Result<StreamFile> {
        let file = open_if_exists(self.dir, STREAMS[stream.index()])?;
        Ok(StreamFile { file, layout: FileLayout::bytes(cap) })
    }

    pub(super) fn order(&self) -> io::Result<Option<File>> {
        open_if_exists(self.dir, ORDER)
    }
}

impl StreamFile {
    /// Returns the number of bytes that are contiguous in the file from this position.
    pub(super) fn contiguous_length(&self, position: u64) -> u64 {
        self.layout.locate(position).contiguous
    }

    /// Reads up to `length` bytes. Returns fewer only at the end of the file.
    pub(super) fn read(&self, position: u64, length: usize) -> io::Result<Vec<u8>> {
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let mut bytes = vec![0; length];
        let got = read_up_to(file, &mut bytes, self.layout.locate(position).offset)?;
        bytes.truncate(got);
        Ok(bytes)
    }
}

/// Reads whole entries from this index on, as raw bytes.
pub(super) fn read_switches(file: &File, index: u64, count: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (count * SWITCH_BYTES) as usize];
    let got = read_up_to(file, &mut bytes, index * SWITCH_BYTES)?;
    bytes.truncate(got);
    Ok(bytes)
}

fn read_up_to(file: &File, bytes: &mut [u8], mut offset: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < bytes.len() {
        match file.read_at(&mut bytes[got..], offset) {
            Ok(0) => break,
            Ok(count) => {
                got += count;
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

fn open_if_exists(dir: &Path, name: &str) -> io::Result<Option<File>> {
    match File::open(dir.join(name)) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if dir.try_exists()? {
                Ok(None)
            } else {
                Err(removed_error(dir))
            }
        }
        Err(error) => Err(error),
    }
}

pub(super) fn removed_error(dir: &Path) -> io::Error {
    let message = format!("the output was removed: {} is gone", dir.display());
    io::Error::new(io::ErrorKind::NotFound, message)
}
