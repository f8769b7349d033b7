//! Where in the loop plugins have their say, and how what they change is written down.

use std::sync::Arc;

use brigade_llm::{ModelReply, ModelRequest, ToolCall, ToolResult};
use brigade_model::call::{CallCompletion, JournalEntry};
use brigade_model::ids::{CallIndex, RunNo};
use brigade_model::json::Json;
use brigade_model::limits::Usage;
use brigade_model::outcome::Failure;
use brigade_model::refusal::{Refusal, RefusalKind};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, LoopError};
use crate::host::{Host, JournalRecord};
use crate::plugin::{HookContext, HookDecision, Plugin, run_hook};
use crate::state::{SharedState, StateChanges, StateView};
use crate::transcript::{Transcript, label};

/// How often plugins are asked again because somebody else changed what the session shares.
pub(crate) const HOOK_TRIES: u32 = 5;

/// What plugins are called for.
#[derive(Debug)]
pub(crate) enum HookPoint<'a> {
    RunStart,
    BeforeModel(&'a mut ModelRequest),
    AfterModel(&'a ModelReply),
    BeforeTool(&'a ToolCall),
    AfterTool(&'a ToolCall, &'a mut ToolResult),
    StepEnd,
    RunEnd(&'a Json),
}

/// What goes along with what plugins change, under the index that it is given.
type CommitWith<'a> = &'a (dyn Fn(CallIndex) -> Option<JournalRecord> + Sync);

/// What came of asking plugins.
pub(crate) struct HooksResult {
    pub(crate) decision: HookDecision,
    /// What goes along is written down already.
    pub(crate) is_written: bool,
}

/// What became of what plugins changed.
enum Persisted {
    /// It is owed, and what goes along is not written down.
    Buffered,
    /// It is written down, with what goes along.
    Committed,
    /// Somebody else was faster: nothing was changed.
    Conflict,
}

/// Written down when plugins have begun a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunStartRecord {
    pub(crate) run: RunNo,
    pub(crate) plugins: Vec<String>,
    #[serde(default, skip_serializing_if = "StateChanges::is_empty")]
    pub(crate) state: StateChanges,
}

/// Written down when plugins let a call pass and changed something of the state: the call may wait for
/// long after that, and they are not asked about it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BeforeToolRecord {
    /// The index of its result.
    pub(crate) call: u32,
    #[serde(default, skip_serializing_if = "StateChanges::is_empty")]
    pub(crate) state: StateChanges,
}

/// Takes in the state that was written down: in the order in which it was, which is not that of the
/// conversation. Of two calls of a message the first may have come to its end last.
pub(crate) fn restore_state(
    board: &SharedState,
    mut journal: Vec<JournalEntry>,
) -> Result<(), Refusal> {
    journal.sort_by_key(|entry| entry.order);
    board.begin_run();
    for entry in journal {
        let CallCompletion::Value(value) = &*entry.completion else { continue };
        match &*entry.label {
            label::RUN => board.begin_run(),
            label::PLUGINS_STARTED => board.apply_changes(&value.decode::<RunStartRecord>()?.state),
            label::BEFORE_TOOL => board.apply_changes(&value.decode::<BeforeToolRecord>()?.state),
            label::STATE | label::STEP_END => board.apply_changes(&value.decode()?),
            label::RESULT_AND_STATE => {
                board.apply_changes(&value.decode::<(IgnoredAny, StateChanges)>()?.1)
            }
            _ => {}
        }
    }
    Ok(())
}

impl HookPoint<'_> {
    fn description(&self) -> &'static str {
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

    async fn call_plugin(
        &mut self,
        plugin: &dyn Plugin,
        at: &HookContext<'_>,
    ) -> Result<HookDecision, Failure> {
        let words = self.description();
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
            told.map(|()| HookDecision::Pass)
        };
        run_hook(plugin, words, asked).await
    }
}

impl Agent {
    /// Asks plugins one after the other, until one refuses.
    pub(crate) async fn call_plugins(
        &self,
        mut when: HookPoint<'_>,
        at: &HookContext<'_>,
        is_asked: impl Fn(&str) -> bool,
    ) -> Result<HookDecision, Failure> {
        for plugin in self.plugins.iter().filter(|plugin| is_asked(plugin.name())) {
            if let HookDecision::Refuse(why) = when.call_plugin(&**plugin, at).await? {
                return Ok(HookDecision::Refuse(format!("{} ({})", why, plugin.name())));
            }
        }
        Ok(HookDecision::Pass)
    }

    /// Tells the plugins that a run begins, those that do not know it yet.
    pub(crate) async fn run_start_hooks(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<(), LoopError> {
        let mut names = self.plugins.iter().map(|plugin| plugin.name());
        if names.all(|name| transcript.is_plugin_started(name)) {
            return Ok(());
        }
        self.run_hooks(host, transcript, HookPoint::RunStart).await.map(|_| ())
    }

    /// Asks plugins between calls. What they change is written down with what is said next; what
    /// the session shares at once, for somebody else may change it too.
    pub(crate) async fn run_hooks(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        when: HookPoint<'_>,
    ) -> Result<HookDecision, LoopError> {
        let consulted = self.run_hooks_with(host, transcript, (when, &|_| None)).await?;
        Ok(consulted.decision)
    }

    /// The same, with what goes along when something is to be written down at once.
    pub(crate) async fn run_hooks_with(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        (mut when, along): (HookPoint<'_>, CommitWith<'_>),
    ) -> Result<HooksResult, LoopError> {
        if self.plugins.is_empty() {
            return Ok(HooksResult { decision: HookDecision::Pass, is_written: false });
        }
        for _ in 0..HOOK_TRIES {
            let state = transcript.state.view();
            let (run, step) = (transcript.run, transcript.tally.steps);
            let at = HookContext { agent: &self.name, run, step, state: &state };
            let is_asked = |name: &str| {
                !matches!(when, HookPoint::RunStart) || !transcript.is_plugin_started(name)
            };
            let asked: Vec<&str> = self
                .plugins
                .iter()
                .map(|plugin| plugin.name())
                .filter(|name| is_asked(name))
                .collect();
            let (gate, changed) = match &mut when {
                HookPoint::BeforeModel(request) => {
                    let mut changed = request.clone();
                    let when = HookPoint::BeforeModel(&mut changed);
                    (self.call_plugins(when, &at, |_| true).await?, Some(changed))
                }
                when => (
                    self.call_plugins(when.reborrow(), &at, |name| asked.contains(&name)).await?,
                    None,
                ),
            };
            let asked = asked.into_iter().map(str::to_owned).collect();
            let is_written = match self
                .persist_hook_state(host, transcript, (&when, asked, &state), along)
                .await?
            {
                Persisted::Conflict => continue,
                Persisted::Committed => true,
                Persisted::Buffered => false,
            };
            if let (HookPoint::BeforeModel(request), Some(changed)) = (when, changed) {
                *request = changed;
            }
            return Ok(HooksResult { decision: gate, is_written });
        }
        Err(repeated_conflict_error())
    }

    /// Asks plugins before a model call, for which something is set aside: if they are the end of the
    /// run, nothing was spent of it.
    pub(crate) async fn run_before_model_hooks(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        request: &mut ModelRequest,
    ) -> Result<(), LoopError> {
        let paid = request.max_output;
        let consulted = self.run_hooks(host, transcript, HookPoint::BeforeModel(request)).await;
        if matches!(consulted, Err(LoopError::Failure(_))) {
            host.charge(Usage::NONE).await?;
        }
        request.max_output = request.max_output.min(paid);
        consulted.map(|_| ())
    }

    /// Tells plugins of a reply, which is to be written down like this. It is in one commit with what
    /// they change of the session's state, or else it is owed. If they are the end of the run, what it
    /// cost is said all the same.
    pub(crate) async fn run_after_model_hooks(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        (reply, spent): (&ModelReply, Usage),
        (label, written): (&'static str, Json),
    ) -> Result<CallIndex, LoopError> {
        let answer = Arc::new(CallCompletion::Value(written));
        let record = |index| JournalRecord {
            spent: Some(spent),
            ..JournalRecord::new(index, label, answer.clone())
        };
        let along = |index| Some(record(index));
        let when = (HookPoint::AfterModel(reply), &along as CommitWith<'_>);
        let consulted = self.run_hooks_with(host, transcript, when).await;
        if matches!(consulted, Err(LoopError::Failure(_))) {
            host.charge(spent).await?;
        }
        let index = transcript.next_index();
        if !consulted?.is_written {
            transcript.unflushed.push(record(index));
        }
        Ok(index)
    }

    /// Writes down what plugins changed.
    async fn persist_hook_state(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        (when, asked, state): (&HookPoint<'_>, Vec<String>, &StateView),
        along: CommitWith<'_>,
    ) -> Result<Persisted, LoopError> {
        let taken = transcript.state.take_changes(state);
        let taken = taken.map_err(|error| Failure::Error(error.to_string().into()))?;
        let changes = taken.changes.clone();
        let (label, answer) = match when {
            HookPoint::RunStart => {
                let bound = RunStartRecord { run: transcript.run, plugins: asked, state: changes };
                (label::PLUGINS_STARTED, Json::of(&bound)?)
            }
            HookPoint::StepEnd => (label::STEP_END, Json::of(&changes)?),
            _ if taken.is_empty() => return Ok(Persisted::Buffered),
            _ => (label::STATE, Json::of(&changes)?),
        };
        let (index, answer) = (transcript.next_index(), Arc::new(CallCompletion::Value(answer)));
        let shared = taken.shared.clone();
        let is_shared = !shared.is_empty();
        let record = JournalRecord { shared, ..JournalRecord::new(index, label, answer.clone()) };
        let mut kept = Persisted::Buffered;
        if is_shared {
            let mut records = transcript.unflushed.clone();
            records.push(record);
            let along = along(CallIndex(index.0 + 1));
            if along.is_some() {
                kept = Persisted::Committed;
            }
            records.extend(along);
            match host.record(records).await {
                Err(refusal) if taken.is_refused_by(&refusal) => {
                    transcript.state.roll_back(taken);
                    return check_conflict(&refusal).map(|()| Persisted::Conflict);
                }
                told => told?,
            }
            transcript.unflushed.clear();
        } else {
            transcript.unflushed.push(record);
        }
        transcript.apply_plugin_entry(index, label, &answer)?;
        Ok(kept)
    }
}

/// What a session shares could not be written down: somebody else was faster, or it is too much.
pub(crate) fn check_conflict(refusal: &Refusal) -> Result<(), LoopError> {
    match refusal.kind {
        RefusalKind::Conflict => Ok(()),
        _ => {
            Err(Failure::Error(format!("what its plugins keep: {}", refusal.message).into()).into())
        }
    }
}

pub(crate) fn repeated_conflict_error() -> LoopError {
    let failure = "the plugins' state is changed by others again and again";
    Failure::Error(failure.into()).into()
}

impl<'a> HookPoint<'a> {
    /// The same, to be asked once more.
    fn reborrow<'b>(&'b mut self) -> HookPoint<'b>
    where
        'a: 'b,
    {
        match self {
            Self::RunStart => HookPoint::RunStart,
            Self::BeforeModel(request) => HookPoint::BeforeModel(request),
            Self::AfterModel(reply) => HookPoint::AfterModel(reply),
            Self::BeforeTool(call) => HookPoint::BeforeTool(call),
            Self::AfterTool(call, result) => HookPoint::AfterTool(call, result),
            Self::StepEnd => HookPoint::StepEnd,
            Self::RunEnd(result) => HookPoint::RunEnd(result),
        }
    }
}
