//! The only place that generates ids.

use std::hash::{BuildHasher, Hasher, RandomState};

use brigade_model::ids::SessionId;
#[cfg(feature = "agents")]
use brigade_model::quote_mark::QuoteMark;
use brigade_store::CallId;
use uuid::Uuid;

pub(crate) fn new_session_id() -> SessionId {
    SessionId::from_uuid(new_id())
}

/// Returns a new unique key, for a request that may have to be repeated.
pub fn new_key() -> String {
    format!("own-{}", new_id())
}

/// Returns a name for a node that has none.
pub(crate) fn new_node_name() -> String {
    format!("node-{}", new_id().simple())
}

/// Returns an id for a call to another node.
pub(crate) fn new_call_id() -> CallId {
    CallId(new_id())
}

/// Returns a random number from 0 to 1, for pauses.
pub(crate) fn random_share() -> f64 {
    f64::from(u16::try_from(new_lease_holder() >> 48).unwrap_or(0)) / f64::from(u16::MAX)
}

/// Returns a number for one reader of a process's output, which identifies its lease.
pub fn new_lease_holder() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write(new_id().as_bytes());
    hasher.finish().max(1)
}

/// Returns an id for a directory of processes.
#[cfg(feature = "processes")]
pub(crate) fn new_host_id() -> String {
    new_id().simple().to_string()
}

/// Returns a mark that nobody can guess, so that text quoted to an agent cannot contain it.
#[cfg(feature = "agents")]
pub(crate) fn new_quote_mark() -> QuoteMark {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write(new_id().as_bytes());
    QuoteMark::new(hasher.finish())
}

#[expect(clippy::disallowed_methods, reason = "this is the seam that the rule protects")]
fn new_id() -> Uuid {
    Uuid::now_v7()
}
