//! Signals as a descriptor to poll.
//!
//! Signals get handlers, because exec resets handlers. So the process starts with default
//! dispositions and an empty mask.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::sys::{self, signal};

/// One bit for each pending signal.
static PENDING: AtomicU32 = AtomicU32::new(0);
static WAKE: AtomicI32 = AtomicI32::new(-1);

/// The signals that are orders to a shim, and the end of a child.
const ORDER_SIGNALS: [i32; 5] =
    [signal::TERM, signal::USR1, signal::USR2, signal::IO, signal::CHLD];
/// The signals that would end or stop the shim, or that its starter may have ignored.
const IGNORED_SIGNALS: [i32; 10] = [
    signal::HUP,
    signal::INT,
    signal::QUIT,
    signal::PIPE,
    signal::ALRM,
    signal::TSTP,
    signal::TTIN,
    signal::TTOU,
    signal::XCPU,
    signal::XFSZ,
];

#[derive(Debug)]
pub(super) struct CaughtSignals {
    wake_reader: PipeReader,
    /// Held open for the handler, which uses its number.
    _wake_writer: PipeWriter,
}

/// The signals since the last call of `take`.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingSignals(u32);

impl CaughtSignals {
    pub(super) fn catch() -> io::Result<Self> {
        let (wake_reader, wake_writer) = io::pipe()?;
        WAKE.store(wake_writer.as_raw_fd(), Ordering::Relaxed);
        for number in ORDER_SIGNALS {
            sys::set_signal_handler(number, note_signal);
        }
        for number in IGNORED_SIGNALS {
            sys::set_signal_handler(number, do_nothing);
        }
        sys::clear_signal_mask();
        Ok(Self { wake_reader, _wake_writer: wake_writer })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.wake_reader.as_raw_fd()
    }

    /// Returns true if a stop or kill order is pending.
    pub(super) fn has_order(&self) -> bool {
        let pending = PendingSignals(PENDING.load(Ordering::Relaxed));
        pending.has(signal::TERM) || pending.has(signal::USR1)
    }

    /// Takes the pending signals. Call it when the pipe is readable. The bytes are read first, so
    /// that a concurrent signal leaves a byte too many, never one too few.
    pub(super) fn take(&mut self) -> PendingSignals {
        let _ = self.wake_reader.read(&mut [0; 16]);
        PendingSignals(PENDING.swap(0, Ordering::Relaxed))
    }
}

impl PendingSignals {
    pub(super) const NOTHING: Self = Self(0);

    pub(super) fn has(self, number: i32) -> bool {
        self.0 & (1 << number) != 0
    }
}

/// Handles a signal. Other code calls it to request another check, as if the signal had come.
///
/// Only the first signal since the last `take` writes a byte. So the pipe is never full, and the
/// write never blocks the interrupted thread.
pub(super) extern "C" fn note_signal(number: i32) {
    if PENDING.fetch_or(1 << number, Ordering::Relaxed) == 0 {
        sys::write_byte(WAKE.load(Ordering::Relaxed));
    }
}

extern "C" fn do_nothing(_: i32) {}
