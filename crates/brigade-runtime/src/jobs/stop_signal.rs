//! The stop signal of a job.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// A stop request to a job. The token is created on first use.
#[derive(Debug, Default)]
pub(crate) struct StopSignal {
    set: AtomicBool,
    token: OnceLock<CancellationToken>,
}

impl StopSignal {
    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::SeqCst);
        if let Some(token) = self.token.get() {
            token.cancel();
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::SeqCst)
    }

    pub(crate) fn token(&self) -> CancellationToken {
        let token = self.token.get_or_init(CancellationToken::new).clone();
        // A signal that was set before the token existed could not cancel it.
        if self.is_set() {
            token.cancel();
        }
        token
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_requested_late_is_cancelled_too() {
        let signal = StopSignal::default();
        let early = signal.token();
        assert!(!early.is_cancelled());
        signal.set();
        assert!(early.is_cancelled());
        let fresh = StopSignal::default();
        fresh.set();
        assert!(fresh.token().is_cancelled());
    }
}
