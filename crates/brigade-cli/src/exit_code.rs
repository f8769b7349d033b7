//! Exit codes, and the errors that lead to them.

use std::io::{self, Write};
use std::process::ExitCode;

use brigade_model::outcome::{Failure, LateResult, Outcome};
use brigade_model::plain_text::PlainText;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_protocol::{ClientError, TaskInfo};

/// The exit code of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CliExitCode(pub(crate) u8);

impl CliExitCode {
    pub(crate) const SUCCEEDED: Self = Self(0);
    /// No line matches, as with `grep`.
    pub(crate) const NO_MATCH: Self = Self(1);
    pub(crate) const USAGE: Self = Self(2);
    /// Another daemon holds the lock of the state directory.
    pub(crate) const STATE_DIR_TAKEN: Self =
        Self(brigade_protocol::daemon_launcher::STATE_DIR_TAKEN_EXIT);
    pub(crate) const FAILED: Self = Self(120);
    pub(crate) const CANCELLED: Self = Self(121);
    pub(crate) const BUDGET_EXHAUSTED: Self = Self(122);
    /// A task waits for an answer or an approval.
    pub(crate) const INPUT_REQUIRED: Self = Self(123);
    pub(crate) const TIMED_OUT: Self = Self(124);
    pub(crate) const INTERNAL: Self = Self(125);
    pub(crate) const FORBIDDEN: Self = Self(126);
    pub(crate) const NOT_FOUND: Self = Self(127);
    /// The code of a shell after this signal.
    pub(crate) const INTERRUPTED: Self = Self(130);
    /// The code of a shell after this signal.
    const BROKEN_PIPE: Self = Self(141);

    /// Returns the code for an ended task; a process's own code if it has one.
    pub(crate) fn for_task(task: &TaskInfo) -> Self {
        let Some(outcome) = &task.outcome else { return Self::FAILED };
        match outcome {
            Outcome::Succeeded { .. } => Self::SUCCEEDED,
            Outcome::Cancelled(cancelled) => match &cancelled.late {
                Some(LateResult::Failure(Failure::Lost { .. })) => Self::FAILED,
                _ => Self::CANCELLED,
            },
            Outcome::Failed(failed) => match &failed.failure {
                Failure::ExitCode(code) => Self(u8::try_from(*code).unwrap_or(1).max(1)),
                Failure::Signal(signal) => Self(128u8.saturating_add(*signal as u8)),
                Failure::Timeout { .. } => Self::TIMED_OUT,
                Failure::Budget { .. } => Self::BUDGET_EXHAUSTED,
                _ => Self::FAILED,
            },
        }
    }
}

impl From<CliExitCode> for ExitCode {
    fn from(exit: CliExitCode) -> Self {
        Self::from(exit.0)
    }
}

/// The error of a subcommand, with its exit code and hints.
#[derive(Debug)]
pub(crate) struct CliError {
    exit_code: CliExitCode,
    message: String,
    hint: Option<String>,
    cause: ErrorCause,
}

/// The causes that some callers handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorCause {
    /// The connection to the daemon was lost during the call.
    LostDaemon,
    /// The task has ended.
    TaskEnded,
    Other,
}

impl CliError {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(CliExitCode::USAGE, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(CliExitCode::INTERNAL, message)
    }

    pub(crate) fn new(exit: CliExitCode, message: impl Into<String>) -> Self {
        Self { exit_code: exit, message: message.into(), hint: None, cause: ErrorCause::Other }
    }

    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a further hint.
    #[must_use]
    pub(crate) fn add_hint(self, hint: String) -> Self {
        let hint = match &self.hint {
            Some(first) => format!("{first}\n  hint: {hint}"),
            None => hint,
        };
        self.with_hint(hint)
    }

    /// Puts the subject before the message.
    #[must_use]
    pub(crate) fn prefix_message(mut self, subject: &str) -> Self {
        self.message = format!("{subject}: {}", self.message);
        self
    }

    /// Prints the error and its hints, and returns the exit code.
    pub(crate) fn report(&self) -> CliExitCode {
        if self.exit_code != CliExitCode::BROKEN_PIPE {
            let mut err = anstream::stderr();
            let _ = writeln!(err, "brigade: {}", PlainText::of(&self.message));
            if let Some(hint) = &self.hint {
                let _ = writeln!(err, "  hint: {}", PlainText::of(hint));
            }
        }
        self.exit_code
    }

    /// Prints the message alone on one line, and returns the exit code.
    pub(crate) fn report_on_one_line(&self) -> CliExitCode {
        let _ = writeln!(io::stderr(), "{}", PlainText::line(&self.message));
        self.exit_code
    }

    pub(crate) fn message_contains(&self, part: &str) -> bool {
        self.message.contains(part)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.exit_code == CliExitCode::NOT_FOUND
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        self.exit_code == CliExitCode::FORBIDDEN
    }

    /// Sets the hint if the error is "not found".
    pub(crate) fn hint_if_not_found(self, hint: &str) -> Self {
        if self.exit_code == CliExitCode::NOT_FOUND { self.with_hint(hint) } else { self }
    }

    pub(crate) fn is_lost_daemon(&self) -> bool {
        self.cause == ErrorCause::LostDaemon
    }

    pub(crate) fn is_task_ended(&self) -> bool {
        self.cause == ErrorCause::TaskEnded
    }
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        let (exit, hint) = match refusal.kind {
            RefusalKind::NotFound => (
                CliExitCode::NOT_FOUND,
                Some(
                    "`brigade ps --ended` lists the tasks here, with `--all` those of all workspaces",
                ),
            ),
            RefusalKind::Forbidden => (CliExitCode::FORBIDDEN, None),
            RefusalKind::Invalid => (CliExitCode::USAGE, None),
            RefusalKind::Conflict | RefusalKind::Limit | RefusalKind::Ended => {
                (CliExitCode::FAILED, None)
            }
            RefusalKind::Unavailable | RefusalKind::Unknown | RefusalKind::Internal => {
                (CliExitCode::INTERNAL, Some("`brigade doctor` checks the installation"))
            }
        };
        let ended = refusal.kind == RefusalKind::Ended;
        let cause = if ended { ErrorCause::TaskEnded } else { ErrorCause::Other };
        Self { hint: hint.map(Into::into), cause, ..Self::new(exit, refusal.message) }
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(refusal) => refusal.into(),
            ClientError::VersionMismatch { .. } => Self::internal(error.to_string()).with_hint(
                "use the same version, or stop that daemon with its own `brigade daemon stop`",
            ),
            ClientError::Lost => Self {
                cause: ErrorCause::LostDaemon,
                ..Self::internal(error.to_string())
                    .with_hint("try again; with --key a task is never started twice")
            },
            ClientError::NotReceived => {
                Self { cause: ErrorCause::LostDaemon, ..Self::internal(error.to_string()) }
            }
            // Its message says what to do.
            ClientError::Unreachable { .. } => Self::internal(error.to_string()),
            ClientError::NotServed(_) => Self::new(CliExitCode::FORBIDDEN, error.to_string()),
            ClientError::NoServer(_) => Self::internal(error.to_string()).with_hint(
                "does `brigade serve` run there? `--server local` is this machine's daemon",
            ),
            ClientError::NoDaemon(_)
            | ClientError::NotPermitted(_)
            | ClientError::NotStarted(_)
            | ClientError::Malformed(_) => Self::internal(error.to_string())
                .with_hint("`brigade doctor` checks the installation"),
        }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            // The reader closed our output, which is no error of ours.
            return Self::new(CliExitCode::BROKEN_PIPE, "the reader closed the output");
        }
        Self::internal(error.to_string())
    }
}
