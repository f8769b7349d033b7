//! A task as a user names it.

use serde::{Deserialize, Serialize};

/// A task as the user typed it, and the session of an address that names none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTarget {
    pub session: String,
    pub task: String,
}
