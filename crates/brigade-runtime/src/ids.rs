//! The one place where ids are made.

use brigade_model::ids::TreeId;
use uuid::Uuid;

pub(crate) fn new_tree_id() -> TreeId {
    TreeId::from_uuid(new_id())
}

/// A key that nobody else has, for a request that may have to be made twice.
pub fn new_key() -> String {
    format!("own-{}", new_id())
}

#[expect(clippy::disallowed_methods, reason = "this is the seam that the rule protects")]
fn new_id() -> Uuid {
    Uuid::now_v7()
}
