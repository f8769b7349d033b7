//! The calls of one message, and how far each has come.

use std::sync::Arc;

use brigade_llm::{ToolCall, ToolResult};
use brigade_model::call::Answer;
use brigade_model::ids::CallIndex;

use crate::tool::Place;

/// Calls of one message.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) calls: Vec<TurnCall>,
}

#[derive(Clone, Debug)]
pub(crate) struct TurnCall {
    pub(crate) call: ToolCall,
    pub(crate) place: Place,
    pub(crate) state: CallState,
}

#[derive(Clone, Debug)]
pub(crate) enum CallState {
    /// To be carried out: what its slots have tells how far it came.
    Due(Slots),
    Parked(Slots),
    Answered(ToolResult),
}

/// What is written down of a call before its result.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    pub(crate) effect: Option<Arc<Answer>>,
    pub(crate) told: Option<Arc<Answer>>,
    pub(crate) verdict: Option<Arc<Answer>>,
    /// Plugins let it pass, and what they changed is written down.
    pub(crate) passed: bool,
}

impl CallState {
    pub(crate) fn slots_mut(&mut self) -> Option<&mut Slots> {
        match self {
            Self::Due(slots) | Self::Parked(slots) => Some(slots),
            Self::Answered(_) => None,
        }
    }

    pub(crate) fn slots(&self) -> Slots {
        match self {
            Self::Due(slots) | Self::Parked(slots) => slots.clone(),
            Self::Answered(_) => Slots::default(),
        }
    }
}

impl TurnCall {
    pub(crate) fn has(&self, index: CallIndex) -> bool {
        (self.place.0..self.place.0 + Place::SLOTS).contains(&index.0)
    }
}
