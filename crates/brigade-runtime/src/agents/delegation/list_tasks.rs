//! The tasks that the agent started.

use std::sync::Arc;

use brigade_agent::{Call, Effect, Hints, Outcome, Progress, ToolError};
use brigade_model::ids::{TaskNo, Time};
use brigade_model::task::TaskRow;
use brigade_store::TaskQuery;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Delegate, Delegation};

/// The newest so many are shown.
const SHOWN: usize = 100;

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListTasks {
    /// Only tasks in this state. Default: all of them.
    #[serde(default)]
    state: Option<Wanted>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wanted {
    Living,
    Ended,
    Queued,
    Running,
    Waiting,
    Stopping,
    Closing,
    Succeeded,
    Failed,
    Cancelled,
}

impl Delegation for ListTasks {
    const NAME: &'static str = "list_tasks";
    const DESCRIPTION: &'static str = "List the tasks that you started: address, name, state, age, what \
        each is at or how it ended. Use it to find an address that you no longer know. Takes no result. \
        Not for waiting: wait_tasks does that without polling.";
    const HINTS: Hints = Hints::of(Effect::Pure);

    async fn run(self, delegate: &Delegate, _call: &Call) -> Result<Outcome, ToolError> {
        let session = delegate.link.session().await?;
        let query = TaskQuery::default();
        let mut tasks = delegate.link.insist(|| session.history(&query)).await?;
        tasks.retain(|(_, row)| self.state.is_none_or(|wanted| wanted.fits(row)));
        let left_out = tasks.len().saturating_sub(SHOWN);
        let now = delegate.agents.now();
        let lines = tasks.drain(left_out..).map(|(no, row)| line(no, &Arc::new(row), now));
        let mut lines: Vec<String> = lines.collect();
        if left_out > 0 {
            lines.insert(0, format!("[{left_out} older ones are left out: ask for one state]"));
        }
        if lines.is_empty() {
            return Ok(Outcome::text("no such tasks"));
        }
        Ok(Outcome::text(lines.join("\n")))
    }
}

impl Wanted {
    fn fits(self, row: &TaskRow) -> bool {
        match self {
            Self::Living => row.is_living(),
            Self::Ended => !row.is_living(),
            state => row.state.word().eq_ignore_ascii_case(&format!("{state:?}")),
        }
    }
}

/// One task in one line.
pub(super) fn line(no: TaskNo, row: &TaskRow, now: Time) -> String {
    let mut line = row.address(no);
    if let Some(name) = &row.name {
        line.push_str(&format!(" {:?}", name.as_str()));
    }
    let state = match row.ended() {
        Some(ended) => clipped(&ended.outcome.to_string()),
        None => row.state.word().to_owned(),
    };
    line.push_str(&format!(" {state}"));
    match row.ended() {
        Some(ended) => line.push_str(&format!(", ended {} ago", span(now.since(ended.at).0))),
        None => line.push_str(&format!(", {} old", span(now.since(row.spawned).0))),
    }
    let progress = row.extra.as_ref().and_then(|extra| extra.progress.as_ref());
    if let Some(progress) = progress.filter(|_| row.is_living()) {
        match progress.decode::<Progress>() {
            Ok(at) if at.step > 0 => {
                line.push_str(&format!(", step {}, {}", at.step, at.doing));
            }
            _ => line.push_str(&format!(", {}", clipped(progress.as_str()))),
        }
    }
    let what = row.spec.work.what();
    line.push_str(&format!(": {}", clipped(&what)));
    line
}

fn clipped(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.len() == text.len() && text.len() <= 80 {
        return text.to_owned();
    }
    format!("{}..", &line[..line.floor_char_boundary(80)])
}

fn span(millis: u64) -> String {
    match millis / 1_000 {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7_199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}
