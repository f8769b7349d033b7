//! The hints between the nodes that share a store in memory.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

/// Wakes the nodes that wait for a hint.
#[derive(Debug, Default)]
pub(crate) struct HintQueue {
    sent: AtomicU64,
    wakers: Mutex<Vec<Waker>>,
}

impl HintQueue {
    pub(crate) fn send(&self) {
        self.sent.fetch_add(1, Ordering::Release);
        let wakers =
            std::mem::take(&mut *self.wakers.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits for a hint that is sent from now on.
    pub(crate) async fn next(&self) {
        let before = self.sent.load(Ordering::Acquire);
        poll_fn(|context| {
            let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
            if self.sent.load(Ordering::Acquire) != before {
                return Poll::Ready(());
            }
            wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
