//! `answer`: answers a question of a task, or returns the result of a client tool.

use brigade_model::json::Json;
use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::task_target::TaskTarget;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AnswerRequest {
    pub target: TaskTarget,
    pub answer: Json,
    /// The number of the question. Optional while only one is open.
    #[serde(default)]
    pub question: Option<u32>,
}

impl Call for AnswerRequest {
    type Reply = ();
    type Item = NoItems;
}
