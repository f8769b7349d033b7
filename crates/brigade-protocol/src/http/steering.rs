//! Stops, answers, further runs, and the end of a session.

use brigade_model::json::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{LimitsBody, TaskBody};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = StopRequest)]
pub struct StopRequestBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time before the tasks are killed, instead of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}

/// The effect of a stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Stopped)]
pub struct StoppedBody {
    /// The task after the request. It may need time to end.
    pub task: TaskBody,
    /// The number of tasks that are stopped.
    pub task_count: u64,
    /// The task was stopping before, or had ended.
    pub already: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Answer)]
pub struct AnswerBody {
    /// The call of the question. Optional while the task asks one question only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<u32>,
    /// The answer, or the result of a client tool.
    #[schema(value_type = Value)]
    pub answer: Json,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = ResumeRequest)]
pub struct ResumeRequestBody {
    /// Limits in place of the earlier ones. Those that are absent stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsBody>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = CloseRequest)]
pub struct CloseRequestBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
