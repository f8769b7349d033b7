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

use super::relay::is_momentary;
use super::surroundings::Terminal;
use super::sys::{self, Watch, flags};

/// What a terminal takes for the end of the input, at the beginning of a line.
const END_OF_INPUT: u8 = 4;
/// What is taken from the pipe at once.
const PIECE: usize = 1024;

/// Both ends of a pseudo-terminal.
#[derive(Debug)]
pub(super) struct Pair {
    /// What the command writes is read here, and what is written here the command reads.
    pub(super) ours: File,
    pub(super) commands: File,
}

impl Pair {
    pub(super) fn open(size: Terminal) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        // The shim leads a session without a terminal, and would get this one.
        let ours =
            options.custom_flags(flags::NO_TERMINAL | flags::NO_WAITING).open("/dev/ptmx")?;
        let path: PathBuf = sys::unlock_terminal(&ours)?;
        let commands = options.custom_flags(flags::NO_TERMINAL).open(path)?;
        sys::resize_terminal(&commands, size.rows, size.columns)?;
        Ok(Self { ours, commands })
    }
}

/// Types what comes through the pipe, as fast as it is read.
#[derive(Debug)]
pub(super) struct Typist {
    terminal: Pair,
    state: State,
    /// Taken from the pipe and not typed yet.
    untyped: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// The writing end keeps the pipe from ending between two writers.
    Open {
        pipe: File,
        _held: File,
    },
    /// What the pipe holds is the last.
    Ending {
        pipe: File,
    },
    Over,
}

impl Typist {
    /// Makes the pipe. Where that fails, nothing is left of it.
    pub(super) fn new(terminal: Pair, path: &Path) -> io::Result<Self> {
        sys::make_fifo(path)?;
        let opened = (|| -> io::Result<State> {
            let mut options = OpenOptions::new();
            let pipe = options.read(true).custom_flags(flags::NO_WAITING).open(path)?;
            Ok(State::Open { pipe, _held: OpenOptions::new().write(true).open(path)? })
        })();
        if opened.is_err() {
            let _ = fs::remove_file(path);
        }
        Ok(Self { terminal, state: opened?, untyped: Vec::new() })
    }

    /// What to wait for: something to type, or room for it.
    pub(super) fn watch(&self) -> Watch {
        if !self.untyped.is_empty() {
            return Watch::writable(self.terminal.ours.as_raw_fd());
        }
        match &self.state {
            State::Open { pipe, .. } | State::Ending { pipe } => Watch::new(pipe.as_raw_fd()),
            State::Over => Watch::new(-1),
        }
    }

    /// Takes a piece and types what the terminal has room for, which never waits.
    pub(super) fn go_on(&mut self) {
        if self.untyped.is_empty() {
            self.take();
        }
        match self.terminal.ours.write(&self.untyped) {
            Ok(typed) => drop(self.untyped.drain(..typed)),
            Err(error) if is_momentary(&error) => {}
            Err(_) => self.untyped.clear(),
        }
    }

    /// Whether everything is typed that it was given.
    pub(super) fn is_idle(&self) -> bool {
        self.untyped.is_empty()
    }

    /// Has these bytes typed next.
    pub(super) fn give(&mut self, bytes: &[u8]) {
        self.untyped.extend_from_slice(bytes);
    }

    /// Nothing more will be written to the pipe. False if that was so before.
    pub(super) fn close(&mut self) -> bool {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Open { pipe, .. } => {
                self.state = State::Ending { pipe };
                true
            }
            already => {
                self.state = already;
                false
            }
        }
    }

    fn take(&mut self) {
        let (State::Open { pipe, .. } | State::Ending { pipe }) = &mut self.state else { return };
        let mut piece = [0; PIECE];
        match pipe.read(&mut piece) {
            Ok(0) => {
                self.state = State::Over;
                self.untyped.push(END_OF_INPUT);
            }
            Ok(length) => self.untyped.extend_from_slice(&piece[..length]),
            Err(error) if is_momentary(&error) => {}
            Err(_) => self.state = State::Over,
        }
    }
}
