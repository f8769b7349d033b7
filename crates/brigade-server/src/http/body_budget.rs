//! The memory for the bodies of requests, which all connections share.

use std::sync::{Arc, Mutex, PoisonError};

use brigade_model::refusal::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes of all bodies that are in memory at once.
const BUDGET_BYTES: usize = 64 * 1024 * 1024;

/// The budget of all requests.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget {
    bytes: Arc<Semaphore>,
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self::new(BUDGET_BYTES)
    }
}

impl BodyBudget {
    fn new(bytes: usize) -> Self {
        Self { bytes: Arc::new(Semaphore::new(bytes)) }
    }

    /// Starts the reservation of one request.
    pub(crate) fn reserve(&self) -> BodyReservation {
        BodyReservation { budget: self.clone(), permit: Arc::default() }
    }
}

/// The part of the budget that one request has. It is released when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct BodyReservation {
    budget: BodyBudget,
    permit: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

impl BodyReservation {
    /// Adds bytes that have arrived, or refuses them if other bodies have the memory.
    pub(crate) fn add(&self, bytes: usize) -> Result<(), Refusal> {
        let exhausted = || Refusal::unavailable("too many large requests at once; try again");
        let count = u32::try_from(bytes).map_err(|_| exhausted())?;
        let added = self.budget.bytes.clone().try_acquire_many_owned(count);
        let added = added.map_err(|_| exhausted())?;
        let mut permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner);
        match permit.as_mut() {
            Some(permit) => permit.merge(added),
            None => *permit = Some(added),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_share_the_budget_until_they_end() {
        let budget = BodyBudget::new(10);
        let one = budget.reserve();
        let held = one.clone();
        one.add(4).expect("memory");
        one.add(4).expect("memory");
        let other = budget.reserve();
        assert!(other.add(3).is_err());
        other.add(2).expect("the last bytes");
        drop(one);
        assert!(other.add(1).is_err(), "the request has not ended");
        drop(held);
        other.add(8).expect("the bytes of the other request");
    }
}
