//! Moves the output of a process from its pipes or terminal to the files.
//!
//! The pipes are always read: a process must never wait for a full disk or a removed directory.
//! Unwritten bytes are counted. A process waits only for a reader with a lease, see `output_hold`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::claim::Claim;
use super::layout::{self, FileLayout, PIECE, SWITCH_BYTES, StreamSwitch};
use super::output_hold::OutputHold;
use super::record::ShimRecord;

type PieceBuffer = [u8; PIECE as usize];

/// Static and zero, so that pages of memory are used only after output has filled them.
static BUFFER: Mutex<PieceBuffer> = Mutex::new([0; PIECE as usize]);

/// Locks the buffer. Its content is meaningless between two pieces.
pub(super) fn buffer() -> MutexGuard<'static, PieceBuffer> {
    BUFFER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most bytes to read from each stream after all writers have ended: the size of the largest
/// pipe. A process outside the tree may hold the pipe and write for ever.
const PIPE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct OutputRelay {
    directory: PathBuf,
    layout: FileLayout,
    streams: [RelayStream; 2],
    order: Option<File>,
    /// The stream of the last bytes. The order begins with stdout.
    last_stream: usize,
    pub(super) hold: OutputHold,
}

#[derive(Debug)]
struct RelayStream {
    /// `None` after its end. A terminal is the first stream, without a second.
    pipe: Option<File>,
    /// `None` before the first byte.
    file: Option<File>,
}

impl OutputRelay {
    pub(super) fn new(
        directory: PathBuf,
        cap: u64,
        pipes: [Option<File>; 2],
        hold: OutputHold,
    ) -> Self {
        let streams = pipes.map(|pipe| RelayStream { pipe, file: None });
        Self {
            directory,
            layout: FileLayout::bytes(cap),
            streams,
            order: None,
            last_stream: 0,
            hold,
        }
    }

    /// Returns the descriptors to poll, or -1 for an ended stream.
    pub(super) fn fds(&self) -> [RawFd; 2] {
        self.streams.each_ref().map(|stream| stream.pipe.as_ref().map_or(-1, AsRawFd::as_raw_fd))
    }

    /// Returns for each stream whether it waits for a reader.
    pub(super) fn held_streams(&mut self, record: &ShimRecord) -> [bool; 2] {
        [0, 1].map(|stream| {
            self.streams[stream].pipe.is_some() && self.readable_bytes(stream, record) == 0
        })
    }

    fn readable_bytes(&mut self, stream: usize, record: &ShimRecord) -> u64 {
        self.hold.readable_bytes(stream, stream != self.last_stream, record)
    }

    /// Moves one piece of a ready stream, without blocking. Returns false at its end.
    ///
    /// The caller must write the record before the next piece, because readers rely on it.
    pub(super) fn pump(&mut self, stream: usize, record: &mut ShimRecord) -> bool {
        let allowed = self.readable_bytes(stream, record) as usize;
        if allowed == 0 {
            return true;
        }
        let mut buffer = buffer();
        let Some(pipe) = &mut self.streams[stream].pipe else { return false };
        // The bytes are copied, although the kernel could move them to the file. It would lock the
        // pipe meanwhile, and the process would wait for the file.
        match pipe.read(&mut buffer[..allowed]) {
            Err(error) if is_transient(&error) => true,
            Ok(0) | Err(_) => {
                self.streams[stream].pipe = None;
                false
            }
            Ok(length) => {
                self.record_switch(stream, record);
                let position = record.produced_bytes[stream];
                record.unwritten_bytes[stream] +=
                    self.write_piece(stream, position, &buffer[..length]);
                record.produced_bytes[stream] += length as u64;
                true
            }
        }
    }

    /// Returns the last possible end of each stream after all writers have ended.
    pub(super) fn latest_ends(record: &ShimRecord) -> [u64; 2] {
        record.produced_bytes.map(|produced| produced + PIPE_BYTES_MAX)
    }

    /// Moves the remaining bytes of the pipes, up to these ends. `is_ready` reports whether a pipe
    /// is readable. Returns false if a reader must progress first.
    pub(super) fn drain(
        &mut self,
        claim: &mut Claim,
        ends: [u64; 2],
        is_ready: impl Fn(RawFd) -> bool,
    ) -> bool {
        let mut is_drained = true;
        for (stream, end) in ends.into_iter().enumerate() {
            while let Some(pipe) = &self.streams[stream].pipe
                && claim.record.produced_bytes[stream] < end
                && is_ready(pipe.as_raw_fd())
            {
                if self.readable_bytes(stream, &claim.record) == 0 {
                    is_drained = false;
                    break;
                }
                self.pump(stream, &mut claim.record);
                claim.write();
            }
        }
        is_drained
    }

    /// Writes a piece. Returns the number of unwritten bytes.
    fn write_piece(&mut self, stream: usize, position: u64, piece: &[u8]) -> u64 {
        if self.layout == FileLayout::bytes(0) {
            return 0;
        }
        let path = || self.directory.join(layout::STREAMS[stream]);
        let mut done = 0;
        while done < piece.len() {
            let range = self.layout.locate(position + done as u64);
            let part = &piece[done..][..range.contiguous.min((piece.len() - done) as u64) as usize];
            if write_at(&mut self.streams[stream].file, path, part, range.offset).is_err() {
                return (piece.len() - done) as u64;
            }
            done += part.len();
        }
        0
    }

    /// Records a switch between the streams. A failed write is repeated with the next piece.
    fn record_switch(&mut self, stream: usize, record: &mut ShimRecord) {
        if stream == self.last_stream {
            return;
        }
        let entry = StreamSwitch { stream, at: record.produced_bytes }.encode();
        let index = FileLayout::switches().locate(record.switch_count).offset;
        let path = || self.directory.join(layout::ORDER);
        if write_at(&mut self.order, path, &entry, index * SWITCH_BYTES).is_ok() {
            record.switch_count += 1;
            self.hold.note_switch(record);
            self.last_stream = stream;
        }
    }
}

pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn write_at(
    file: &mut Option<File>,
    path: impl Fn() -> PathBuf,
    bytes: &[u8],
    at: u64,
) -> io::Result<()> {
    let file = match file {
        Some(file) => file,
        None => {
            let mut options = OpenOptions::new();
            file.insert(options.write(true).create(true).mode(0o600).open(path())?)
        }
    };
    file.write_all_at(bytes, at)
}
