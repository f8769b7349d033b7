//! The span around one attempt of an agent.

use brigade_agent::telemetry::{TARGET, record_cost, record_error};
use brigade_agent::{Agent, AgentExit};
use brigade_llm::TokenUsage;
use brigade_model::action::StartAction;
use brigade_model::limits::Usage;
use brigade_model::refusal::RefusalKind;
use brigade_model::task::SpawningAttempt;
use tracing::Span;
use tracing::field::Empty;

use crate::performer::TaskId;

/// The tokens and the cost of an attempt so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttemptSpending {
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) cost: Usage,
}

impl AttemptSpending {
    pub(crate) fn add(&mut self, tokens: &TokenUsage, cost: Usage) {
        self.input = self.input.saturating_add(tokens.input);
        self.output = self.output.saturating_add(tokens.output);
        self.cost = self.cost.plus(cost);
    }
}

/// Creates the span of an attempt. It is a root, since a child's attempts may outlive those of its
/// parent. Its attributes name the task and its spawner, so they are the same after a restart.
pub(crate) fn invoke_agent_span(start: &StartAction, task: TaskId) -> Span {
    tracing::info_span!(
        target: TARGET,
        parent: None,
        "invoke_agent",
        otel.name = Empty,
        otel.kind = "internal",
        otel.status_code = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.provider.name = Empty,
        gen_ai.request.model = Empty,
        gen_ai.agent.name = Empty,
        gen_ai.agent.id = %format_args!("{}/agent:{}", start.session, start.no),
        gen_ai.conversation.id = %format_args!("{}/{}", task.session, start.no),
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        brigade.session = start.session.as_str(),
        brigade.session.id = %task.session,
        brigade.task = start.no.get(),
        brigade.run = start.run.0,
        brigade.attempt = start.attempt.0,
        brigade.parent.task = Empty,
        brigade.parent.attempt = Empty,
        brigade.attempt.end = Empty,
        brigade.cost = Empty,
        error.type = Empty,
    )
}

/// Records the agent's name, its model and the attempt that spawned it.
pub(crate) fn record_agent(span: &Span, agent: &Agent, parent: Option<SpawningAttempt>) {
    if span.is_disabled() {
        return;
    }
    span.record("otel.name", tracing::field::display(format_args!("invoke_agent {}", agent.name)));
    span.record("gen_ai.agent.name", &*agent.name);
    span.record("gen_ai.provider.name", &*agent.provider);
    span.record("gen_ai.request.model", &*agent.model_name);
    if let Some(SpawningAttempt { no, attempt }) = parent {
        span.record("brigade.parent.task", no.get());
        span.record("brigade.parent.attempt", attempt.0);
    }
}

/// The end of an attempt.
#[derive(Debug)]
pub(crate) enum AttemptEnd<'a> {
    Exit(&'a AgentExit),
    /// No performer here can execute the attempt.
    NotStarted,
    Stopped,
    Panicked,
}

pub(crate) fn record_end(span: &Span, end: &AttemptEnd<'_>, spent: AttemptSpending) {
    if span.is_disabled() {
        return;
    }
    span.record("gen_ai.usage.input_tokens", spent.input);
    span.record("gen_ai.usage.output_tokens", spent.output);
    record_cost(span, spent.cost);
    let (label, error) = match end {
        AttemptEnd::Exit(AgentExit::Finished) => ("finished", None),
        AttemptEnd::Exit(AgentExit::Suspended) => ("suspended", None),
        AttemptEnd::Exit(AgentExit::Failed { failure, .. }) => ("failed", Some(failure.label())),
        AttemptEnd::Exit(AgentExit::Refused(refusal)) => match refusal.kind {
            RefusalKind::Ended => ("stopped", None),
            RefusalKind::Unavailable | RefusalKind::Unknown => ("shut_down", None),
            _ => ("failed", Some("refused")),
        },
        AttemptEnd::NotStarted => ("not_started", None),
        AttemptEnd::Stopped => ("stopped", None),
        AttemptEnd::Panicked => ("failed", Some("panic")),
    };
    span.record("brigade.attempt.end", label);
    if let Some(error) = error {
        record_error(span, error);
    }
}
