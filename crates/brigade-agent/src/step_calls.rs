//! The calls of one message, and how far each has come.

use std::sync::Arc;

use brigade_llm::{ToolCall, ToolResult};
use brigade_model::call::CallCompletion;
use brigade_model::ids::CallIndex;

use crate::tool::CallSlotRange;

/// Calls of one message.
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
    /// To be carried out: what its slots have tells how far it came.
    Due(CallSlots),
    Parked(CallSlots),
    Answered(ToolResult),
}

/// What is written down of a call before its result.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallSlots {
    pub(crate) effect: Option<Arc<CallCompletion>>,
    pub(crate) completion: Option<Arc<CallCompletion>>,
    pub(crate) verdict: Option<Arc<CallCompletion>>,
    /// Plugins let it pass, and what they changed is written down.
    pub(crate) passed_hooks: bool,
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
    pub(crate) fn has(&self, index: CallIndex) -> bool {
        (self.slot_range.0..self.slot_range.0 + CallSlotRange::SLOTS_PER_CALL).contains(&index.0)
    }
}
