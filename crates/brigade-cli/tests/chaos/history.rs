//! The operations of clients, with their results and times.

use std::collections::BTreeMap;

/// The number of a task within its session.
pub(crate) type TaskNumber = u64;

/// A request of a client.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operation {
    /// The name of the session.
    pub(crate) session: String,
    pub(crate) node: String,
    /// Milliseconds since the begin of the run.
    pub(crate) invoked_at: u64,
    pub(crate) returned_at: u64,
    pub(crate) request: OperationRequest,
    pub(crate) result: OperationResult,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OperationRequest {
    Open,
    Spawn {
        key: String,
    },
    /// A wait that collects the results.
    Wait {
        tasks: Vec<TaskNumber>,
    },
    Send {
        task: TaskNumber,
        key: String,
    },
    Stop {
        task: TaskNumber,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OperationResult {
    Ok(OperationReply),
    /// The node answered that it changed nothing, or was not reached.
    Failed {
        code: String,
    },
    /// The operation may have happened.
    Unknown,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OperationReply {
    Opened,
    Spawned { task: TaskNumber },
    Waited { ended: Vec<CollectedTask> },
    Sent,
    Stopped,
}

/// A task whose result a wait returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CollectedTask {
    pub(crate) task: TaskNumber,
    /// The result was not collected before.
    pub(crate) is_first: bool,
}

/// The knowledge of all clients about one keyed command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyedCommand {
    /// The replies that acknowledged it.
    pub(crate) acknowledged: Vec<Option<TaskNumber>>,
    /// True if it may have happened without an acknowledgement.
    pub(crate) is_in_doubt: bool,
}

/// The keyed commands of a history, by session, recipient and key. A spawn has no recipient.
pub(crate) type KeyedCommands<'a> = BTreeMap<(&'a str, Option<TaskNumber>, &'a str), KeyedCommand>;

/// Returns the commands with keys. Repetitions of one are one command.
pub(crate) fn keyed_commands(operations: &[Operation]) -> KeyedCommands<'_> {
    let mut commands = KeyedCommands::new();
    for operation in operations {
        let (recipient, key) = match &operation.request {
            OperationRequest::Spawn { key } => (None, key),
            OperationRequest::Send { task, key } => (Some(*task), key),
            _ => continue,
        };
        let place = (operation.session.as_str(), recipient, key.as_str());
        let command = commands.entry(place).or_default();
        match &operation.result {
            OperationResult::Ok(OperationReply::Spawned { task }) => {
                command.acknowledged.push(Some(*task));
            }
            OperationResult::Ok(_) => command.acknowledged.push(None),
            OperationResult::Failed { .. } => {}
            OperationResult::Unknown => command.is_in_doubt = true,
        }
    }
    commands
}
