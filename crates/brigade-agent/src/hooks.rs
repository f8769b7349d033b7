//! Where in the loop plugins have their say, and how what they change is written down.

use std::sync::Arc;

use brigade_llm::{Reply, Request, ToolCall, ToolResult};
use brigade_model::call::{Answer, Entry};
use brigade_model::ids::{CallIndex, RunNo};
use brigade_model::json::Json;
use brigade_model::limits::Usage;
use brigade_model::outcome::Failure;
use brigade_model::refusal::{Refusal, RefusalKind};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, Ended};
use crate::host::{Host, Record};
use crate::plugin::{Gate, Moment, Plugin, hook};
use crate::state::{Board, Changes, State};
use crate::transcript::{Transcript, label};

/// How often plugins are asked again because somebody else changed what the session shares.
pub(crate) const TRIES: u32 = 5;

/// What plugins are called for.
#[derive(Debug)]
pub(crate) enum When<'a> {
    RunStart,
    BeforeModel(&'a mut Request),
    AfterModel(&'a Reply),
    BeforeTool(&'a ToolCall),
    AfterTool(&'a ToolCall, &'a mut ToolResult),
    StepEnd,
    RunEnd(&'a Json),
}

/// What goes along with what plugins change, under the index that it is given.
type Along<'a> = &'a (dyn Fn(CallIndex) -> Option<Record> + Sync);

/// What came of asking plugins.
pub(crate) struct Consulted {
    pub(crate) gate: Gate,
    /// What goes along is written down already.
    pub(crate) is_written: bool,
}

/// What became of what plugins changed.
enum Kept {
    /// It is owed, and what goes along is not written down.
    Later,
    /// It is written down, with what goes along.
    Now,
    /// Somebody else was faster: nothing was changed.
    Not,
}

/// Written down when plugins have begun a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub(crate) run: RunNo,
    pub(crate) plugins: Vec<String>,
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub(crate) state: Changes,
}

/// Written down when plugins let a call pass and changed something of the state: the call may wait for
/// long after that, and they are not asked about it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Before {
    /// The index of its result.
    pub(crate) call: u32,
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub(crate) state: Changes,
}

/// Takes in the state that was written down: in the order in which it was, which is not that of the
/// conversation. Of two calls of a message the first may have come to its end last.
pub(crate) fn restore(board: &Board, mut journal: Vec<Entry>) -> Result<(), Refusal> {
    journal.sort_by_key(|entry| entry.order);
    board.begin_run();
    for entry in journal {
        let Answer::Value(value) = &*entry.answer else { continue };
        match &*entry.label {
            label::RUN => board.begin_run(),
            label::BOUND => board.enter(&value.decode::<Bound>()?.state),
            label::BEFORE => board.enter(&value.decode::<Before>()?.state),
            label::STATE | label::STEP => board.enter(&value.decode()?),
            label::CHANGED => board.enter(&value.decode::<(IgnoredAny, Changes)>()?.1),
            _ => {}
        }
    }
    Ok(())
}

impl When<'_> {
    fn words(&self) -> &'static str {
        match self {
            Self::RunStart => "at the start of the run",
            Self::BeforeModel(_) => "before the model was asked",
            Self::AfterModel(_) => "after the model's reply",
            Self::BeforeTool(_) => "before a call",
            Self::AfterTool(..) => "after a call",
            Self::StepEnd => "at the end of a step",
            Self::RunEnd(_) => "at the end of the run",
        }
    }

    async fn ask(&mut self, plugin: &dyn Plugin, at: &Moment<'_>) -> Result<Gate, Failure> {
        let words = self.words();
        // A hook may panic before it has returned its future.
        let asked = async {
            let told = match self {
                Self::RunStart => plugin.run_start(at).await,
                Self::BeforeModel(request) => plugin.before_model(at, request).await,
                Self::AfterModel(reply) => plugin.after_model(at, reply).await,
                Self::AfterTool(call, result) => plugin.after_tool(at, call, result).await,
                Self::StepEnd => plugin.step_end(at).await,
                Self::BeforeTool(call) => return plugin.before_tool(at, call).await,
                Self::RunEnd(result) => return plugin.run_end(at, result).await,
            };
            told.map(|()| Gate::Pass)
        };
        hook(plugin, words, asked).await
    }
}

impl Agent {
    /// Asks plugins one after the other, until one refuses.
    pub(crate) async fn ask_plugins(
        &self,
        mut when: When<'_>,
        at: &Moment<'_>,
        is_asked: impl Fn(&str) -> bool,
    ) -> Result<Gate, Failure> {
        for plugin in self.plugins.iter().filter(|plugin| is_asked(plugin.name())) {
            if let Gate::Refuse(why) = when.ask(&**plugin, at).await? {
                return Ok(Gate::Refuse(format!("{} ({})", why, plugin.name())));
            }
        }
        Ok(Gate::Pass)
    }

    /// Tells the plugins that a run begins, those that do not know it yet.
    pub(crate) async fn bind(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<(), Ended> {
        let mut names = self.plugins.iter().map(|plugin| plugin.name());
        if names.all(|name| transcript.is_bound(name)) {
            return Ok(());
        }
        self.consult(host, transcript, When::RunStart).await.map(|_| ())
    }

    /// Asks plugins between calls. What they change is written down with what is said next; what
    /// the session shares at once, for somebody else may change it too.
    pub(crate) async fn consult(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        when: When<'_>,
    ) -> Result<Gate, Ended> {
        let consulted = self.consult_along(host, transcript, (when, &|_| None)).await?;
        Ok(consulted.gate)
    }

    /// The same, with what goes along when something is to be written down at once.
    pub(crate) async fn consult_along(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        (mut when, along): (When<'_>, Along<'_>),
    ) -> Result<Consulted, Ended> {
        if self.plugins.is_empty() {
            return Ok(Consulted { gate: Gate::Pass, is_written: false });
        }
        for _ in 0..TRIES {
            let state = transcript.board.state();
            let (run, step) = (transcript.run, transcript.tally.steps);
            let at = Moment { agent: &self.name, run, step, state: &state };
            let is_asked =
                |name: &str| !matches!(when, When::RunStart) || !transcript.is_bound(name);
            let asked: Vec<&str> = self
                .plugins
                .iter()
                .map(|plugin| plugin.name())
                .filter(|name| is_asked(name))
                .collect();
            let (gate, changed) = match &mut when {
                When::BeforeModel(request) => {
                    let mut changed = request.clone();
                    let when = When::BeforeModel(&mut changed);
                    (self.ask_plugins(when, &at, |_| true).await?, Some(changed))
                }
                when => {
                    (self.ask_plugins(when.again(), &at, |name| asked.contains(&name)).await?, None)
                }
            };
            let asked = asked.into_iter().map(str::to_owned).collect();
            let is_written =
                match self.keep(host, transcript, (&when, asked, &state), along).await? {
                    Kept::Not => continue,
                    Kept::Now => true,
                    Kept::Later => false,
                };
            if let (When::BeforeModel(request), Some(changed)) = (when, changed) {
                *request = changed;
            }
            return Ok(Consulted { gate, is_written });
        }
        Err(again_and_again())
    }

    /// Asks plugins before a model call, for which something is set aside: if they are the end of the
    /// run, nothing was spent of it.
    pub(crate) async fn consult_before(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        request: &mut Request,
    ) -> Result<(), Ended> {
        let paid = request.max_output;
        let consulted = self.consult(host, transcript, When::BeforeModel(request)).await;
        if matches!(consulted, Err(Ended::Failure(_))) {
            host.charge(Usage::NONE).await?;
        }
        request.max_output = request.max_output.min(paid);
        consulted.map(|_| ())
    }

    /// Tells plugins of a reply, which is to be written down like this. It is in one commit with what
    /// they change of the session's state, or else it is owed. If they are the end of the run, what it
    /// cost is said all the same.
    pub(crate) async fn consult_after(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        (reply, spent): (&Reply, Usage),
        (label, written): (&'static str, Json),
    ) -> Result<CallIndex, Ended> {
        let answer = Arc::new(Answer::Value(written));
        let record =
            |index| Record { spent: Some(spent), ..Record::new(index, label, answer.clone()) };
        let along = |index| Some(record(index));
        let when = (When::AfterModel(reply), &along as Along<'_>);
        let consulted = self.consult_along(host, transcript, when).await;
        if matches!(consulted, Err(Ended::Failure(_))) {
            host.charge(spent).await?;
        }
        let index = transcript.next_index();
        if !consulted?.is_written {
            transcript.owed.push(record(index));
        }
        Ok(index)
    }

    /// Writes down what plugins changed.
    async fn keep(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        (when, asked, state): (&When<'_>, Vec<String>, &State),
        along: Along<'_>,
    ) -> Result<Kept, Ended> {
        let taken = transcript.board.take(state);
        let taken = taken.map_err(|error| Failure::Error(error.to_string().into()))?;
        let changes = taken.changes.clone();
        let (label, answer) = match when {
            When::RunStart => {
                let bound = Bound { run: transcript.run, plugins: asked, state: changes };
                (label::BOUND, Json::of(&bound)?)
            }
            When::StepEnd => (label::STEP, Json::of(&changes)?),
            _ if taken.is_empty() => return Ok(Kept::Later),
            _ => (label::STATE, Json::of(&changes)?),
        };
        let (index, answer) = (transcript.next_index(), Arc::new(Answer::Value(answer)));
        let shared = taken.shared.clone();
        let is_shared = !shared.is_empty();
        let record = Record { shared, ..Record::new(index, label, answer.clone()) };
        let mut kept = Kept::Later;
        if is_shared {
            let mut records = transcript.owed.clone();
            records.push(record);
            let along = along(CallIndex(index.0 + 1));
            if along.is_some() {
                kept = Kept::Now;
            }
            records.extend(along);
            match host.record(records).await {
                Err(refusal) if taken.is_refused_by(&refusal) => {
                    transcript.board.give_back(taken);
                    return clash(&refusal).map(|()| Kept::Not);
                }
                told => told?,
            }
            transcript.owed.clear();
        } else {
            transcript.owed.push(record);
        }
        transcript.marked(index, label, &answer)?;
        Ok(kept)
    }
}

/// What a session shares could not be written down: somebody else was faster, or it is too much.
pub(crate) fn clash(refusal: &Refusal) -> Result<(), Ended> {
    match refusal.kind {
        RefusalKind::Conflict => Ok(()),
        _ => {
            Err(Failure::Error(format!("what its plugins keep: {}", refusal.message).into()).into())
        }
    }
}

pub(crate) fn again_and_again() -> Ended {
    let failure = "the plugins' state is changed by others again and again";
    Failure::Error(failure.into()).into()
}

impl<'a> When<'a> {
    /// The same, to be asked once more.
    fn again<'b>(&'b mut self) -> When<'b>
    where
        'a: 'b,
    {
        match self {
            Self::RunStart => When::RunStart,
            Self::BeforeModel(request) => When::BeforeModel(request),
            Self::AfterModel(reply) => When::AfterModel(reply),
            Self::BeforeTool(call) => When::BeforeTool(call),
            Self::AfterTool(call, result) => When::AfterTool(call, result),
            Self::StepEnd => When::StepEnd,
            Self::RunEnd(result) => When::RunEnd(result),
        }
    }
}
