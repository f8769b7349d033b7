//! The one place where ids are made.

use brigade_model::ids::TreeId;

pub(crate) fn new_tree_id() -> TreeId {
    #[expect(clippy::disallowed_methods, reason = "this is the seam that the rule protects")]
    let uuid = uuid::Uuid::now_v7();
    TreeId::from_uuid(uuid)
}
