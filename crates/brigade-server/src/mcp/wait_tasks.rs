//! Waits for tasks and takes their results.

use brigade_model::call::WaitMode;
use brigade_model::refusal::Refusal;
use rmcp::model::ToolAnnotations;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::run_process::ended_answer;
use super::tool::{Answer, Call, Tool};
use super::{agents, input, text};
use crate::info::TaskInfo;
use crate::requests::Waited;

/// The results of so many are shown with their output.
const WITH_OUTPUT: usize = 5;
const WAITED_FOR_MAX: usize = 1_000;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitTasks {
    /// Addresses or names. Default: everything that this conversation started and took no result of.
    #[serde(default)]
    tasks: Option<Vec<String>>,
    /// Return when any has ended (default) or when all have.
    #[serde(default)]
    mode: Option<Mode>,
    /// How long to wait; then the current states are returned and nothing is taken. Default: 50.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    timeout_secs: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Any,
    All,
}

impl Tool for WaitTasks {
    const NAME: &'static str = "wait_tasks";
    const TITLE: &'static str = "Wait for tasks";
    const DESCRIPTION: &'static str = "Wait until tasks end and get their results: state, exit code, \
        last output, what a sub-agent has to say. A sub-agent's question, and a call that the user has to approve, end the wait too. Each result \
        is handed out once; naming a task again returns it again, marked so. A timeout is no failure: \
        it returns the current states, and you can wait again. Not for looking at a task that runs: \
        read_output does that.";

    fn annotations() -> ToolAnnotations {
        // A result that is taken leaves the list, and that is all it changes.
        ToolAnnotations::new()
            .read_only(false)
            .destructive(false)
            .idempotent(true)
            .open_world(false)
    }

    async fn run(self, call: &Call) -> Result<Answer, Refusal> {
        let patience = input::patience(self.timeout_secs)?;
        let tasks = self.tasks.unwrap_or_default();
        if tasks.len() > WAITED_FOR_MAX {
            return Err(Refusal::invalid(format!(
                "the argument `tasks` names {}; {WAITED_FOR_MAX} is the most",
                tasks.len()
            )));
        }
        let mode = match self.mode.unwrap_or(Mode::Any) {
            Mode::Any => WaitMode::Any,
            Mode::All => WaitMode::All,
        };
        let mut waited = call.wait(&tasks, mode, patience).await?;
        if tasks.is_empty() && waited.ended.is_empty() {
            let left = left(call).await?;
            let own: Vec<&TaskInfo> = left.iter().filter(|info| call.is_own(info)).collect();
            let asks = own.iter().any(|info| !info.questions.is_empty());
            if waited.timed_out || asks || !waited.pending.is_empty() || own.is_empty() {
                waited.going_on = left;
            }
        }
        let asks = |info: &&TaskInfo| !tasks.is_empty() || call.is_own(info);
        let asks = waited.going_on.iter().filter(asks).any(|info| !info.questions.is_empty());
        tell(call, &waited, asks).await
    }
}

/// What goes on, and what of other conversations can be had by name.
async fn left(call: &Call) -> Result<Vec<TaskInfo>, Refusal> {
    let mut tasks = call.list(false).await?;
    tasks.retain(|info| info.living || text::is_of_another(info));
    Ok(tasks)
}

async fn tell(call: &Call, waited: &Waited, asks: bool) -> Result<Answer, Refusal> {
    let (mut texts, notes) = agents::notes(&call.notes(true).await);
    let mut ended: Vec<Value> = Vec::new();
    for (at, info) in waited.ended.iter().enumerate() {
        if at < WITH_OUTPUT
            && let Ok(Answer::Said { text, structured }) = ended_answer(call, info).await
        {
            texts.push(text);
            ended.push(structured);
        } else {
            texts.push(text::listed(call, info));
            ended.push(text::structured(call, info));
        }
    }
    let approvals = agents::approvals(call, &waited.pending);
    if waited.timed_out {
        texts.push("the time is up; nothing was taken".to_owned());
    } else if asks {
        texts.push("there is a question to answer, see below".to_owned());
    } else if !waited.pending.is_empty() {
        texts.push("there is something for the user to approve, see below".to_owned());
    } else if waited.ended.is_empty() {
        texts
            .push("there is nothing to wait for: no task of this conversation is alive".to_owned());
    }
    if !waited.going_on.is_empty() {
        let ended = waited.going_on.iter().any(|info| !info.living);
        let heading = if ended { "there are also:" } else { "still going on:" };
        texts.push(heading.to_owned());
        texts.extend(waited.going_on.iter().map(|info| text::listed(call, info)));
    }
    texts.extend(approvals);
    let going_on: Vec<Value> =
        waited.going_on.iter().map(|info| text::structured(call, info)).collect();
    let mut structured =
        json!({ "ended": ended, "going_on": going_on, "timed_out": waited.timed_out });
    agents::add_approvals(&mut structured, call, &waited.pending);
    if notes != json!([]) {
        structured["notes"] = notes;
    }
    Ok(Answer::Said { text: texts.join("\n"), structured })
}
