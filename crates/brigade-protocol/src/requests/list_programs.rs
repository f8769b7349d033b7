//! `list_programs`: lists the agent programs of other vendors, with their state on this machine.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListProgramsRequest {}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListProgramsReply {
    pub programs: Vec<AgentProgramInfo>,
    /// Faults of the user's adapter files, with file and field.
    pub problems: Vec<String>,
}

/// An agent program that a definition can name in `runs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentProgramInfo {
    pub name: String,
    pub title: String,
    /// The protocol that Brigade speaks with it: `adapter` or `acp`. More may follow.
    pub protocol: String,
    /// The program that is started.
    pub program: String,
    /// The path at which the daemon finds it; `None` if it is not installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The version that it prints, if it does so in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub login: ProgramLogin,
    /// The action of a person who is not logged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_hint: Option<String>,
    /// The user's adapter file; `None` for a built-in program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// The login with a program, as far as it can be seen without a model call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramLogin {
    /// There are credentials. They may have expired.
    Found,
    /// No known place has credentials.
    NotFound,
    /// No place for credentials is known.
    Unknown,
}

impl Call for ListProgramsRequest {
    type Reply = ListProgramsReply;
    type Item = NoItems;
}
