//! Metrics of the runtime, for a recorder of the `metrics` facade that was installed before the
//! runtime was started.
//!
//! Counters count stored events when they are published. Gauges are read from the view on request.

use std::collections::HashMap;
use std::time::Duration;

#[cfg(feature = "agents")]
use brigade_agent::telemetry::{MODEL_RETRIES, TOOL_CALLS};
use brigade_model::event::Event;
use brigade_model::id_map::IdMap;
use brigade_model::ids::{SessionId, TaskNo};
use brigade_model::limits::Usage;
use brigade_model::outcome::Outcome;
use brigade_model::task::TaskState;
use brigade_model::task_tree::TaskTree;
use brigade_model::work::{TaskKind, Work};
use brigade_store::Batch;
use metrics::{
    Counter, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};

use crate::runtime::Runtime;

pub const SPAWNS: &str = "brigade_spawns_total";
pub const RUNS_ENDED: &str = "brigade_runs_ended_total";
pub const TOKENS: &str = "brigade_tokens_total";
pub const COST: &str = "brigade_cost_microdollars_total";
pub const COMMIT_SECONDS: &str = "brigade_commit_seconds";
pub const COMMIT_FAILURES: &str = "brigade_commit_failures_total";
pub const TASKS: &str = "brigade_tasks";
pub const INPUTS_WAITING: &str = "brigade_inputs_waiting";

/// The largest number of models that are counted by name. The others are counted together.
const MODELS_MAX: usize = 100;

/// The states of tasks that have not ended.
const STATES: [&str; 6] = ["queued", "running", "waiting", "away", "stopping", "closing"];

/// Counters, looked up once so that counting is an addition.
pub(crate) struct RuntimeMetrics {
    commit_seconds: Histogram,
    commit_failures: Counter,
    spawns: HashMap<&'static str, Counter>,
    runs_ended: HashMap<(&'static str, &'static str, &'static str), Counter>,
    models: HashMap<Box<str>, ModelCounters>,
}

struct ModelCounters {
    tokens: Counter,
    cost: Counter,
}

impl RuntimeMetrics {
    pub(crate) fn new() -> Self {
        describe_metrics();
        Self {
            commit_seconds: histogram!(COMMIT_SECONDS),
            commit_failures: counter!(COMMIT_FAILURES),
            spawns: HashMap::new(),
            runs_ended: HashMap::new(),
            models: HashMap::new(),
        }
    }

    pub(crate) fn count_commit_failure(&self) {
        self.commit_failures.increment(1);
    }

    /// Counts the events of a stored batch.
    pub(crate) fn count_batch(
        &mut self,
        batch: &Batch,
        trees: &IdMap<SessionId, TaskTree>,
        duration: Duration,
    ) {
        self.commit_seconds.record(duration);
        for record in batch.events() {
            let row = |no: TaskNo| trees.get(&record.session).and_then(|tree| tree.get(no));
            match &record.event {
                Event::Spawned(spawned) => self.count_spawn(&spawned.spec.work),
                Event::Ended { no, outcome, .. } => {
                    let kind = row(*no).map_or("unknown", |row| kind_label(&row.spec.work));
                    self.count_run_end(kind, outcome);
                }
                Event::Charged { no, spent, .. } => {
                    let model = row(*no).and_then(|row| row.spec.work.resolved_model());
                    self.count_spending(model.unwrap_or("unknown"), spent);
                }
                _ => {}
            }
        }
    }

    fn count_spawn(&mut self, work: &Work) {
        let kind = kind_label(work);
        let spawns = self.spawns.entry(kind).or_insert_with(|| counter!(SPAWNS, "kind" => kind));
        spawns.increment(1);
    }

    fn count_run_end(&mut self, kind: &'static str, outcome: &Outcome) {
        let failure = match outcome {
            Outcome::Failed(failed) => failed.failure.label(),
            Outcome::Succeeded { .. } | Outcome::Cancelled(_) => "",
        };
        let outcome = outcome.label();
        let counter = self.runs_ended.entry((kind, outcome, failure)).or_insert_with(
            || counter!(RUNS_ENDED, "kind" => kind, "outcome" => outcome, "failure" => failure),
        );
        counter.increment(1);
    }

    fn count_spending(&mut self, model: &str, spent: &Usage) {
        let named = self.models.contains_key(model) || self.models.len() < MODELS_MAX;
        let name = if named { model } else { "other" };
        if !self.models.contains_key(name) {
            self.models.insert(name.into(), ModelCounters::for_model(name));
        }
        if let Some(counters) = self.models.get(name) {
            counters.tokens.increment(spent.tokens);
            counters.cost.increment(spent.money.0);
        }
    }
}

impl ModelCounters {
    fn for_model(model: &str) -> Self {
        let (provider, model) = provider_and_model(model);
        let labels = [("provider", provider.to_owned()), ("model", model.to_owned())];
        Self { tokens: counter!(TOKENS, &labels), cost: counter!(COST, &labels) }
    }
}

impl std::fmt::Debug for RuntimeMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuntimeMetrics").finish_non_exhaustive()
    }
}

/// Returns the label of a kind. All custom kinds share one, so that the number of labels is
/// bounded.
fn kind_label(work: &Work) -> &'static str {
    match work.kind() {
        TaskKind::Process => "process",
        TaskKind::Agent => "agent",
        TaskKind::Job => "job",
        TaskKind::Custom(_) => "custom",
    }
}

impl Runtime {
    /// Sets the gauges: the number of tasks in each state, and the number of inputs that wait for
    /// the loops. Call this before reading the recorder.
    pub fn record_gauges(&self) {
        let mut counts = [0_u32; STATES.len()];
        self.inner.view.for_each_task(|row| {
            let at = match &row.state {
                TaskState::Ended(_) => return,
                state => STATES.iter().position(|label| *label == state.label()),
            };
            if let Some(at) = at {
                counts[at] += 1;
            }
        });
        for (state, count) in STATES.into_iter().zip(counts) {
            gauge!(TASKS, "state" => state).set(count);
        }
        let inputs = self.inner.inputs.all();
        let waiting: usize = inputs.map(|inputs| inputs.max_capacity() - inputs.capacity()).sum();
        gauge!(INPUTS_WAITING).set(waiting as f64);
    }
}

fn describe_metrics() {
    describe_counter!(SPAWNS, "Tasks spawned, by kind.");
    describe_counter!(RUNS_ENDED, "Runs ended, by kind and outcome.");
    describe_counter!(TOKENS, "Tokens charged, by model.");
    describe_counter!(COST, "Money charged in millionths of a dollar, by model.");
    describe_histogram!(COMMIT_SECONDS, "Duration of a commit in the store.");
    describe_counter!(COMMIT_FAILURES, "Commits that the store refused or failed.");
    describe_gauge!(TASKS, "Tasks that have not ended, by state.");
    describe_gauge!(INPUTS_WAITING, "Commands that wait for the loops.");
    #[cfg(feature = "agents")]
    {
        describe_counter!(TOOL_CALLS, "Tool calls of agents, by tool and outcome.");
        describe_counter!(MODEL_RETRIES, "Retries of model calls, by model.");
    }
}

/// Returns the provider and the model as telemetry names them. Providers have the names of the
/// OpenTelemetry conventions, if those have one. A name without a slash has the part before the
/// colon as its provider.
pub(crate) fn provider_and_model(name: &str) -> (&str, &str) {
    let Some(at) = name.find(['/', ':']) else { return ("_OTHER", name) };
    let provider = match &name[..at] {
        "openai-chat" => "openai",
        "gemini" => "gcp.gemini",
        "mistral" => "mistral_ai",
        "xai" => "x_ai",
        other => other,
    };
    (provider, if name[at..].starts_with('/') { &name[at + 1..] } else { name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_have_the_names_of_the_conventions() {
        for (name, expect) in [
            ("anthropic/claude-opus-4-5", ("anthropic", "claude-opus-4-5")),
            ("openai-chat/gpt-5", ("openai", "gpt-5")),
            ("gemini/gemini-3", ("gcp.gemini", "gemini-3")),
            ("mine/org/model:latest", ("mine", "org/model:latest")),
            ("script:/tmp/a.script", ("script", "script:/tmp/a.script")),
            ("scripted", ("_OTHER", "scripted")),
        ] {
            assert_eq!(provider_and_model(name), expect, "{name}");
        }
    }
}
