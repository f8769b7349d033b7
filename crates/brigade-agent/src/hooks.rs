//! Where in the loop plugins have their say, and how what they change is written down.

use std::sync::Arc;

use brigade_llm::{Reply, Request, ToolCall, ToolResult};
use brigade_model::call::Answer;
use brigade_model::ids::RunNo;
use brigade_model::json::Json;
use brigade_model::limits::Usage;
use brigade_model::outcome::Failure;
use brigade_model::refusal::RefusalKind;
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, Ended};
use crate::host::{Host, Record};
use crate::plugin::{Gate, Moment, Plugin, hook};
use crate::state::{Changes, State};
use crate::transcript::{Transcript, label};

/// How often plugins are asked again because somebody else changed what the session shares.
const TRIES: u32 = 5;

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

/// Written down when plugins have begun a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub(crate) run: RunNo,
    pub(crate) plugins: Vec<String>,
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub(crate) state: Changes,
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
        let told = match self {
            Self::RunStart => hook(plugin, words, plugin.run_start(at)).await,
            Self::BeforeModel(request) => {
                hook(plugin, words, plugin.before_model(at, request)).await
            }
            Self::AfterModel(reply) => hook(plugin, words, plugin.after_model(at, reply)).await,
            Self::AfterTool(call, result) => {
                hook(plugin, words, plugin.after_tool(at, call, result)).await
            }
            Self::StepEnd => hook(plugin, words, plugin.step_end(at)).await,
            Self::BeforeTool(call) => {
                return hook(plugin, words, plugin.before_tool(at, call)).await;
            }
            Self::RunEnd(result) => return hook(plugin, words, plugin.run_end(at, result)).await,
        };
        told.map(|()| Gate::Pass)
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
        mut when: When<'_>,
    ) -> Result<Gate, Ended> {
        if self.plugins.is_empty() {
            return Ok(Gate::Pass);
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
            if self.keep(host, transcript, (&when, asked, &state)).await? {
                if let (When::BeforeModel(request), Some(changed)) = (when, changed) {
                    *request = changed;
                }
                return Ok(gate);
            }
        }
        let failure = "the plugins' state of the session is changed by others again and again";
        Err(Failure::Error(failure.into()).into())
    }

    /// Asks plugins while something is set aside for a model call: if that is the end, what it cost is
    /// said all the same.
    pub(crate) async fn consult_paying(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        (when, spent): (When<'_>, Usage),
    ) -> Result<Gate, Ended> {
        let asked = self.consult(host, transcript, when).await;
        if matches!(asked, Err(Ended::Failure(_))) {
            host.charge(spent).await?;
        }
        asked
    }

    /// Writes down what plugins changed. False when somebody else was faster: then nothing was.
    async fn keep(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        (when, asked, state): (&When<'_>, Vec<String>, &State),
    ) -> Result<bool, Ended> {
        let taken = transcript.board.take(state);
        let taken = taken.map_err(|error| Failure::Error(error.to_string().into()))?;
        let changes = taken.changes.clone();
        let (label, answer) = match when {
            When::RunStart => {
                let bound = Bound { run: transcript.run, plugins: asked, state: changes };
                (label::BOUND, Json::of(&bound)?)
            }
            When::StepEnd => (label::STEP, Json::of(&changes)?),
            _ if taken.is_empty() => return Ok(true),
            _ => (label::STATE, Json::of(&changes)?),
        };
        let (index, answer) = (transcript.next_index(), Arc::new(Answer::Value(answer)));
        let shared = taken.shared.clone();
        let is_shared = !shared.is_empty();
        let record = Record { shared, ..Record::new(index, label, answer.clone()) };
        if is_shared {
            self.write_owed(host, transcript).await?;
            match host.record(vec![record]).await {
                Err(refusal) if refusal.kind == RefusalKind::Conflict => {
                    transcript.board.give_back(taken);
                    return Ok(false);
                }
                told => told?,
            }
        } else {
            transcript.owed.push(record);
        }
        transcript.marked(index, label, &answer)?;
        Ok(true)
    }
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
