//! Stores bytes for the stdin of a process. Each arrives once, even if a runtime dies meanwhile.
//!
//! [`crate::shim::input_spool`] describes the file. Messages go directly to the named pipe, see
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

/// The lock for read-modify-write of the header. The directory has no other owner.
static HEADER_LOCK: Mutex<()> = Mutex::new(());

/// Bytes of one writer, at an offset in all bytes of that writer.
#[derive(Clone, Copy, Debug)]
pub struct InputBytes<'a> {
    /// A random number other than zero.
    pub writer: u64,
    pub offset: u64,
    pub bytes: &'a [u8],
    /// True if no bytes follow.
    pub closes_input: bool,
}

/// The result of `store_input`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreInputResult {
    /// The number of the writer's bytes in the file. `is_whole` is false if the file is full.
    Stored { writer_end: u64, is_whole: bool },
    /// The process does not run yet.
    NotRunning,
    /// The process will not read any more bytes.
    Closed,
    /// Earlier bytes of this writer are missing, or another writer is active.
    OutOfOrder,
}

/// Stores as many bytes as fit into the spool. The caller must then send
/// [`crate::ShimOrder::ReadInput`].
pub fn store_input(dir: &Path, input: InputBytes<'_>) -> io::Result<StoreInputResult> {
    let _guard = HEADER_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
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
        let text = "its shim has an earlier version; send lines with `brigade send` instead";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let mut options = OpenOptions::new();
    let file = open_private(&dir.join(SPOOL), options.read(true).write(true))?;
    let mut header = SpoolHeader::read_from(&file).unwrap_or_default();
    if header.writer != input.writer && input.offset == 0 && !header.closed {
        header.writer = input.writer;
        header.writer_end = 0;
    }
    let is_closed = header.closed || record.input_closed || record.phase >= ShimPhase::Exited;
    let known = header.writer_end.checked_sub(input.offset);
    let known = known.filter(|_| header.writer == input.writer);
    // After the end of the input, earlier bytes may be missing since they were refused as well.
    let Some(known) = known else {
        return Ok(match is_closed {
            true => StoreInputResult::Closed,
            false => StoreInputResult::OutOfOrder,
        });
    };
    let fresh = &input.bytes[usize::try_from(known).unwrap_or(usize::MAX).min(input.bytes.len())..];
    if fresh.is_empty() && (header.closed || !input.closes_input) {
        return Ok(StoreInputResult::Stored { writer_end: header.writer_end, is_whole: true });
    }
    if is_closed {
        return Ok(StoreInputResult::Closed);
    }
    let free = (record.input_delivered + SPOOL_BYTES).saturating_sub(header.end);
    let stored = &fresh[..usize::try_from(free).unwrap_or(usize::MAX).min(fresh.len())];
    write_ring(&file, header.end, stored)?;
    header.end += stored.len() as u64;
    header.writer_end += stored.len() as u64;
    let is_whole = stored.len() == fresh.len();
    header.closed = input.closes_input && is_whole;
    header.write_to(&file)?;
    Ok(StoreInputResult::Stored { writer_end: header.writer_end, is_whole })
}

/// Returns true if bytes were ever stored for this process.
pub fn has_input(dir: &Path) -> bool {
    dir.join(SPOOL).exists()
}

fn write_ring(file: &File, mut position: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let range = ring_location(position);
        let (part, rest) = bytes.split_at(bytes.len().min(range.contiguous as usize));
        file.write_all_at(part, range.offset)?;
        position += part.len() as u64;
        bytes = rest;
    }
    Ok(())
}
