//! `create_login`: creates a code with which a browser logs in.

use brigade_model::ids::Time;
use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

/// Asks for a code. Only for the operator.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct CreateLoginRequest {}

#[derive(Clone, Serialize, Deserialize)]
pub struct CreateLoginReply {
    /// The code, which is valid once.
    pub code: String,
    pub expires_at: Time,
}

impl std::fmt::Debug for CreateLoginReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreateLoginReply").finish_non_exhaustive()
    }
}

impl Call for CreateLoginRequest {
    type Reply = CreateLoginReply;
    type Item = NoItems;
}
