//! The tool calls of one step, and the state of each.

use std::sync::Arc;

use brigade_llm::{ToolCall, ToolResult};
use brigade_model::call::CallCompletion;
use brigade_model::ids::CallIndex;
use serde::{Deserialize, Serialize};

use crate::shared_state::StateChanges;
use crate::tool::{CallSlotRange, ToolInvocation};

/// The calls of the model's last message.
#[derive(Clone, Debug)]
pub(crate) struct StepCalls {
    pub(crate) calls: Vec<StepCall>,
}

#[derive(Clone, Debug)]
pub(crate) struct StepCall {
    pub(crate) call: ToolCall,
    pub(crate) slot_range: CallSlotRange,
    pub(crate) state: CallState,
}

#[derive(Clone, Debug)]
pub(crate) enum CallState {
    /// The call is to be executed. Its slots tell from where it continues.
    Due(CallSlots),
    Parked(CallSlots),
    Answered(ToolResult),
}

/// The journal entries of a call before its result.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallSlots {
    pub(crate) effect: Option<Arc<CallCompletion>>,
    pub(crate) completion: Option<Arc<CallCompletion>>,
    pub(crate) verdict: Option<Arc<CallCompletion>>,
    /// Plugins admitted the call, and their state changes are recorded.
    pub(crate) passed_hooks: bool,
}

/// A call that is to be executed now.
#[derive(Clone, Debug)]
pub(crate) struct DueCall {
    /// The call as the model made it.
    pub(crate) tool_call: ToolCall,
    /// The call as its tool gets it.
    pub(crate) invocation: ToolInvocation,
}

/// A journal entry with the result of a call and its state changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ResultEntry {
    pub(crate) result: ToolResult,
    pub(crate) state: StateChanges,
}

impl StepCall {
    /// Stores the completion in its slot, so that the call is due again. Ignores an answered call.
    pub(crate) fn complete(&mut self, index: CallIndex, completion: &Arc<CallCompletion>) {
        let (CallState::Due(slots) | CallState::Parked(slots)) = &self.state else { return };
        let mut slots = slots.clone();
        let slot = match index {
            index if index == self.slot_range.effect() => &mut slots.effect,
            index if index == self.slot_range.approval() => &mut slots.verdict,
            _ => &mut slots.completion,
        };
        *slot = Some(completion.clone());
        self.state = CallState::Due(slots);
    }
}

impl CallState {
    pub(crate) fn slots_mut(&mut self) -> Option<&mut CallSlots> {
        match self {
            Self::Due(slots) | Self::Parked(slots) => Some(slots),
            Self::Answered(_) => None,
        }
    }

    pub(crate) fn slots(&self) -> CallSlots {
        match self {
            Self::Due(slots) | Self::Parked(slots) => slots.clone(),
            Self::Answered(_) => CallSlots::default(),
        }
    }
}

impl StepCall {
    /// Returns true if `index` is one of the call's own indexes.
    pub(crate) fn has(&self, index: CallIndex) -> bool {
        (self.slot_range.0..self.slot_range.0 + CallSlotRange::SLOTS_PER_CALL).contains(&index.0)
    }
}
