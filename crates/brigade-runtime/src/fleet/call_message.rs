//! The requests that nodes send to each other, and the replies.

use brigade_model::command::{CollectCommand, Command};
use brigade_model::decide::CommandReply;
use brigade_model::event_author::CallerOrigin;
use brigade_model::refusal::Refusal;
use brigade_store::{NodeId, codec};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::loop_input::SubmitResult;

/// A request for a session that another node owns.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum CallRequest {
    Submit {
        command: Command,
        origin: Option<CallerOrigin>,
    },
    SubmitAll {
        commands: Vec<Command>,
        origin: Option<CallerOrigin>,
    },
    /// A wait, answered when its condition is met.
    Wait {
        collect: CollectCommand,
        origin: Option<CallerOrigin>,
    },
    /// A request to give the session to another node.
    Move {
        to: NodeId,
    },
}

/// The reply to a [`CallRequest`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum CallReply {
    One(SubmitResult<CommandReply>),
    Many(Vec<SubmitResult<CommandReply>>),
}

impl CallRequest {
    /// Encodes the request. Refuses one that only the owner's process can carry out.
    pub(crate) fn encode(&self) -> SubmitResult<Vec<u8>> {
        let has_attachment = |command: &Command| match command {
            Command::Spawn(spawn) => spawn.spec.attachment.is_some(),
            _ => false,
        };
        let is_local = match self {
            Self::Submit { command, .. } => has_attachment(command),
            Self::SubmitAll { commands, .. } => commands.iter().any(has_attachment),
            Self::Wait { .. } | Self::Move { .. } => false,
        };
        if is_local {
            return Err(Refusal::conflict(
                "another node owns this session, and a closure runs only in its own process; use a \
                 named job, or a session of this node",
            ));
        }
        encode(self)
    }

    pub(crate) fn decode(bytes: &[u8]) -> SubmitResult<Self> {
        decode(bytes)
    }
}

impl CallReply {
    pub(crate) fn encode(&self) -> SubmitResult<Vec<u8>> {
        encode(self)
    }

    pub(crate) fn decode(bytes: &[u8]) -> SubmitResult<Self> {
        decode(bytes)
    }
}

pub(super) fn encode(value: &impl Serialize) -> SubmitResult<Vec<u8>> {
    codec::encode(value)
        .map_err(|error| Refusal::internal(format!("a call cannot be encoded: {error}")))
}

pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> SubmitResult<T> {
    codec::decode("a call of another node", bytes).map_err(|error| {
        Refusal::unavailable(format!("the nodes have different versions of Brigade: {error}"))
    })
}
