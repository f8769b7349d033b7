//! A pseudo-terminal that belongs to the shim, and somebody who types.
//!
//! The shim holds both ends for as long as it lives: what was typed early is not lost, and a command
//! that closes its terminal and opens it again finds it. What is to be typed comes through the same
//! named pipe as any other input, so that the next runtime finds it where the last one did.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::launch_settings::PtySize;
use super::output_relay::is_transient;
use super::sys::{self, PollEntry, flags};

/// What a terminal takes for the end of the input, at the beginning of a line.
const END_OF_INPUT: u8 = 4;
/// What is taken from the pipe at once.
const READ_BYTES: usize = 1024;

/// Both ends of a pseudo-terminal.
#[derive(Debug)]
pub(super) struct PtyPair {
    /// What the command writes is read here, and what is written here the command reads.
    pub(super) shim_end: File,
    pub(super) child_end: File,
}

impl PtyPair {
    pub(super) fn open(size: PtySize) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        // The shim leads a session without a terminal, and would get this one.
        let ours =
            options.custom_flags(flags::NO_TERMINAL | flags::NO_WAITING).open("/dev/ptmx")?;
        let path: PathBuf = sys::unlock_terminal(&ours)?;
        let commands = options.custom_flags(flags::NO_TERMINAL).open(path)?;
        sys::resize_terminal(&commands, size.rows, size.columns)?;
        Ok(Self { shim_end: ours, child_end: commands })
    }
}

/// Types what comes through the pipe, as fast as it is read.
#[derive(Debug)]
pub(super) struct TerminalInput {
    terminal: PtyPair,
    state: InputState,
    /// Taken from the pipe and not typed yet.
    unwritten: Vec<u8>,
}

#[derive(Debug)]
enum InputState {
    /// The writing end keeps the pipe from ending between two writers.
    Open {
        pipe: File,
        _held: File,
    },
    /// What the pipe holds is the last.
    Draining {
        pipe: File,
    },
    Closed,
}

impl TerminalInput {
    /// Makes the pipe. Where that fails, nothing is left of it.
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

    /// What to wait for: something to type, or room for it.
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

    /// Takes a piece and types what the terminal has room for, which never waits.
    pub(super) fn pump(&mut self) {
        if self.unwritten.is_empty() {
            self.read_pipe();
        }
        match self.terminal.shim_end.write(&self.unwritten) {
            Ok(typed) => drop(self.unwritten.drain(..typed)),
            Err(error) if is_transient(&error) => {}
            Err(_) => self.unwritten.clear(),
        }
    }

    /// Whether everything is typed that it was given.
    pub(super) fn is_idle(&self) -> bool {
        self.unwritten.is_empty()
    }

    /// Has these bytes typed next.
    pub(super) fn queue_bytes(&mut self, bytes: &[u8]) {
        self.unwritten.extend_from_slice(bytes);
    }

    /// Nothing more will be written to the pipe. False if that was so before.
    pub(super) fn close(&mut self) -> bool {
        match std::mem::replace(&mut self.state, InputState::Closed) {
            InputState::Open { pipe, .. } => {
                self.state = InputState::Draining { pipe };
                true
            }
            already => {
                self.state = already;
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
