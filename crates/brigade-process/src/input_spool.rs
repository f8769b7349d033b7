//! Bringing bytes to a command's input, each once, also when a runtime dies while it does.
//!
//! See [`crate::shim::spool`] for the file. Messages are written to the named pipe directly, see
//! [`crate::input`].

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::private_file::open_private;
use crate::shim::input_spool::{SPOOL_BYTES, SpoolHeader, ring_location};
use crate::shim::layout::{CLAIM, SPOOL};
use crate::shim::record::{ShimPhase, ShimRecord};

/// A header is read, changed and written: one at a time. The folder has no other owner.
static HEADER_LOCK: Mutex<()> = Mutex::new(());

/// Bytes from one writer, at a place among all bytes of that writer.
#[derive(Clone, Copy, Debug)]
pub struct InputBytes<'a> {
    /// A random number that is not zero.
    pub writer: u64,
    pub offset: u64,
    pub bytes: &'a [u8],
    /// Nothing follows them.
    pub closes_input: bool,
}

/// What came of bytes that were brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreInputResult {
    /// So many of the writer's bytes are in the file; all that were brought, unless it is full.
    Stored { writer_end: u64, is_whole: bool },
    /// The command does not run yet.
    NotRunning,
    /// Nobody will ever read them.
    Closed,
    /// Bytes of this writer before these are missing, or another one writes.
    OutOfOrder,
}

/// Puts bytes where the shim finds them, as many as there is room for. The shim is to be told.
pub fn store_input(dir: &Path, input: InputBytes<'_>) -> io::Result<StoreInputResult> {
    let _changing = HEADER_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let record = match File::open(dir.join(CLAIM)) {
        Ok(claim) => ShimRecord::read_from(&claim)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(StoreInputResult::NotRunning);
        }
        Err(error) => return Err(error),
    };
    if record.phase < ShimPhase::Running {
        return Ok(StoreInputResult::NotRunning);
    }
    if !record.supports_spool {
        let text = "its shim is of an earlier version; `brigade send` sends it lines";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let mut options = OpenOptions::new();
    let file = open_private(&dir.join(SPOOL), options.read(true).write(true))?;
    let mut header = SpoolHeader::read_from(&file).unwrap_or_default();
    if header.writer != input.writer && input.offset == 0 && !header.closed {
        (header.writer, header.writer_end) = (input.writer, 0);
    }
    let known = header.writer_end.checked_sub(input.offset);
    let (true, Some(known)) = (header.writer == input.writer, known) else {
        return Ok(if header.closed {
            StoreInputResult::Closed
        } else {
            StoreInputResult::OutOfOrder
        });
    };
    let fresh = &input.bytes[usize::try_from(known).unwrap_or(usize::MAX).min(input.bytes.len())..];
    if fresh.is_empty() && (header.closed || !input.closes_input) {
        return Ok(StoreInputResult::Stored { writer_end: header.writer_end, is_whole: true });
    }
    if header.closed || record.input_closed || record.phase >= ShimPhase::Exited {
        return Ok(StoreInputResult::Closed);
    }
    let room = (record.input_delivered + SPOOL_BYTES).saturating_sub(header.end);
    let stored = &fresh[..usize::try_from(room).unwrap_or(usize::MAX).min(fresh.len())];
    write_ring(&file, header.end, stored)?;
    header.end += stored.len() as u64;
    header.writer_end += stored.len() as u64;
    let is_whole = stored.len() == fresh.len();
    header.closed = input.closes_input && is_whole;
    header.write_to(&file)?;
    Ok(StoreInputResult::Stored { writer_end: header.writer_end, is_whole })
}

/// Whether anything was ever brought to this command.
pub fn has_input(dir: &Path) -> bool {
    dir.join(SPOOL).exists()
}

fn write_ring(file: &File, mut position: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let (at, together) = ring_location(position);
        let (part, rest) = bytes.split_at(bytes.len().min(together as usize));
        file.write_all_at(part, at)?;
        position += part.len() as u64;
        bytes = rest;
    }
    Ok(())
}
