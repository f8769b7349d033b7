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
use crate::shim::layout::{CLAIM, SPOOL};
use crate::shim::record::{Phase, Record};
use crate::shim::spool::{SPOOL_BYTES, SpoolHeader, place};

/// A header is read, changed and written: one at a time. The folder has no other owner.
static CHANGING: Mutex<()> = Mutex::new(());

/// Bytes from one writer, at a place among all bytes of that writer.
#[derive(Clone, Copy, Debug)]
pub struct InputBytes<'a> {
    /// A random number that is not zero.
    pub writer: u64,
    pub offset: u64,
    pub bytes: &'a [u8],
    /// Nothing follows them.
    pub last: bool,
}

/// What came of bytes that were brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brought {
    /// So many of the writer's bytes are in the file; all that were brought, unless it is full.
    Stored { writer_end: u64, is_whole: bool },
    /// The command does not run yet.
    TooEarly,
    /// Nobody will ever read them.
    Closed,
    /// Bytes of this writer before these are missing, or another one writes.
    OutOfTurn,
}

/// Puts bytes where the shim finds them, as many as there is room for. The shim is to be told.
pub fn bring(dir: &Path, input: InputBytes<'_>) -> io::Result<Brought> {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let record = match File::open(dir.join(CLAIM)) {
        Ok(claim) => Record::read_from(&claim)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Brought::TooEarly),
        Err(error) => return Err(error),
    };
    if record.phase < Phase::Running {
        return Ok(Brought::TooEarly);
    }
    if !record.reads_spool {
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
        return Ok(if header.closed { Brought::Closed } else { Brought::OutOfTurn });
    };
    let fresh = &input.bytes[usize::try_from(known).unwrap_or(usize::MAX).min(input.bytes.len())..];
    if fresh.is_empty() && (header.closed || !input.last) {
        return Ok(Brought::Stored { writer_end: header.writer_end, is_whole: true });
    }
    if header.closed || record.input_closed || record.phase >= Phase::Exited {
        return Ok(Brought::Closed);
    }
    let room = (record.input_taken + SPOOL_BYTES).saturating_sub(header.end);
    let stored = &fresh[..usize::try_from(room).unwrap_or(usize::MAX).min(fresh.len())];
    write_ring(&file, header.end, stored)?;
    header.end += stored.len() as u64;
    header.writer_end += stored.len() as u64;
    let is_whole = stored.len() == fresh.len();
    header.closed = input.last && is_whole;
    header.write_to(&file)?;
    Ok(Brought::Stored { writer_end: header.writer_end, is_whole })
}

/// Whether anything was ever brought to this command.
pub fn is_used(dir: &Path) -> bool {
    dir.join(SPOOL).exists()
}

fn write_ring(file: &File, mut position: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let (at, together) = place(position);
        let (part, rest) = bytes.split_at(bytes.len().min(together as usize));
        file.write_all_at(part, at)?;
        position += part.len() as u64;
        bytes = rest;
    }
    Ok(())
}
