//! Flow control of the items of one request.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use crate::frames::window_cost;

/// The bytes of one request's items that may be in flight.
#[derive(Debug)]
pub struct FlowWindow {
    capacity: u32,
    available: Semaphore,
    /// The bytes in flight, which bound the bytes that the client can acknowledge.
    unacked_bytes: AtomicU32,
}

impl FlowWindow {
    pub fn new(bytes: u32) -> Self {
        let capacity = bytes.max(1);
        Self {
            capacity,
            available: Semaphore::new(capacity as usize),
            unacked_bytes: AtomicU32::new(0),
        }
    }

    /// Waits until the item fits the window.
    pub async fn acquire(&self, item: &RawValue) {
        let cost = window_cost(item, self.capacity);
        // The semaphore is never closed.
        if let Ok(permits) = self.available.acquire_many(cost).await {
            permits.forget();
            self.unacked_bytes.fetch_add(cost, Ordering::Relaxed);
        }
    }

    pub fn release(&self, bytes: u32) {
        let subtract = |unacked: u32| Some(unacked.saturating_sub(bytes));
        let unacked =
            self.unacked_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, subtract);
        let released = unacked.unwrap_or_else(|unacked| unacked).min(bytes);
        self.available.add_permits(released as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        serde_json::value::to_raw_value(text).expect("text")
    }

    #[tokio::test]
    async fn no_more_is_released_than_was_acquired() {
        let window = FlowWindow::new(10);
        let item = raw("four");
        window.acquire(&item).await;
        assert_eq!(window.available.available_permits(), 4, "six bytes with the quotes");
        for _ in 0..3 {
            window.release(u32::MAX);
            assert_eq!(window.available.available_permits(), 10);
        }
        let large = raw("larger than the window");
        window.acquire(&large).await;
        assert_eq!(window.available.available_permits(), 0);
    }
}
