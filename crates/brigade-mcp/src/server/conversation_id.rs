//! The id of a conversation: the life of one MCP server.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use brigade_model::ids::ConversationId;

/// Returns a random id.
pub(super) fn new_conversation_id() -> ConversationId {
    let random = || {
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        hasher.finish()
    };
    let digits = format!("{:016x}{:016x}", random(), random());
    digits.parse().unwrap_or_else(|_| ConversationId::unrecorded())
}
