//! The access of an agent program that does not ask before its calls.

use serde::{Deserialize, Serialize};

/// The access that an agent program has for a whole turn, since it asks about no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramAccess {
    /// It reads files.
    Read,
    /// It reads and edits files.
    Edit,
    /// It edits files and runs processes.
    Full,
}
