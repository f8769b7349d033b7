//! `list_programs`: lists the agent programs of other vendors, with their state on this machine.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ListProgramsRequest {
    /// The names of the agent programs to list. An empty list is all of them.
    pub names: Vec<String>,
    /// Program files to look for as well, such as those of definitions with a command line of their
    /// own.
    pub files: Vec<String>,
    /// Starts no program for its version.
    pub without_versions: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListProgramsReply {
    pub programs: Vec<AgentProgramInfo>,
    /// Faults of the user's adapter files, with file and field.
    pub problems: Vec<String>,
    /// The requested program files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<ProgramFileInfo>,
}

/// A program file, as the daemon finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFileInfo {
    pub program: String,
    /// The path at which the daemon finds it; `None` if it cannot be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The reason why a file of this name cannot be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
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
    /// The path at which the daemon finds it; `None` if it cannot be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The reason why a file of this name cannot be started; `None` if there is no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The version that it prints, if it does so in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub login: ProgramLogin,
    /// The action of a person who is not logged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_hint: Option<String>,
    /// Files with credentials, if no variable has some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub login_files: Vec<String>,
    /// Variables with credentials that the environment of the daemon does not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unset_variables: Vec<String>,
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
