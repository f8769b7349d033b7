//! How a job learns that it is to stop.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// Whether the task was told to stop. The token is made only for those who ask for it.
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
        // Whoever set the signal before the token was there could not cancel it.
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
    fn a_token_asked_for_late_is_cancelled_all_the_same() {
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
