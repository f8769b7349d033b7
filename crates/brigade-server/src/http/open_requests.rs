//! The requests that are open, by token. A daemon has one table of them for all listeners.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use brigade_model::refusal::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The requests of one token that are served at once, open streams among them.
const REQUESTS_PER_TOKEN: usize = 128;

/// The requests of each token that are served now.
#[derive(Debug, Default)]
pub(crate) struct OpenRequests {
    by_token: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl OpenRequests {
    /// Adds a request of a token, until the permit is dropped. Refuses one too many.
    pub(crate) fn admit(&self, token: &str) -> Result<OwnedSemaphorePermit, Refusal> {
        let mut by_token = self.by_token.lock().unwrap_or_else(PoisonError::into_inner);
        if by_token.len() == by_token.capacity() {
            by_token.retain(|_, slots| slots.available_permits() < REQUESTS_PER_TOKEN);
        }
        let new_slots = || Arc::new(Semaphore::new(REQUESTS_PER_TOKEN));
        let slots = by_token.entry(token.to_owned()).or_insert_with(new_slots).clone();
        slots.try_acquire_owned().map_err(|_| {
            Refusal::limit(format!("{REQUESTS_PER_TOKEN} requests of this token are open"))
        })
    }
}
