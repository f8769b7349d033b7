//! The memory for the bodies of requests, which all connections share.

use std::sync::{Arc, Mutex, PoisonError};

use brigade_model::refusal::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes of all bodies that are in memory at once.
const BUDGET_BYTES: usize = 64 * 1024 * 1024;
/// The bytes of the bodies of one token: a client cannot take the memory of the others.
const SHARE_BYTES: usize = BUDGET_BYTES / 8;
/// The size up to which a body needs no budget. The connections bound the number of these bodies.
const SMALL_BODY_BYTES: usize = 16 * 1024;

/// The budget of all requests.
#[derive(Clone, Debug)]
pub(crate) struct BodyBudget {
    bytes: Arc<Semaphore>,
}

/// The part of the budget that the requests of one token can have.
#[derive(Clone, Debug)]
pub(crate) struct BodyShare {
    bytes: Arc<Semaphore>,
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self::new(BUDGET_BYTES)
    }
}

impl Default for BodyShare {
    fn default() -> Self {
        Self::new(SHARE_BYTES)
    }
}

impl BodyShare {
    fn new(bytes: usize) -> Self {
        Self { bytes: Arc::new(Semaphore::new(bytes)) }
    }
}

impl BodyBudget {
    fn new(bytes: usize) -> Self {
        Self { bytes: Arc::new(Semaphore::new(bytes)) }
    }

    /// Starts the reservation of one request.
    pub(crate) fn reserve(&self, share: BodyShare) -> BodyReservation {
        BodyReservation { budget: self.clone(), share, reserved: Arc::default() }
    }
}

/// The part of the budget that one request has. It is released when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct BodyReservation {
    budget: BodyBudget,
    share: BodyShare,
    reserved: Arc<Mutex<ReservedBytes>>,
}

#[derive(Debug, Default)]
struct ReservedBytes {
    arrived: usize,
    reserved: usize,
    permits: Vec<OwnedSemaphorePermit>,
}

impl BodyReservation {
    /// Adds bytes that have arrived, or refuses them if other bodies have the memory.
    pub(crate) fn add(&self, bytes: usize) -> Result<(), Refusal> {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        reserved.arrived = reserved.arrived.saturating_add(bytes);
        if reserved.arrived <= SMALL_BODY_BYTES {
            return Ok(());
        }
        let count = reserved.arrived - reserved.reserved;
        let exhausted_share = || Refusal::limit("too many large requests of this token at once");
        let of_share = acquire(&self.share.bytes, count).ok_or_else(exhausted_share)?;
        let exhausted = || Refusal::unavailable("too many large requests at once; try again");
        let of_budget = acquire(&self.budget.bytes, count).ok_or_else(exhausted)?;
        reserved.reserved += count;
        reserved.hold([of_share, of_budget]);
        Ok(())
    }
}

impl ReservedBytes {
    /// Adds a permit of the share and one of the budget.
    fn hold(&mut self, added: [OwnedSemaphorePermit; 2]) {
        if self.permits.is_empty() {
            self.permits.extend(added);
            return;
        }
        for (permit, added) in self.permits.iter_mut().zip(added) {
            permit.merge(added);
        }
    }
}

fn acquire(bytes: &Arc<Semaphore>, count: usize) -> Option<OwnedSemaphorePermit> {
    let count = u32::try_from(count).ok()?;
    bytes.clone().try_acquire_many_owned(count).ok()
}

#[cfg(test)]
mod tests {
    use brigade_model::refusal::RefusalKind;

    use super::*;

    const LARGE: usize = SMALL_BODY_BYTES + 1;

    #[test]
    fn requests_share_the_budget_until_they_end() {
        let budget = BodyBudget::new(2 * LARGE);
        let share = || BodyShare::new(3 * LARGE);
        let one = budget.reserve(share());
        let held = one.clone();
        one.add(SMALL_BODY_BYTES).expect("it is small");
        one.add(1).expect("memory");
        one.add(1).expect("memory");
        let other = budget.reserve(share());
        assert_eq!(other.add(LARGE).expect_err("no memory").kind, RefusalKind::Unavailable);
        let third = budget.reserve(share());
        third.add(SMALL_BODY_BYTES).expect("a small body needs no budget");
        drop(one);
        assert!(budget.reserve(share()).add(LARGE).is_err(), "the request has not ended");
        drop(held);
        budget.reserve(share()).add(2 * LARGE).expect("the bytes of the other request");
    }

    #[test]
    fn the_requests_of_a_token_have_a_share() {
        let budget = BodyBudget::new(4 * LARGE);
        let share = BodyShare::new(LARGE);
        let one = budget.reserve(share.clone());
        one.add(LARGE).expect("memory");
        let second = budget.reserve(share.clone());
        assert_eq!(second.add(LARGE).expect_err("no share").kind, RefusalKind::Limit);
        budget.reserve(BodyShare::new(LARGE)).add(LARGE).expect("the share of another token");
        drop(one);
        budget.reserve(share).add(LARGE).expect("its share");
    }
}
