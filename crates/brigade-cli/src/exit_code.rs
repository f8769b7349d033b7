//! What the exit code says: one table.

use std::io::{self, Write};
use std::process::ExitCode;

use brigade_model::outcome::{Failure as Ended, LateResult, Outcome};
use brigade_model::plain_text::PlainText;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_server::{ClientError, TaskInfo};

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CliExitCode(pub(crate) u8);

impl CliExitCode {
    pub(crate) const SUCCEEDED: Self = Self(0);
    /// Nothing was found to match, as `grep` says it.
    pub(crate) const NO_MATCH: Self = Self(1);
    pub(crate) const USAGE: Self = Self(2);
    /// Another daemon has the state folder.
    pub(crate) const STATE_DIR_TAKEN: Self =
        Self(brigade_server::daemon_launcher::STATE_DIR_TAKEN_EXIT);
    pub(crate) const FAILED: Self = Self(120);
    pub(crate) const CANCELLED: Self = Self(121);
    pub(crate) const BUDGET_EXHAUSTED: Self = Self(122);
    /// Somebody has to answer a question first.
    pub(crate) const INPUT_REQUIRED: Self = Self(123);
    pub(crate) const TIMED_OUT: Self = Self(124);
    pub(crate) const INTERNAL: Self = Self(125);
    pub(crate) const FORBIDDEN: Self = Self(126);
    pub(crate) const NOT_FOUND: Self = Self(127);
    /// As if the signal for it had ended us.
    pub(crate) const INTERRUPTED: Self = Self(130);
    /// As if the signal for it had ended us.
    const BROKEN_PIPE: Self = Self(141);

    /// As a task ended: a command's own code where it has one.
    pub(crate) fn for_task(task: &TaskInfo) -> Self {
        let Some(outcome) = &task.outcome else { return Self::FAILED };
        match outcome {
            Outcome::Succeeded { .. } => Self::SUCCEEDED,
            Outcome::Cancelled(cancelled) => match &cancelled.late {
                Some(LateResult::Failure(Ended::Lost { .. })) => Self::FAILED,
                _ => Self::CANCELLED,
            },
            Outcome::Failed(failed) => match &failed.failure {
                Ended::ExitCode(code) => Self(u8::try_from(*code).unwrap_or(1).max(1)),
                Ended::Signal(signal) => Self(128u8.saturating_add(*signal as u8)),
                Ended::Timeout { .. } => Self::TIMED_OUT,
                Ended::Budget { .. } => Self::BUDGET_EXHAUSTED,
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

/// Why a subcommand did not do what it should.
#[derive(Debug)]
pub(crate) struct CliError {
    exit_code: CliExitCode,
    message: String,
    hint: Option<String>,
    cause: ErrorCause,
}

/// What some callers of a subcommand's parts do something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorCause {
    /// The daemon went away in the middle.
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

    /// The same with one thing more to know.
    #[must_use]
    pub(crate) fn add_hint(self, hint: String) -> Self {
        let hint = match &self.hint {
            Some(first) => format!("{first}\n  hint: {hint}"),
            None => hint,
        };
        self.with_hint(hint)
    }

    /// The same with what it is about.
    #[must_use]
    pub(crate) fn prefix_message(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Says it, and how the program ends.
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

    /// Says only what it is, in one line.
    pub(crate) fn report_on_one_line(&self) -> CliExitCode {
        let _ = writeln!(io::stderr(), "{}", PlainText::line(&self.message));
        self.exit_code
    }

    pub(crate) fn message_contains(&self, words: &str) -> bool {
        self.message.contains(words)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.exit_code == CliExitCode::NOT_FOUND
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        self.exit_code == CliExitCode::FORBIDDEN
    }

    /// Where to look for what was not found, if that is what is wrong.
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
                Some("`brigade ps --ended` lists what was here, with `--all` everywhere"),
            ),
            RefusalKind::Forbidden => (CliExitCode::FORBIDDEN, None),
            RefusalKind::Invalid => (CliExitCode::USAGE, None),
            RefusalKind::Conflict | RefusalKind::Limit | RefusalKind::Ended => {
                (CliExitCode::FAILED, None)
            }
            RefusalKind::Unavailable | RefusalKind::Unknown | RefusalKind::Internal => {
                (CliExitCode::INTERNAL, Some("`brigade doctor` looks for the cause"))
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
                    .with_hint("ask again; with --key a command is never started twice")
            },
            ClientError::NotReceived => {
                Self { cause: ErrorCause::LostDaemon, ..Self::internal(error.to_string()) }
            }
            // It says itself what to do.
            ClientError::Unreachable { .. } => Self::internal(error.to_string()),
            ClientError::NoDaemon(_)
            | ClientError::NotPermitted(_)
            | ClientError::NotStarted(_)
            | ClientError::Malformed(_) => {
                Self::internal(error.to_string()).with_hint("`brigade doctor` looks for the cause")
            }
        }
    }
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            // Whoever read our output has had enough: that is no failure of ours.
            return Self::new(CliExitCode::BROKEN_PIPE, "the reader went away");
        }
        Self::internal(error.to_string())
    }
}
