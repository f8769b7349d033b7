//! The report about a process that ended.

use std::path::Path;
use std::sync::Arc;

use brigade_model::command::{EndReport, WorkResult};
use brigade_model::ids::Millis;
use brigade_model::json::Json;
use brigade_model::outcome::{EndConfirmation, Failure};
use brigade_model::process_report::{ProcessReport, SandboxPart};
use brigade_model::work::{CommandLine, Work};
use brigade_process::{ProcessExit, ProcessOutput, SandboxParts, ShimRecord, StartStep, Survivor};
use serde::{Deserialize, Serialize};

/// The largest part of the output's end that goes into a result. All of it is in the output itself.
const TAIL_MAX_BYTES: usize = 4 * 1024;

/// Returns the parts that a shim reported.
pub(crate) fn parts_in_effect(parts: SandboxParts) -> Vec<SandboxPart> {
    let SandboxParts { landlock, seccomp, mount, network, control_group, memory_limit } = parts;
    let table = [
        (SandboxPart::Landlock, landlock),
        (SandboxPart::Seccomp, seccomp),
        (SandboxPart::Mount, mount),
        (SandboxPart::Network, network),
        (SandboxPart::ControlGroup, control_group),
        (SandboxPart::MemoryLimit, memory_limit),
    ];
    table.into_iter().filter_map(|(part, is_in_effect)| is_in_effect.then_some(part)).collect()
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
            WorkResult::Failed { failure: Failure::error(problem), partial: None }
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
        sandbox: parts_in_effect(record.sandbox),
        survivors: survivors.to_vec(),
    };
    Json::of(&report).ok()
}

/// The program and directory of a process, for the text of a failed start.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
