//! `write_input`: writes bytes to a process's input.

use serde::{Deserialize, Serialize};

use super::Base64Bytes;
use crate::call::{Call, NoItems};
use crate::task_target::TaskTarget;

/// A piece of input. The daemon replies after the bytes are safe from its own crash. A repeated
/// request does not write them again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WriteInputRequest {
    pub target: TaskTarget,
    /// A random number that identifies the writer.
    pub writer: u64,
    /// The number of bytes that this writer has written before.
    pub offset: u64,
    pub bytes: Base64Bytes,
    /// Closes the input after these bytes.
    #[serde(default)]
    pub closes_input: bool,
}

impl Call for WriteInputRequest {
    type Reply = ();
    type Item = NoItems;
}
