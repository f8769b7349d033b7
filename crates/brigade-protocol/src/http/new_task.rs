//! Requests that start tasks.

use std::collections::BTreeMap;

use brigade_agent::permission::{PermissionRule, PermissionRules};
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_model::sandbox::{
    NetworkPolicy, ResourceLimits, SandboxRequest, TcpPolicy, TerminalSize,
};
use brigade_model::work::{CommandLine, EnvValue, ProcessWork, ReadinessCheck, StdinSource};
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::LimitsBody;
use super::json_object::json_objects;

/// A task to start.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = NewTask)]
pub enum NewTaskBody {
    Process(Box<NewProcessBody>),
    Agent(Box<NewAgentBody>),
    Job(Box<NewJobBody>),
}

macro_rules! define_kinds {
    ($($(#[$meta:meta])* $name:ident($variant:ident)),* $(,)?) => {
        $($(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $variant,
        })*
    };
}

define_kinds! {
    ProcessKind(Process),
    AgentKind(Agent),
    JobKind(Job),
}

/// The kind is read first, so that the error of a wrong field names that field.
impl<'de> Deserialize<'de> for NewTaskBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        fn parse<T: DeserializeOwned, E: Error>(raw: &RawValue) -> Result<Box<T>, E> {
            serde_json::from_str(raw.get()).map(Box::new).map_err(E::custom)
        }
        #[derive(Deserialize)]
        struct KindField {
            kind: String,
        }
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let KindField { kind } = *parse::<KindField, D::Error>(&raw)?;
        match kind.as_str() {
            "process" => parse(&raw).map(Self::Process),
            "agent" => parse(&raw).map(Self::Agent),
            "job" => parse(&raw).map(Self::Job),
            _ => Err(D::Error::custom("the kind is `process`, `agent` or `job`")),
        }
    }
}

/// A process to start: a program with arguments, or a line for the shell.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(
    as = NewProcess,
    example = json!({ "kind": "process", "command": ["make"], "cwd": "/" })
)]
pub struct NewProcessBody {
    #[schema(inline)]
    pub kind: ProcessKind,
    /// The program and its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// A line for the shell, instead of `command`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// The working directory, an absolute path.
    #[schema(pattern = "^/")]
    pub cwd: String,
    /// Variables beside those that every process gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, EnvBody>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The process reads the messages that are sent to it, one line each.
    #[serde(default)]
    pub stdin: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The time between SIGTERM and SIGKILL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// The condition under which the process counts as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadinessBody>,
    /// The process passes to the session when its parent ends.
    #[serde(default)]
    pub keep: bool,
    /// The process works in a git worktree of its own. Only for the operator.
    #[serde(default)]
    pub worktree: bool,
    /// A terminal instead of pipes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalBody>,
    /// The sandbox, which a client's token must request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsBody>,
}

/// An agent to start.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(
    as = NewAgent,
    example = json!({ "kind": "agent", "prompt": "Review.", "cwd": "/" })
)]
pub struct NewAgentBody {
    #[schema(inline)]
    pub kind: AgentKind,
    pub prompt: String,
    /// The working directory, an absolute path, in which its definitions are found too.
    #[schema(pattern = "^/")]
    pub cwd: String,
    /// The name of a definition. Without it, the agent is a general one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// The model, in place of the definition's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The settings that the definition asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub config: Option<Json>,
    /// A JSON schema that the result must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result_schema: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsBody>,
    /// The upper bound of its permissions. Without it, the agent may read, delegate and ask, but
    /// not write files or run processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<PermissionsBody>,
    /// MCP servers whose tools it has beside those of its definition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<String>,
    /// The agent passes to the session when its parent ends.
    #[serde(default)]
    pub keep: bool,
    /// The agent works in a git worktree of its own. Only for the operator.
    #[serde(default)]
    pub worktree: bool,
    /// Nobody approves its calls: those that need an approval are denied.
    #[serde(default)]
    pub unattended: bool,
    /// The sandbox of its processes, which a client's token must request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesBody>,
}

/// A job to start, which the program that runs the server has registered.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewJob)]
pub struct NewJobBody {
    #[schema(inline)]
    pub kind: JobKind,
    /// The name of the job.
    pub job: String,
    /// The arguments as JSON; `null` without them.
    #[serde(default = "Json::null")]
    #[schema(value_type = Value)]
    pub arguments: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsBody>,
}

/// The condition under which a process counts as ready: exactly one of these fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Readiness, example = json!({ "port": 8000 }))]
pub struct ReadinessBody {
    /// A line of its output matches this regular expression, whose classes are of ASCII.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The process accepts a connection on this TCP port of the loopback address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 65535)]
    pub port: Option<u16>,
    /// This http URL of the loopback address answers with a status from 200 to 299.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
}

impl ReadinessBody {
    pub fn of(check: &ReadinessCheck) -> Self {
        match check {
            ReadinessCheck::Output(pattern) => {
                Self { output: Some(pattern.to_string()), ..Self::default() }
            }
            ReadinessCheck::Port(port) => Self { port: Some(*port), ..Self::default() },
            ReadinessCheck::Http(url) => Self { http: Some(url.to_string()), ..Self::default() },
            // Of a later version.
            _ => Self::default(),
        }
    }

    pub fn to_check(&self) -> Result<ReadinessCheck, Refusal> {
        ReadinessCheck::from_fields(self.output.as_deref(), self.port, self.http.as_deref())
    }
}

/// The value of a variable: a text, or that of a variable of the server, which is never stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = EnvValue)]
pub enum EnvBody {
    Text(String),
    From(EnvFromBody),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schema(as = EnvFrom)]
pub struct EnvFromBody {
    /// The name of a variable of the server.
    pub from: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schema(as = Terminal)]
pub struct TerminalBody {
    #[schema(minimum = 1)]
    pub columns: u16,
    #[schema(minimum = 1)]
    pub rows: u16,
}

/// A sandbox: the working directory, and the listed paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields, remote = "Self")]
#[schema(as = Sandbox)]
pub struct SandboxBody {
    /// Further paths that may be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// Further paths that may be written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// Refuses TCP connections.
    pub deny_tcp: bool,
    /// Refuses every connection.
    pub deny_network: bool,
}

/// The limits of each OS process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields, remote = "Self")]
#[schema(as = Resources)]
pub struct ResourcesBody {
    /// Bytes of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Seconds of processor time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_secs: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
}

/// Permission rules, such as `read_file` or `run_process(cargo test *)`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields, remote = "Self")]
#[schema(as = Permissions)]
pub struct PermissionsBody {
    /// The allowed calls. Without a list, all are allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Calls that need an approval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
}

json_objects! { EnvFromBody, TerminalBody, SandboxBody, ResourcesBody, PermissionsBody }

impl NewProcessBody {
    /// Returns the work, or refuses a request with no command or with two.
    pub fn work(&self) -> Result<ProcessWork, Refusal> {
        let command = match (&self.command, &self.shell) {
            (Some(words), None) => {
                CommandLine::Program(words.iter().map(|word| word.as_str().into()).collect())
            }
            (None, Some(text)) => CommandLine::Shell(text.as_str().into()),
            (Some(_), Some(_)) | (None, None) => {
                return Err(Refusal::invalid("pass either `command` or `shell`"));
            }
        };
        let env = self.env.iter().map(|(name, value)| (name.as_str().into(), value.value()));
        Ok(ProcessWork {
            cwd: Some(self.cwd.as_str().into()),
            env: env.collect(),
            stdin: if self.stdin { StdinSource::Messages } else { StdinSource::Null },
            ready: self.ready.as_ref().map(ReadinessBody::to_check).transpose()?,
            ..ProcessWork::new(command)
        })
    }
}

impl EnvBody {
    fn value(&self) -> EnvValue {
        match self {
            Self::Text(text) => EnvValue::Text(text.as_str().into()),
            Self::From(EnvFromBody { from }) => EnvValue::FromEnv(from.as_str().into()),
        }
    }
}

impl From<TerminalBody> for TerminalSize {
    fn from(size: TerminalBody) -> Self {
        Self { rows: size.rows, columns: size.columns }
    }
}

impl From<SandboxBody> for SandboxRequest {
    fn from(sandbox: SandboxBody) -> Self {
        let SandboxBody { read, write, deny_tcp, deny_network } = sandbox;
        Self {
            read,
            write,
            tcp: if deny_tcp { TcpPolicy::Denied } else { TcpPolicy::Allowed },
            network: if deny_network { NetworkPolicy::Denied } else { NetworkPolicy::Allowed },
            agents: false,
        }
    }
}

impl From<ResourcesBody> for ResourceLimits {
    fn from(resources: ResourcesBody) -> Self {
        let ResourcesBody { memory, cpu_secs, open_files } = resources;
        Self { memory, cpu_secs, open_files }
    }
}

impl From<ResourceLimits> for ResourcesBody {
    fn from(resources: ResourceLimits) -> Self {
        let ResourceLimits { memory, cpu_secs, open_files } = resources;
        Self { memory, cpu_secs, open_files }
    }
}

impl PermissionsBody {
    pub fn of(rules: &PermissionRules) -> Self {
        let texts = |rules: &[PermissionRule]| rules.iter().map(ToString::to_string).collect();
        Self {
            allow: rules.allow.as_deref().map(texts),
            ask: texts(&rules.ask),
            deny: texts(&rules.deny),
        }
    }

    /// Returns the rules, or refuses a text that is not one.
    pub fn parse(&self) -> Result<PermissionRules, Refusal> {
        Ok(PermissionRules {
            allow: self.allow.as_deref().map(parse_rules).transpose()?,
            ask: parse_rules(&self.ask)?,
            deny: parse_rules(&self.deny)?,
        })
    }
}

fn parse_rules(texts: &[String]) -> Result<Vec<PermissionRule>, Refusal> {
    texts.iter().map(|text| parse_rule(text)).collect()
}

/// Returns the rule of a text, or refuses a text that is not one.
pub fn parse_rule(text: &str) -> Result<PermissionRule, Refusal> {
    text.parse().map_err(|error| Refusal::invalid(format!("a rule is wrong: {error}")))
}
