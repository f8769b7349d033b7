//! What the exit code says: one table.

use std::io::{self, Write};
use std::process::ExitCode;

use brigade_model::outcome::{Failure as Ended, Late, Outcome};
use brigade_model::plain_text::PlainText;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_server::{ClientError, TaskInfo};

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    pub(crate) const SUCCEEDED: Self = Self(0);
    /// Nothing was found to match, as `grep` says it.
    pub(crate) const NO_MATCH: Self = Self(1);
    pub(crate) const USAGE: Self = Self(2);
    /// Another daemon has the state folder.
    pub(crate) const TAKEN: Self = Self(brigade_server::start::TAKEN);
    pub(crate) const FAILED: Self = Self(120);
    pub(crate) const CANCELLED: Self = Self(121);
    pub(crate) const BUDGET: Self = Self(122);
    /// Somebody has to answer a question first.
    pub(crate) const WAITS_FOR_INPUT: Self = Self(123);
    pub(crate) const TIME_IS_UP: Self = Self(124);
    pub(crate) const BROKEN: Self = Self(125);
    pub(crate) const FORBIDDEN: Self = Self(126);
    pub(crate) const NOT_FOUND: Self = Self(127);
    /// As if the signal for it had ended us.
    pub(crate) const INTERRUPTED: Self = Self(130);
    /// As if the signal for it had ended us.
    const READER_GONE: Self = Self(141);

    /// As a task ended: a command's own code where it has one.
    pub(crate) fn of(task: &TaskInfo) -> Self {
        let Some(outcome) = &task.outcome else { return Self::FAILED };
        match outcome {
            Outcome::Succeeded { .. } => Self::SUCCEEDED,
            Outcome::Cancelled(cancelled) => match &cancelled.late {
                Some(Late::Failure(Ended::Lost { .. })) => Self::FAILED,
                _ => Self::CANCELLED,
            },
            Outcome::Failed(failed) => match &failed.failure {
                Ended::ExitCode(code) => Self(u8::try_from(*code).unwrap_or(1).max(1)),
                Ended::Signal(signal) => Self(128u8.saturating_add(*signal as u8)),
                Ended::Timeout { .. } => Self::TIME_IS_UP,
                Ended::Budget { .. } => Self::BUDGET,
                _ => Self::FAILED,
            },
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.0)
    }
}

/// Why a subcommand did not do what it should.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    hint: Option<String>,
    cause: Cause,
}

/// What some callers of a subcommand's parts do something about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The daemon went away in the middle.
    LostDaemon,
    /// The task has ended.
    Ended,
    Other,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::USAGE, message)
    }

    pub(crate) fn broken(message: impl Into<String>) -> Self {
        Self::new(Exit::BROKEN, message)
    }

    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, cause: Cause::Other }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same with one thing more to know.
    #[must_use]
    pub(crate) fn and_hint(self, hint: String) -> Self {
        let hint = match &self.hint {
            Some(first) => format!("{first}\n  hint: {hint}"),
            None => hint,
        };
        self.hint(hint)
    }

    /// The same with what it is about.
    #[must_use]
    pub(crate) fn about(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Says it, and how the program ends.
    pub(crate) fn report(&self) -> Exit {
        if self.exit != Exit::READER_GONE {
            let mut err = anstream::stderr();
            let _ = writeln!(err, "brigade: {}", PlainText::of(&self.message));
            if let Some(hint) = &self.hint {
                let _ = writeln!(err, "  hint: {}", PlainText::of(hint));
            }
        }
        self.exit
    }

    /// Says only what it is, in one line.
    pub(crate) fn report_in_a_line(&self) -> Exit {
        let _ = writeln!(io::stderr(), "{}", PlainText::line(&self.message));
        self.exit
    }

    pub(crate) fn says(&self, words: &str) -> bool {
        self.message.contains(words)
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.exit == Exit::NOT_FOUND
    }

    pub(crate) fn is_forbidden(&self) -> bool {
        self.exit == Exit::FORBIDDEN
    }

    /// Where to look for what was not found, if that is what is wrong.
    pub(crate) fn not_found_hint(self, hint: &str) -> Self {
        if self.exit == Exit::NOT_FOUND { self.hint(hint) } else { self }
    }

    pub(crate) fn is_lost_daemon(&self) -> bool {
        self.cause == Cause::LostDaemon
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.cause == Cause::Ended
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let (exit, hint) = match refusal.kind {
            RefusalKind::NotFound => (
                Exit::NOT_FOUND,
                Some("`brigade ps --ended` lists what was here, with `--all` everywhere"),
            ),
            RefusalKind::Forbidden => (Exit::FORBIDDEN, None),
            RefusalKind::Invalid => (Exit::USAGE, None),
            RefusalKind::Conflict | RefusalKind::Limit | RefusalKind::Ended => (Exit::FAILED, None),
            RefusalKind::Unavailable | RefusalKind::Unknown | RefusalKind::Internal => {
                (Exit::BROKEN, Some("`brigade doctor` looks for the cause"))
            }
        };
        let ended = refusal.kind == RefusalKind::Ended;
        let cause = if ended { Cause::Ended } else { Cause::Other };
        Self { hint: hint.map(Into::into), cause, ..Self::new(exit, refusal.message) }
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Refused(refusal) => refusal.into(),
            ClientError::OtherVersion { .. } => Self::broken(error.to_string()).hint(
                "use the same version, or stop that daemon with its own `brigade daemon stop`",
            ),
            ClientError::Lost => Self {
                cause: Cause::LostDaemon,
                ..Self::broken(error.to_string())
                    .hint("ask again; with --key a command is never started twice")
            },
            ClientError::Unheard => {
                Self { cause: Cause::LostDaemon, ..Self::broken(error.to_string()) }
            }
            // It says itself what to do.
            ClientError::Unreachable { .. } => Self::broken(error.to_string()),
            ClientError::NoDaemon(_)
            | ClientError::NotPermitted(_)
            | ClientError::NotStarted(_)
            | ClientError::Garbled(_) => {
                Self::broken(error.to_string()).hint("`brigade doctor` looks for the cause")
            }
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            // Whoever read our output has had enough: that is no failure of ours.
            return Self::new(Exit::READER_GONE, "the reader went away");
        }
        Self::broken(error.to_string())
    }
}
