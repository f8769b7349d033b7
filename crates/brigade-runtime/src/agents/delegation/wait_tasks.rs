//! Waits for tasks and takes their results.

use brigade_agent::{Call, Effect, Hints, Outcome, ToolError};
use brigade_model::call::{Answer, Asked, Ending, WaitMode};
use brigade_model::ids::TaskNo;
use brigade_model::patience::wait_timeout;
use schemars::JsonSchema;
use serde::Deserialize;

use super::list_tasks::line;
use super::{Delegate, Delegation};

const TASKS_MAX: usize = 1_000;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitTasks {
    /// Addresses or names of tasks that you started. Default: all whose results you did not get yet.
    #[serde(default)]
    tasks: Option<Vec<String>>,
    /// Return when any has ended (default), or when all have.
    #[serde(default)]
    mode: Option<Mode>,
    /// How long to wait; then the current states are returned and nothing is taken. Default: no end.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    timeout_secs: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    Any,
    All,
}

impl Delegation for WaitTasks {
    const NAME: &'static str = "wait_tasks";
    const DESCRIPTION: &'static str = "Wait until tasks that you started have ended, and get their \
        results. Waiting costs nothing. A message or question that arrives ends the wait too, and takes \
        no result. Use it when you cannot go on without a result. Not needed before you end your turn: \
        you are woken by itself when a task ends.";
    const HINTS: Hints = Hints::of(Effect::Recorded);

    async fn run(self, delegate: &Delegate, call: &Call) -> Result<Outcome, ToolError> {
        // The results are taken: nothing may stand between them and the model any more.
        if let Some(Answer::Endings(endings)) = call.told.as_deref() {
            return Ok(Outcome::text(endings_of(delegate, endings)));
        }
        let patience = self.timeout_secs.map(wait_timeout).transpose()?;
        let names = self.tasks.unwrap_or_default();
        if names.len() > TASKS_MAX {
            return Err(ToolError::new(format!(
                "the argument `tasks` names {}; {TASKS_MAX} is the most",
                names.len()
            )));
        }
        let mut tasks = Vec::with_capacity(names.len());
        for name in &names {
            tasks.push(delegate.link.child(name).await?.0);
        }
        if let Some(told) = &call.told {
            return self::told(delegate, told, &tasks).await;
        }
        let mode = match self.mode {
            Some(Mode::All) => WaitMode::All,
            Some(Mode::Any) | None => WaitMode::Any,
        };
        let asked = Asked::Tasks { tasks, mode, patience, interruptible: true };
        Ok(Outcome::Park { asked, effect: None })
    }
}

fn endings_of(delegate: &Delegate, endings: &[Ending]) -> String {
    match endings {
        [] => "There is nothing to wait for: no task of yours is left.".to_owned(),
        endings => delegate.quoter.endings(endings),
    }
}

/// What a wait came to, in words.
pub(super) async fn told(
    delegate: &Delegate,
    told: &Answer,
    tasks: &[TaskNo],
) -> Result<Outcome, ToolError> {
    let why = match told {
        Answer::Endings(endings) => return Ok(Outcome::text(endings_of(delegate, endings))),
        Answer::Elapsed => "The time is up. Nothing was taken.",
        Answer::News => "A message came, which follows. Nothing was taken; what runs goes on.",
        Answer::Refused(refusal) => return Err(refusal.clone().into()),
        other => {
            return Err(ToolError::new(format!("the wait was answered with {other:?}")));
        }
    };
    let mut lines = vec![why.to_owned()];
    for (no, row) in delegate.link.session().await?.list() {
        if tasks.is_empty() || tasks.contains(&no) {
            lines.push(line(no, &row, delegate.agents.now()));
        }
    }
    Ok(Outcome::text(lines.join("\n")))
}
