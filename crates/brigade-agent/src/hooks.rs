//! The hook points of the loop: calls plugins, and records the state that they change.

use std::sync::Arc;

use brigade_llm::{ModelReply, ModelRequest, ToolCall, ToolResult};
use brigade_model::call::{CallCompletion, JournalEntry};
use brigade_model::ids::{CallIndex, RunNo};
use brigade_model::json::Json;
use brigade_model::limits::Usage;
use brigade_model::outcome::Failure;
use brigade_model::refusal::{Refusal, RefusalKind};
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, LoopError, NewEntry};
use crate::host::{Host, JournalRecord};
use crate::model_call::ChargedReply;
use crate::plugin::{HookContext, HookDecision, Plugin, run_hook};
use crate::shared_state::{SharedState, StateChanges, StateView};
use crate::step_calls::ResultEntry;
use crate::transcript::Transcript;
use brigade_model::entry_label::EntryLabel;

/// The number of tries of a hook whose changes to the session's state conflict with another writer's.
pub(crate) const HOOK_TRIES: u32 = 5;

/// The point of the loop at which plugins are called.
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

/// A builder of a further record, with the given index, for the commit of state changes.
type CommitWith<'a> = &'a (dyn Fn(CallIndex) -> Option<JournalRecord> + Sync);

/// One run of all hooks of a point.
pub(crate) struct HookRun<'a> {
    point: HookPoint<'a>,
    commit_with: CommitWith<'a>,
}

/// The state changes of one hook run.
struct HookChanges<'a> {
    point: &'a HookPoint<'a>,
    /// The names of the plugins that were called.
    plugins: Vec<String>,
    state: &'a StateView,
}

pub(crate) struct HooksResult {
    pub(crate) decision: HookDecision,
    /// The further record is committed already.
    pub(crate) is_written: bool,
}

/// The result of storing the state changes of plugins.
enum Persisted {
    /// The changes are buffered, and the further record is not.
    Buffered,
    /// The changes are committed together with the further record.
    Committed,
    /// Another writer was first, and nothing was changed.
    Conflict,
}

/// The journal entry of the `run_start` hooks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RunStartRecord {
    pub(crate) run: RunNo,
    pub(crate) plugins: Vec<String>,
    #[serde(default, skip_serializing_if = "StateChanges::is_empty")]
    pub(crate) state: StateChanges,
}

/// The journal entry of plugins that admitted a call and changed state. They are not asked about the
/// call again, however long it parks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BeforeToolRecord {
    /// The index of the call's result.
    pub(crate) call: u32,
    #[serde(default, skip_serializing_if = "StateChanges::is_empty")]
    pub(crate) state: StateChanges,
}

/// Restores the state from the journal, in the order of the commits. This is not the order of the
/// conversation: the first of two calls may have finished last.
pub(crate) fn restore_state(
    state: &SharedState,
    mut journal: Vec<JournalEntry>,
) -> Result<(), Refusal> {
    journal.sort_by_key(|entry| entry.order);
    state.begin_run();
    for entry in journal {
        let CallCompletion::Value(value) = &*entry.completion else { continue };
        match &entry.label {
            EntryLabel::RunStarted => state.begin_run(),
            EntryLabel::PluginsStarted => {
                state.apply_changes(&value.decode::<RunStartRecord>()?.state)
            }
            EntryLabel::BeforeTool => {
                state.apply_changes(&value.decode::<BeforeToolRecord>()?.state)
            }
            EntryLabel::State | EntryLabel::StepEnd => state.apply_changes(&value.decode()?),
            EntryLabel::ToolResultAndState => {
                state.apply_changes(&value.decode::<ResultEntry>()?.state)
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
        context: &HookContext<'_>,
    ) -> Result<HookDecision, Failure> {
        let description = self.description();
        // A hook can panic before it returns its future, so it is called inside this one.
        let hook = async {
            let done = match self {
                Self::RunStart => plugin.run_start(context).await,
                Self::BeforeModel(request) => plugin.before_model(context, request).await,
                Self::AfterModel(reply) => plugin.after_model(context, reply).await,
                Self::AfterTool(call, result) => plugin.after_tool(context, call, result).await,
                Self::StepEnd => plugin.step_end(context).await,
                Self::BeforeTool(call) => return plugin.before_tool(context, call).await,
                Self::RunEnd(result) => return plugin.run_end(context, result).await,
            };
            done.map(|()| HookDecision::Pass)
        };
        run_hook(plugin, description, hook).await
    }
}

impl Agent {
    /// Calls the selected plugins one after the other, until one refuses.
    pub(crate) async fn call_plugins(
        &self,
        mut point: HookPoint<'_>,
        context: &HookContext<'_>,
        is_selected: impl Fn(&str) -> bool,
    ) -> Result<HookDecision, Failure> {
        for plugin in self.plugins.iter().filter(|plugin| is_selected(plugin.name())) {
            if let HookDecision::Refuse(reason) = point.call_plugin(&**plugin, context).await? {
                return Ok(HookDecision::Refuse(format!("{} ({})", reason, plugin.name())));
            }
        }
        Ok(HookDecision::Pass)
    }

    /// Runs the `run_start` hooks of plugins that have not run theirs in this run.
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

    /// Runs the hooks of a point outside tool calls. Changes to the agent's own state are buffered for
    /// the next commit. Changes to the session's state are committed at once, since they may conflict.
    pub(crate) async fn run_hooks(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        point: HookPoint<'_>,
    ) -> Result<HookDecision, LoopError> {
        let run = HookRun { point, commit_with: &|_| None };
        let result = self.run_hooks_with(host, transcript, run).await?;
        Ok(result.decision)
    }

    /// Runs the hooks of a point. A commit of changes to the session's state includes the record of
    /// `commit_with`.
    async fn run_hooks_with(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        run: HookRun<'_>,
    ) -> Result<HooksResult, LoopError> {
        let HookRun { mut point, commit_with } = run;
        if self.plugins.is_empty() {
            return Ok(HooksResult { decision: HookDecision::Pass, is_written: false });
        }
        for _ in 0..HOOK_TRIES {
            let state = transcript.state.view();
            let context = HookContext {
                agent: &self.name,
                run: transcript.run,
                step: transcript.tally.steps,
                state: &state,
            };
            let is_selected = |name: &str| {
                !matches!(point, HookPoint::RunStart) || !transcript.is_plugin_started(name)
            };
            let selected: Vec<&str> = self
                .plugins
                .iter()
                .map(|plugin| plugin.name())
                .filter(|name| is_selected(name))
                .collect();
            let (decision, changed_request) = match &mut point {
                HookPoint::BeforeModel(request) => {
                    let mut changed = request.clone();
                    let point = HookPoint::BeforeModel(&mut changed);
                    (self.call_plugins(point, &context, |_| true).await?, Some(changed))
                }
                point => {
                    let is_selected = |name: &str| selected.contains(&name);
                    (self.call_plugins(point.reborrow(), &context, is_selected).await?, None)
                }
            };
            let plugins = selected.into_iter().map(str::to_owned).collect();
            let changes = HookChanges { point: &point, plugins, state: &state };
            let is_written =
                match self.persist_hook_state(host, transcript, changes, commit_with).await? {
                    Persisted::Conflict => continue,
                    Persisted::Committed => true,
                    Persisted::Buffered => false,
                };
            if let (HookPoint::BeforeModel(request), Some(changed)) = (point, changed_request) {
                *request = changed;
            }
            return Ok(HooksResult { decision, is_written });
        }
        Err(repeated_conflict_error())
    }

    /// Runs the `before_model` hooks. If they fail the run, the reservation for the model call is
    /// released, and nothing is charged.
    pub(crate) async fn run_before_model_hooks(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        request: &mut ModelRequest,
    ) -> Result<(), LoopError> {
        let covered = request.max_output;
        let result = self.run_hooks(host, transcript, HookPoint::BeforeModel(request)).await;
        if matches!(result, Err(LoopError::Failure(_))) {
            host.charge(Usage::NONE).await?;
        }
        request.max_output = request.max_output.min(covered);
        result.map(|_| ())
    }

    /// Runs the `after_model` hooks of a reply, which is recorded as `entry`. The record is committed with
    /// changes to the session's state, or else buffered. If the hooks fail the run, the reply is charged.
    pub(crate) async fn run_after_model_hooks(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        charged: &ChargedReply,
        entry: NewEntry,
    ) -> Result<CallIndex, LoopError> {
        let completion = Arc::new(CallCompletion::Value(entry.value));
        let record = |index| JournalRecord {
            spent: Some(charged.spent),
            ..JournalRecord::new(index, entry.label.clone(), completion.clone())
        };
        let commit_with = |index| Some(record(index));
        let point = HookPoint::AfterModel(&charged.reply);
        let run = HookRun { point, commit_with: &commit_with };
        let result = self.run_hooks_with(host, transcript, run).await;
        if matches!(result, Err(LoopError::Failure(_))) {
            host.charge(charged.spent).await?;
        }
        let index = transcript.next_index();
        if !result?.is_written {
            transcript.unflushed.push(record(index));
        }
        Ok(index)
    }

    /// Records the state changes of plugins: buffers them, or commits them if they concern the session.
    async fn persist_hook_state(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        changes: HookChanges<'_>,
        commit_with: CommitWith<'_>,
    ) -> Result<Persisted, LoopError> {
        let HookChanges { point, plugins, state } = changes;
        let diff = transcript.state.take_changes(state);
        let diff = diff.map_err(|error| Failure::error(error.to_string()))?;
        let state = diff.changes.clone();
        let entry = match point {
            HookPoint::RunStart => {
                let start = RunStartRecord { run: transcript.run, plugins, state };
                NewEntry { label: EntryLabel::PluginsStarted, value: Json::of(&start)? }
            }
            HookPoint::StepEnd => NewEntry { label: EntryLabel::StepEnd, value: Json::of(&state)? },
            _ if diff.is_empty() => return Ok(Persisted::Buffered),
            _ => NewEntry { label: EntryLabel::State, value: Json::of(&state)? },
        };
        let index = transcript.next_index();
        let completion = Arc::new(CallCompletion::Value(entry.value));
        let record = JournalRecord {
            shared: diff.shared.clone(),
            ..JournalRecord::new(index, entry.label.clone(), completion.clone())
        };
        let mut persisted = Persisted::Buffered;
        if diff.shared.is_empty() {
            transcript.unflushed.push(record);
        } else {
            let mut records = transcript.unflushed.clone();
            records.push(record);
            let further = commit_with(CallIndex(index.0 + 1));
            if further.is_some() {
                persisted = Persisted::Committed;
            }
            records.extend(further);
            match host.record(records).await {
                Err(refusal) if diff.is_refused_by(&refusal) => {
                    transcript.state.roll_back(diff);
                    return check_conflict(&refusal).map(|()| Persisted::Conflict);
                }
                recorded => recorded?,
            }
            transcript.unflushed.clear();
        }
        transcript.apply_plugin_entry(index, &entry.label, &completion)?;
        Ok(persisted)
    }
}

/// Accepts a conflict with another writer of the session's state. Any other refusal fails the run.
pub(crate) fn check_conflict(refusal: &Refusal) -> Result<(), LoopError> {
    match refusal.kind {
        RefusalKind::Conflict => Ok(()),
        _ => Err(Failure::error(format!("the state of its plugins: {}", refusal.message)).into()),
    }
}

pub(crate) fn repeated_conflict_error() -> LoopError {
    let failure = "other writers changed the plugins' state again and again";
    Failure::error(failure).into()
}

impl<'a> HookPoint<'a> {
    /// Borrows the same point for another try.
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
