//! The report about a process that ended.

use std::path::Path;
use std::sync::Arc;

use brigade_model::command::{EndReport, WorkResult};
use brigade_model::ids::Millis;
use brigade_model::json::Json;
use brigade_model::outcome::{EndConfirmation, Failure};
use brigade_model::work::{CommandLine, Work};
use brigade_process::{ProcessExit, ProcessOutput, SandboxParts, ShimRecord, StartStep, Survivor};
use serde::{Deserialize, Serialize};

/// The largest part of the output's end that goes into a result. All of it is in the output itself.
const TAIL_MAX_BYTES: usize = 4 * 1024;

/// The result of a process, succeeded or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The bytes that each stream produced, stored or not.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub duration_ms: u64,
    /// The end of its output, both streams in order.
    pub tail: String,
    /// The parts of its sandbox that were in effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sandbox: Vec<SandboxPart>,
    /// Its processes that could not be ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub survivors: Vec<String>,
}

/// One part of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxPart {
    /// Rules for files, signals and sockets.
    Landlock,
    /// A filter of system calls.
    Seccomp,
    /// A mount namespace: nothing outside can be changed, and some of it is hidden.
    Mount,
    /// An empty network namespace.
    Network,
    /// A control group, which a process without a sandbox may have too.
    ControlGroup,
    /// A memory limit for all its processes together.
    MemoryLimit,
}

impl SandboxPart {
    pub(crate) fn all_of(parts: SandboxParts) -> Vec<Self> {
        let SandboxParts { landlock, seccomp, mount, network, control_group, memory_limit } = parts;
        let table = [
            (Self::Landlock, landlock),
            (Self::Seccomp, seccomp),
            (Self::Mount, mount),
            (Self::Network, network),
            (Self::ControlGroup, control_group),
            (Self::MemoryLimit, memory_limit),
        ];
        table.into_iter().filter_map(|(part, is_in_effect)| is_in_effect.then_some(part)).collect()
    }
}

/// Returns the end that a record holds, if it has one. A process that could not be killed has no
/// exit and is itself among the survivors.
pub(crate) fn end_from_record(
    record: &ShimRecord,
    dir: &Path,
    description: &CommandDescription,
    survivors: &[Survivor],
) -> Option<EndReport> {
    let mut names = survivor_names(survivors);
    let unnamed = (record.survivors_total as usize).saturating_sub(survivors.len());
    if unnamed > 0 {
        names.push(format!("{unnamed} more"));
    }
    let Some(exit) = record.exit else {
        let survives = !names.is_empty();
        return survives.then(|| EndReport {
            result: WorkResult::Aborted,
            confirmation: end_confirmation(names),
        });
    };
    let report = build_report(record, dir, exit, &names);
    let failed = |failure| WorkResult::Failed { failure, partial: report.clone() };
    let overdue = record.overdue_after_ms;
    let result = match exit {
        // The shim ended it at its deadline, however it exited.
        ProcessExit::Code(_) | ProcessExit::Signal(_) if overdue > 0 => {
            failed(Failure::Timeout { after: Millis(overdue) })
        }
        ProcessExit::Code(0) => WorkResult::Returned(report.clone().unwrap_or_else(Json::null)),
        ProcessExit::Code(code) => failed(Failure::ExitCode(code)),
        ProcessExit::Signal(signal) => failed(Failure::Signal(signal)),
        ProcessExit::NotStarted { step, errno } => {
            let problem = description.render_start_failure(step, errno);
            WorkResult::Failed { failure: Failure::Error(problem.into()), partial: None }
        }
    };
    Some(EndReport { result, confirmation: end_confirmation(names) })
}

pub(crate) fn end_confirmation(survivors: Vec<String>) -> EndConfirmation {
    if survivors.is_empty() {
        return EndConfirmation::Confirmed;
    }
    EndConfirmation::Survivors(survivors.into_iter().map(Into::into).collect())
}

pub(crate) fn survivor_names(survivors: &[Survivor]) -> Vec<String> {
    survivors.iter().map(|one| format!("pid {} ({})", one.id.pid, one.name)).collect()
}

fn build_report(
    record: &ShimRecord,
    dir: &Path,
    exit: ProcessExit,
    survivors: &[String],
) -> Option<Json> {
    let tail = match record.produced_bytes {
        [0, 0] => String::new(),
        _ => ProcessOutput::open(dir)
            .and_then(|output| output.tail_text(TAIL_MAX_BYTES))
            .unwrap_or_default(),
    };
    let report = ProcessReport {
        exit_code: match exit {
            ProcessExit::Code(code) => Some(code),
            ProcessExit::Signal(_) | ProcessExit::NotStarted { .. } => None,
        },
        signal: match exit {
            ProcessExit::Signal(signal) => Some(signal),
            ProcessExit::Code(_) | ProcessExit::NotStarted { .. } => None,
        },
        stdout_bytes: record.produced_bytes[0],
        stderr_bytes: record.produced_bytes[1],
        duration_ms: record.ended_at.saturating_sub(record.started_at),
        tail,
        sandbox: SandboxPart::all_of(record.sandbox),
        survivors: survivors.to_vec(),
    };
    Json::of(&report).ok()
}

/// The program and directory of a process, for the text of a failed start.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandDescription {
    /// `None` for the shell.
    program: Option<Arc<str>>,
    directory: Option<Arc<str>>,
}

impl CommandDescription {
    pub(crate) fn from_work(work: &Work) -> Self {
        let Work::Process(process) = work else { return Self::default() };
        let program = match &process.command {
            CommandLine::Shell(_) => None,
            CommandLine::Program(words) => words.first().cloned(),
        };
        Self { program, directory: process.cwd.clone() }
    }

    fn render_start_failure(&self, step: StartStep, errno: i32) -> String {
        let program = self.program.as_ref().map_or("the shell".to_owned(), |it| format!("`{it}`"));
        let directory = self.directory.as_ref().map_or(String::new(), |it| format!(" {it}"));
        let problem = match step {
            StartStep::WorkingDirectory => {
                &*format!("its working directory{directory} cannot be entered")
            }
            StartStep::Input => "its input cannot be created",
            StartStep::Execute => &*format!("{program} cannot be executed"),
            StartStep::ExecuteSandboxed => &*format!(
                "{program} cannot be executed in the sandbox, which must allow to read it"
            ),
            StartStep::Terminal => "its terminal cannot be created",
            StartStep::Limits => "its limits cannot be set",
            StartStep::Sandbox => "its sandbox cannot be applied, and nothing was run",
            StartStep::Namespaces => "its namespaces cannot be created, and nothing was run",
            StartStep::ControlGroup => {
                "it cannot be put into its control group, and nothing was run"
            }
            StartStep::Filter => "its system calls cannot be filtered, and nothing was run",
        };
        let error = std::io::Error::from_raw_os_error(errno);
        let reason = error.to_string();
        let reason = reason.trim_end_matches(&format!(" (os error {errno})"));
        let searched = matches!(step, StartStep::Execute | StartStep::ExecuteSandboxed)
            && error.kind() == std::io::ErrorKind::NotFound
            && self.program.as_ref().is_some_and(|program| !program.contains('/'));
        format!("{problem}: {reason}{}", if searched { " in its PATH" } else { "" })
    }
}
