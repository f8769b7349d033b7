//! The bound on open connections, and the order in which they make way at the bound.
//!
//! ```text
//! accept ─> stranger: no request with a valid token so far; makes way, the oldest first
//!             └─ request with a valid token ─> in use: never makes way
//!                                                 └─ answer sent ─> known: makes way after strangers
//! ```
//!
//! A process without a token, such as a sandboxed task, has only strangers. It therefore displaces
//! its own connections, whether they send nothing, headers that never end, or public requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The slots of all connections.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSlots {
    table: Arc<SlotTable>,
}

#[derive(Debug)]
struct SlotTable {
    slots_max: usize,
    /// The number of strangers up to which known connections make way for them. Otherwise a client
    /// with many connections would leave too little time for the first request of another.
    strangers_min: usize,
    queues: Mutex<SlotQueues>,
}

/// The connections that can make way, by the number of their place: the longest waiting first.
#[derive(Debug, Default)]
struct SlotQueues {
    open: usize,
    next_place: u64,
    strangers: BTreeMap<u64, Arc<Notify>>,
    known: BTreeMap<u64, Arc<Notify>>,
}

/// The place of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotPlace {
    Stranger(u64),
    Known(u64),
    InUse,
}

/// The slot of one connection, which is free when the value is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    table: Arc<SlotTable>,
    place: Mutex<SlotPlace>,
    eviction: Arc<Notify>,
    /// The response of the last request has ended, and may be in a buffer still.
    is_answered: AtomicBool,
}

/// A request with a valid token on a connection, which therefore does not make way. The connection
/// can make way again when the value was dropped and the response was sent.
#[derive(Debug)]
pub(crate) struct SlotUse {
    slot: Arc<ConnectionSlot>,
}

/// The connection makes way, and its requests are not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotEvicted;

impl ConnectionSlots {
    pub(crate) fn new(slots_max: usize) -> Self {
        let strangers_min = slots_max / 8;
        let queues = Mutex::default();
        Self { table: Arc::new(SlotTable { slots_max, strangers_min, queues }) }
    }

    /// Returns a slot for a new connection. At the bound another connection makes way for it.
    /// Returns `None` if all are in use.
    pub(crate) fn acquire(&self) -> Option<Arc<ConnectionSlot>> {
        let mut queues = self.table.lock();
        if queues.open >= self.table.slots_max {
            queues.evict(self.table.strangers_min)?;
        }
        queues.open += 1;
        let eviction = Arc::new(Notify::new());
        let place = queues.add_stranger(eviction.clone());
        drop(queues);
        let slot = ConnectionSlot {
            table: self.table.clone(),
            place: Mutex::new(place),
            eviction,
            is_answered: AtomicBool::new(false),
        };
        Some(Arc::new(slot))
    }

    pub(crate) fn has_open(&self) -> bool {
        self.table.lock().open > 0
    }
}

impl SlotTable {
    fn lock(&self) -> MutexGuard<'_, SlotQueues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotQueues {
    fn take_place(&mut self) -> u64 {
        self.next_place += 1;
        self.next_place
    }

    fn add_stranger(&mut self, eviction: Arc<Notify>) -> SlotPlace {
        let place = self.take_place();
        self.strangers.insert(place, eviction);
        SlotPlace::Stranger(place)
    }

    fn add_known(&mut self, eviction: Arc<Notify>) -> SlotPlace {
        let place = self.take_place();
        self.known.insert(place, eviction);
        SlotPlace::Known(place)
    }

    /// Makes one connection end, and frees its slot at once.
    fn evict(&mut self, strangers_min: usize) -> Option<()> {
        let spares_strangers = self.strangers.len() <= strangers_min && !self.known.is_empty();
        let queue = match spares_strangers {
            true => &mut self.known,
            false => &mut self.strangers,
        };
        let (_, eviction) = queue.pop_first()?;
        eviction.notify_one();
        self.open -= 1;
        Some(())
    }

    /// Removes a connection from its queue. Returns false if it had to make way.
    fn remove(&mut self, place: SlotPlace) -> bool {
        match place {
            SlotPlace::Stranger(place) => self.strangers.remove(&place).is_some(),
            SlotPlace::Known(place) => self.known.remove(&place).is_some(),
            SlotPlace::InUse => true,
        }
    }
}

impl ConnectionSlot {
    /// Waits until the connection has to make way.
    pub(crate) async fn evicted(&self) {
        self.eviction.notified().await;
    }

    /// Marks the begin of a request with a valid token.
    pub(crate) fn begin_use(self: &Arc<Self>) -> Result<SlotUse, SlotEvicted> {
        let mut queues = self.table.lock();
        let mut place = self.lock_place();
        if !queues.remove(*place) {
            return Err(SlotEvicted);
        }
        *place = SlotPlace::InUse;
        // The response of an earlier request on this connection may not have left its buffer.
        self.is_answered.store(false, Ordering::Release);
        Ok(SlotUse { slot: self.clone() })
    }

    /// Marks that all bytes of the responses so far were sent.
    pub(crate) fn note_flush(&self) {
        if !self.is_answered.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut queues = self.table.lock();
        let mut place = self.lock_place();
        if *place == SlotPlace::InUse {
            *place = queues.add_known(self.eviction.clone());
        }
    }

    /// Locks the place. The table is locked first.
    fn lock_place(&self) -> MutexGuard<'_, SlotPlace> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut queues = self.table.lock();
        let place = *self.lock_place();
        if queues.remove(place) {
            queues.open -= 1;
        }
    }
}

impl Drop for SlotUse {
    fn drop(&mut self) {
        self.slot.is_answered.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_evicted(slot: &ConnectionSlot) -> bool {
        pin!(slot.evicted()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Opens a connection that has been answered and is idle.
    fn open_known(slots: &ConnectionSlots) -> Arc<ConnectionSlot> {
        let slot = slots.acquire().expect("a slot");
        drop(slot.begin_use().expect("a request"));
        slot.note_flush();
        slot
    }

    #[test]
    fn the_oldest_stranger_makes_way_before_known_connections() {
        let slots = ConnectionSlots::new(3);
        let known = open_known(&slots);
        let first = slots.acquire().expect("a slot");
        let second = slots.acquire().expect("a slot");
        let third = slots.acquire().expect("the slot of the first");
        assert!(is_evicted(&first));
        assert_eq!(first.begin_use().err(), Some(SlotEvicted));
        assert!(!is_evicted(&second) && !is_evicted(&known));
        drop(first);
        let _fourth = slots.acquire().expect("the slot of the second");
        assert!(is_evicted(&second));
        assert!(!is_evicted(&third) && !is_evicted(&known));
    }

    #[test]
    fn a_connection_in_use_never_makes_way() {
        let slots = ConnectionSlots::new(2);
        let busy = slots.acquire().expect("a slot");
        let stream = busy.begin_use().expect("a request");
        let known = open_known(&slots);
        let next = slots.acquire().expect("the slot of the idle connection");
        assert!(is_evicted(&known));
        let other = next.begin_use().expect("a request");
        assert!(slots.acquire().is_none(), "all are in use");
        assert!(!is_evicted(&busy) && !is_evicted(&next));
        drop(stream);
        assert!(slots.acquire().is_none(), "the end of the response was not sent");
        busy.note_flush();
        assert!(slots.acquire().is_some());
        assert!(is_evicted(&busy));
        drop(other);
    }

    #[test]
    fn a_request_behind_an_unsent_response_is_in_use() {
        let slots = ConnectionSlots::new(1);
        let slot = slots.acquire().expect("a slot");
        drop(slot.begin_use().expect("a request"));
        let _next = slot.begin_use().expect("the next request");
        slot.note_flush();
        assert!(slots.acquire().is_none());
    }

    #[test]
    fn known_connections_leave_slots_to_strangers() {
        let slots = ConnectionSlots::new(16);
        let known: Vec<_> = (0..16).map(|_| open_known(&slots)).collect();
        let first = slots.acquire().expect("a slot");
        let second = slots.acquire().expect("a slot");
        let _third = slots.acquire().expect("a slot");
        assert!(!is_evicted(&first) && !is_evicted(&second));
        assert_eq!(known.iter().filter(|slot| is_evicted(slot)).count(), 3);
        let _fourth = slots.acquire().expect("a slot");
        assert!(is_evicted(&first));
    }

    #[test]
    fn a_closed_connection_frees_its_slot_once() {
        let slots = ConnectionSlots::new(1);
        let first = slots.acquire().expect("a slot");
        let second = slots.acquire().expect("the slot of the first");
        drop(first);
        assert!(slots.has_open());
        let _use = second.begin_use().expect("a request");
        assert!(slots.acquire().is_none());
        drop(_use);
        drop(second);
        assert!(!slots.has_open());
    }
}
