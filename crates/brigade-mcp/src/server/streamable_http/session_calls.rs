//! The running calls of sessions. The end of a session cancels them at once; the library lets them
//! finish first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio_util::sync::CancellationToken;

/// The running calls of one session. Each call holds a clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallsOfSession(Arc<CancellationToken>);

impl CallsOfSession {
    /// Waits until the session ends.
    pub(crate) async fn cancelled(&self) {
        self.0.cancelled().await;
    }
}

/// The running calls, by session.
#[derive(Debug, Default)]
pub(super) struct SessionCalls {
    by_session: Mutex<HashMap<String, Weak<CancellationToken>>>,
}

impl SessionCalls {
    /// Returns the calls of a session, for one more.
    pub(super) fn of_session(&self, id: &str) -> CallsOfSession {
        let mut by_session = self.by_session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(calls) = by_session.get(id).and_then(Weak::upgrade) {
            return CallsOfSession(calls);
        }
        if by_session.len() == by_session.capacity() {
            by_session.retain(|_, calls| calls.strong_count() > 0);
        }
        let calls = CallsOfSession::default();
        by_session.insert(id.to_owned(), Arc::downgrade(&calls.0));
        calls
    }

    pub(super) fn cancel(&self, id: &str) {
        let mut by_session = self.by_session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(calls) = by_session.remove(id).and_then(|calls| calls.upgrade()) {
            calls.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_session_cancels_its_calls_only() {
        let calls = SessionCalls::default();
        let first = calls.of_session("a");
        let second = calls.of_session("a");
        let other = calls.of_session("b");
        for number in 0..1_000 {
            calls.of_session(&number.to_string());
        }
        assert!(calls.by_session.lock().expect("calls").len() < 100);
        calls.cancel("a");
        assert!(first.0.is_cancelled() && second.0.is_cancelled());
        assert!(!other.0.is_cancelled());
        assert!(!calls.of_session("a").0.is_cancelled());
    }
}
