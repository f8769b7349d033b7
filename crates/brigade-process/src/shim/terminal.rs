//! A pseudo-terminal of the shim, and its input.
//!
//! The shim holds both ends until it exits. So early input is not lost, and a process can close its
//! terminal and open it again. Input comes through the same named pipe as without a terminal, where
//! the next runtime finds it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::launch_settings::PtySize;
use super::output_relay::is_transient;
use super::sys::{self, PollEntry, flags};

/// The end of input for a terminal, at the beginning of a line.
const END_OF_INPUT: u8 = 4;
/// The most bytes of one read from the pipe.
const READ_BYTES: usize = 1024;

/// Both ends of a pseudo-terminal.
#[derive(Debug)]
pub(super) struct PtyPair {
    /// The end that reads the output of the process and writes its input.
    pub(super) shim_end: File,
    pub(super) child_end: File,
}

impl PtyPair {
    pub(super) fn open(size: PtySize) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        // The shim leads a session without a terminal, and would otherwise get this one.
        let shim_end =
            options.custom_flags(flags::NO_TERMINAL | flags::NO_WAITING).open("/dev/ptmx")?;
        let path: PathBuf = sys::unlock_terminal(&shim_end)?;
        let child_end = options.custom_flags(flags::NO_TERMINAL).open(path)?;
        sys::resize_terminal(&child_end, size.rows, size.columns)?;
        Ok(Self { shim_end, child_end })
    }
}

/// The path of input from the pipe to the terminal, as fast as the process reads.
#[derive(Debug)]
pub(super) struct TerminalInput {
    terminal: PtyPair,
    state: InputState,
    /// Bytes from the pipe that are not written yet.
    unwritten: Vec<u8>,
}

#[derive(Debug)]
enum InputState {
    /// Open for input. The held write end prevents an end of file between two writers.
    Open {
        pipe: File,
        _held: File,
    },
    /// Closed for writers. The remaining bytes of the pipe are written.
    Draining {
        pipe: File,
    },
    Closed,
}

impl TerminalInput {
    /// Creates the pipe. Removes it again after an error.
    pub(super) fn new(terminal: PtyPair, path: &Path) -> io::Result<Self> {
        sys::make_fifo(path)?;
        let opened = (|| -> io::Result<InputState> {
            let mut options = OpenOptions::new();
            let pipe = options.read(true).custom_flags(flags::NO_WAITING).open(path)?;
            Ok(InputState::Open { pipe, _held: OpenOptions::new().write(true).open(path)? })
        })();
        if opened.is_err() {
            let _ = fs::remove_file(path);
        }
        Ok(Self { terminal, state: opened?, unwritten: Vec::new() })
    }

    /// Returns the next event to poll for: input in the pipe, or space in the terminal.
    pub(super) fn poll_entry(&self) -> PollEntry {
        if !self.unwritten.is_empty() {
            return PollEntry::writable(self.terminal.shim_end.as_raw_fd());
        }
        match &self.state {
            InputState::Open { pipe, .. } | InputState::Draining { pipe } => {
                PollEntry::new(pipe.as_raw_fd())
            }
            InputState::Closed => PollEntry::new(-1),
        }
    }

    /// Reads a piece and writes as much as the terminal accepts, without blocking.
    pub(super) fn pump(&mut self) {
        if self.unwritten.is_empty() {
            self.read_pipe();
        }
        match self.terminal.shim_end.write(&self.unwritten) {
            Ok(written) => drop(self.unwritten.drain(..written)),
            Err(error) if is_transient(&error) => {}
            Err(_) => self.unwritten.clear(),
        }
    }

    /// Returns true if all bytes were written.
    pub(super) fn is_idle(&self) -> bool {
        self.unwritten.is_empty()
    }

    /// Queues these bytes.
    pub(super) fn queue_bytes(&mut self, bytes: &[u8]) {
        self.unwritten.extend_from_slice(bytes);
    }

    /// Accepts no more writers to the pipe. Returns false if it was closed before.
    pub(super) fn close(&mut self) -> bool {
        match std::mem::replace(&mut self.state, InputState::Closed) {
            InputState::Open { pipe, .. } => {
                self.state = InputState::Draining { pipe };
                true
            }
            state => {
                self.state = state;
                false
            }
        }
    }

    fn read_pipe(&mut self) {
        let (InputState::Open { pipe, .. } | InputState::Draining { pipe }) = &mut self.state
        else {
            return;
        };
        let mut piece = [0; READ_BYTES];
        match pipe.read(&mut piece) {
            Ok(0) => {
                self.state = InputState::Closed;
                self.unwritten.push(END_OF_INPUT);
            }
            Ok(length) => self.unwritten.extend_from_slice(&piece[..length]),
            Err(error) if is_transient(&error) => {}
            Err(_) => self.state = InputState::Closed,
        }
    }
}
