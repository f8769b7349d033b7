//! The one place where ids are made.

use std::hash::{BuildHasher, Hasher, RandomState};

use brigade_model::ids::SessionId;
use brigade_model::quote_mark::QuoteMark;
use uuid::Uuid;

pub(crate) fn new_session_id() -> SessionId {
    SessionId::from_uuid(new_id())
}

/// A key that nobody else has, for a request that may have to be made twice.
pub fn new_key() -> String {
    format!("own-{}", new_id())
}

/// A number for one reader of a command's output, by which its lease is known.
pub fn new_lease_holder() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write(new_id().as_bytes());
    hasher.finish().max(1)
}

/// A mark that nobody can guess: what an agent's tasks say must not be able to contain it.
pub(crate) fn new_quote_mark() -> QuoteMark {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write(new_id().as_bytes());
    QuoteMark::new(hasher.finish())
}

#[expect(clippy::disallowed_methods, reason = "this is the seam that the rule protects")]
fn new_id() -> Uuid {
    Uuid::now_v7()
}
