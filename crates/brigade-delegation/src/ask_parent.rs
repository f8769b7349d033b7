//! `ask_parent`: asks the parent a question and waits for the answer.

use brigade_model::refusal::Refusal;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::audience::Audience;
use crate::tool_args::{ToolArgs, ToolHints, require_text};

/// The arguments of `ask_parent`, which only agents have.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskParent {
    /// The question, complete in itself, with the choices.
    pub question: String,
}

impl ToolArgs for AskParent {
    const NAME: &'static str = "ask_parent";
    const TITLE: &'static str = "Ask the parent";
    const HINTS: ToolHints = ToolHints {
        is_read_only: false,
        is_destructive: false,
        is_idempotent: false,
        is_open_world: false,
    };

    fn description(_audience: Audience) -> String {
        "Ask the one who gave you this work a question, and wait for the answer. Use it when you need a \
         decision that is not yours. Not for progress reports (use send_message to parent), and not for \
         facts that you can find out yourself."
            .to_owned()
    }
}

impl AskParent {
    pub fn check(&self) -> Result<(), Refusal> {
        require_text("question", &self.question)
    }
}
