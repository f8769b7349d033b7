//! Signals as something to poll for.
//!
//! Handlers and not ignored or blocked signals: exec turns handlers back into the default, so that
//! the command starts with default dispositions and an empty mask.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use super::sys::{self, signal};

/// One bit for each signal that has come and was not taken.
static PENDING: AtomicU32 = AtomicU32::new(0);
static WAKE: AtomicI32 = AtomicI32::new(-1);

/// Signals that mean something to a shim.
const ORDER_SIGNALS: [i32; 5] =
    [signal::TERM, signal::USR1, signal::USR2, signal::IO, signal::CHLD];
/// Signals that would end or stop it, or that a starter may have ignored.
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
    woken: PipeReader,
    /// Kept open for the handler, which knows it by its number.
    _wake: PipeWriter,
}

/// What has come since the last look.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingSignals(u32);

impl CaughtSignals {
    pub(super) fn catch() -> io::Result<Self> {
        let (woken, wake) = io::pipe()?;
        WAKE.store(wake.as_raw_fd(), Ordering::Relaxed);
        for number in ORDER_SIGNALS {
            sys::set_signal_handler(number, note_signal);
        }
        for number in IGNORED_SIGNALS {
            sys::set_signal_handler(number, do_nothing);
        }
        sys::clear_signal_mask();
        Ok(Self { woken, _wake: wake })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.woken.as_raw_fd()
    }

    /// Whether it was told to stop or to kill, which is still to be taken.
    pub(super) fn has_order(&self) -> bool {
        let pending = PendingSignals(PENDING.load(Ordering::Relaxed));
        pending.has(signal::TERM) || pending.has(signal::USR1)
    }

    /// To be called when the pipe is readable. The bytes go first: a signal that comes in between
    /// leaves a byte too many, never one too few.
    pub(super) fn take(&mut self) -> PendingSignals {
        let _ = self.woken.read(&mut [0; 16]);
        PendingSignals(PENDING.swap(0, Ordering::Relaxed))
    }
}

impl PendingSignals {
    pub(super) const NOTHING: Self = Self(0);

    pub(super) fn has(self, number: i32) -> bool {
        self.0 & (1 << number) != 0
    }
}

/// The handler; also for whoever wants to look at something again soon, as if it had come.
///
/// A byte goes into the pipe only with the first signal since the last look, so that the pipe can
/// never be full and the write never waits for the thread that it interrupts.
pub(super) extern "C" fn note_signal(number: i32) {
    if PENDING.fetch_or(1 << number, Ordering::Relaxed) == 0 {
        sys::write_byte(WAKE.load(Ordering::Relaxed));
    }
}

extern "C" fn do_nothing(_: i32) {}
