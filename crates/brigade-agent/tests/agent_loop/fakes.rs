//! A fake host, model and tool: each follows a script and records its calls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use brigade_agent::permission::{PermissionRules, Permissions};
use brigade_agent::{
    Agent, AgentExit, AgentOutput, AgentProgress, AttemptInput, BoxFuture, CostEstimate,
    ExecutionHints, Host, JournalRecord, PartialResult, Plugin, StepGrant, StopPolicy,
    SuspendResult, ToolEffect, ToolError, ToolHandler, ToolInvocation, ToolReply, ToolSet,
};
use brigade_llm::conversation::ToolArguments;
use brigade_llm::{
    AssistantMessage, ChatMessage, ContentBlock, Model, ModelError, ModelErrorKind, ModelReply,
    ModelRequest, PartStream, ReplyPart, StopReason, TokenUsage, ToolCall, ToolSpec,
};
use brigade_model::call::{CallCompletion, ConditionRequest, InboxBatch, JournalEntry, ParkedCall};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::{CallIndex, MessageNo, Owner, RunNo, Seq, TaskNo, Time};
use brigade_model::json::Json;
use brigade_model::limits::{Money, RemainingBudgets, Usage};
use brigade_model::message::{Message as Note, MessagePurpose, MessageSender};
use brigade_model::refusal::Refusal;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct FakeHost {
    inner: Mutex<Inner>,
    pub(crate) interrupted: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) journal: Vec<JournalEntry>,
    /// The batches that the next `begin_step` calls return.
    pub(crate) inbox: VecDeque<InboxBatch>,
    /// The completions that the next `suspend` calls return.
    pub(crate) completions: VecDeque<(CallIndex, CallCompletion)>,
    pub(crate) grants: Option<Usage>,
    /// The remaining budgets for the next model calls. The last one holds for all further calls.
    pub(crate) remaining: VecDeque<RemainingBudgets>,
    pub(crate) charged: Vec<Usage>,
    pub(crate) progress: Vec<AgentProgress>,
    pub(crate) outputs: Vec<AgentOutput>,
    pub(crate) parked: Vec<(CallIndex, ConditionRequest)>,
    pub(crate) result: Option<Json>,
    /// True if a commit takes a moment, in which others act.
    pub(crate) slow_commits: bool,
    /// The number of `finish` calls that return false.
    pub(crate) refused_ends: u32,
    /// The number of looks at the lease that find it held; `None` for all.
    pub(crate) held_looks: Option<u32>,
}

impl FakeHost {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub(crate) fn labels(&self) -> Vec<String> {
        self.lock().journal.iter().map(|entry| entry.label.to_string()).collect()
    }

    pub(crate) fn result_text(&self) -> String {
        self.lock().result.as_ref().expect("a result").decode().unwrap()
    }
}

impl Inner {
    pub(crate) fn write(
        &mut self,
        index: CallIndex,
        label: EntryLabel,
        completion: Arc<CallCompletion>,
    ) {
        let order = Seq(self.journal.len() as u64);
        self.journal.push(JournalEntry { index, order, label, completion });
    }

    fn record_all(&mut self, records: Vec<JournalRecord>) {
        for record in records {
            self.charged.extend(record.spent);
            self.write(record.index, record.label, record.completion);
        }
    }
}

impl Host for FakeHost {
    fn check_lease(&self) -> Result<(), Refusal> {
        match &mut self.lock().held_looks {
            Some(0) => Err(Refusal::unavailable("the lease is over")),
            Some(looks) => {
                *looks -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn begin_step(
        &self,
        unflushed: Vec<JournalRecord>,
        index: CallIndex,
        cost: CostEstimate,
    ) -> BoxFuture<'_, Result<StepGrant, Refusal>> {
        let mut inner = self.lock();
        inner.record_all(unflushed);
        let grant = match inner.inbox.pop_front() {
            Some(batch) => {
                let completion = Arc::new(CallCompletion::Inbox(batch));
                inner.write(index, EntryLabel::Inbox, completion.clone());
                StepGrant::Inbox(completion)
            }
            None => {
                let amount = inner.grants.map_or(cost.max, |grant| cost.max.at_most(grant));
                let is_last = inner.remaining.len() <= 1;
                let remaining = if is_last {
                    inner.remaining.front().copied()
                } else {
                    inner.remaining.pop_front()
                };
                StepGrant::Budget { amount, remaining: remaining.unwrap_or_default() }
            }
        };
        Box::pin(std::future::ready(Ok(grant)))
    }

    fn record(&self, records: Vec<JournalRecord>) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            let slow = self.lock().slow_commits;
            if slow {
                tokio::task::yield_now().await;
            }
            self.lock().record_all(records);
            Ok(())
        })
    }

    fn charge(&self, spent: Usage) -> BoxFuture<'_, Result<(), Refusal>> {
        self.lock().charged.push(spent);
        Box::pin(std::future::ready(Ok(())))
    }

    fn park(
        &self,
        index: CallIndex,
        condition: ConditionRequest,
    ) -> BoxFuture<'_, Result<(), Refusal>> {
        self.lock().parked.push((index, condition));
        Box::pin(std::future::ready(Ok(())))
    }

    fn suspend(&self, _parked: usize) -> BoxFuture<'_, Result<SuspendResult, Refusal>> {
        let mut inner = self.lock();
        let result = match inner.completions.pop_front() {
            Some((index, completion)) => {
                let completion = Arc::new(completion);
                let is_inbox = matches!(*completion, CallCompletion::Inbox(_));
                inner.write(
                    index,
                    if is_inbox { EntryLabel::Inbox } else { EntryLabel::Wait },
                    completion.clone(),
                );
                SuspendResult::Completed(index, completion)
            }
            None => SuspendResult::Suspended,
        };
        Box::pin(std::future::ready(Ok(result)))
    }

    fn finish(
        &self,
        unflushed: Vec<JournalRecord>,
        result: Json,
    ) -> BoxFuture<'_, Result<bool, Refusal>> {
        let mut inner = self.lock();
        inner.result = Some(result);
        let is_finished = inner.refused_ends == 0;
        if is_finished {
            inner.record_all(unflushed);
        }
        inner.refused_ends = inner.refused_ends.saturating_sub(1);
        Box::pin(std::future::ready(Ok(is_finished)))
    }

    fn wait_for_interrupt(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.interrupted.notified())
    }

    fn report_progress(&self, progress: AgentProgress) {
        self.lock().progress.push(progress);
    }

    fn report_output(&self, output: AgentOutput) {
        self.lock().outputs.push(output);
    }
}

/// The reply to one model call.
#[derive(Clone, Debug)]
pub(crate) enum ScriptedReply {
    Whole(ModelReply),
    Failed(ModelErrorKind),
    /// A text, then the end of the connection.
    CutOff(&'static str),
    /// A text that is discarded, then the whole reply.
    Restarted(&'static str, ModelReply),
    /// A reply that never comes.
    Pending,
}

/// A model that replies in order, and repeats the last reply.
#[derive(Debug)]
pub(crate) struct FakeModel {
    replies: Mutex<VecDeque<ScriptedReply>>,
    requests: Mutex<Vec<Arc<ModelRequest>>>,
}

impl Model for FakeModel {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        self.requests.lock().unwrap().push(request);
        let mut replies = self.replies.lock().unwrap();
        let reply = if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() };
        match reply.expect("a reply") {
            ScriptedReply::Whole(reply) => {
                Box::pin(stream::iter([Ok(ReplyPart::Finished(Box::new(reply)))]))
            }
            ScriptedReply::Failed(kind) => {
                Box::pin(stream::iter([Err(ModelError::new(kind, "no"))]))
            }
            ScriptedReply::CutOff(text) => {
                let error = ModelError::new(ModelErrorKind::Connection, "cut off");
                Box::pin(stream::iter([Ok(ReplyPart::Text(text.into())), Err(error)]))
            }
            ScriptedReply::Restarted(text, reply) => Box::pin(stream::iter([
                Ok(ReplyPart::Text(text.into())),
                Ok(ReplyPart::Restarted { reason: "cut off".into() }),
                Ok(ReplyPart::Finished(Box::new(reply))),
            ])),
            ScriptedReply::Pending => Box::pin(stream::pending()),
        }
    }
}

impl FakeModel {
    pub(crate) fn requests(&self) -> Vec<Arc<ModelRequest>> {
        self.requests.lock().unwrap().clone()
    }
}

pub(crate) fn say(text: &str) -> ScriptedReply {
    reply(vec![ContentBlock::Text(text.into())])
}

pub(crate) fn call(name: &str, arguments: Value) -> ContentBlock {
    ContentBlock::Call(ToolCall {
        id: name.into(),
        name: name.into(),
        arguments: ToolArguments::Json(arguments),
        opaque: Value::Null,
    })
}

pub(crate) fn reply(content: Vec<ContentBlock>) -> ScriptedReply {
    let message = AssistantMessage { content, ..AssistantMessage::default() };
    ScriptedReply::Whole(ModelReply {
        message,
        usage: TokenUsage::default(),
        stop: StopReason::EndOfTurn,
    })
}

/// A tool that replies in order, and repeats the last reply.
pub(crate) struct FakeTool {
    spec: ToolSpec,
    effect: ToolEffect,
    replies: Mutex<VecDeque<ToolReply>>,
    pub(crate) calls: Arc<Mutex<Vec<ToolInvocation>>>,
}

impl FakeTool {
    pub(crate) fn new(
        name: &str,
        effect: ToolEffect,
        replies: impl IntoIterator<Item = ToolReply>,
    ) -> Self {
        let parameters = Arc::new(json!({ "type": "object" }));
        let spec = ToolSpec { name: name.into(), description: name.into(), parameters };
        let replies = Mutex::new(replies.into_iter().collect());
        Self { spec, effect, replies, calls: Arc::default() }
    }
}

impl std::fmt::Debug for FakeTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.spec.name)
    }
}

impl ToolHandler for FakeTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(self.effect)
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        self.calls.lock().unwrap().push(call);
        let mut replies = self.replies.lock().unwrap();
        let next = if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() };
        Box::pin(std::future::ready(Ok(next.expect("a reply"))))
    }
}

/// An agent with its fake host and model.
pub(crate) struct TestAgent {
    pub(crate) host: FakeHost,
    pub(crate) model: Arc<FakeModel>,
    pub(crate) agent: Agent,
}

impl TestAgent {
    pub(crate) fn new(replies: impl IntoIterator<Item = ScriptedReply>) -> Self {
        let replies = Mutex::new(replies.into_iter().collect());
        let model = Arc::new(FakeModel { replies, requests: Mutex::default() });
        let agent = Agent {
            provider: "script".into(),
            name: "A".into(),
            task: "make soup".into(),
            system_prompt: "You cook.".into(),
            model: model.clone(),
            model_name: "paper".into(),
            tools: ToolSet::default(),
            plugins: Vec::new(),
            permissions: Permissions::of("test", PermissionRules::all()),
            unattended: false,
            quote_mark: None,
            stop_policy: StopPolicy::default(),
            result_schema: None,
            temperature: None,
            effort: None,
            max_output: 1_000,
            context_window: 200_000,
            // A token costs a millionth.
            cost: Arc::new(|usage| Usage { tokens: usage.total(), money: Money(usage.total()) }),
        };
        Self { host: FakeHost::default(), model, agent }
    }

    pub(crate) fn tool(mut self, tool: FakeTool) -> Self {
        self.agent.tools.add(tool);
        self
    }

    pub(crate) fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.agent.plugins.push(Arc::new(plugin));
        self
    }

    pub(crate) async fn run(&self) -> AgentExit {
        self.run_attempt(RunNo::FIRST, Vec::new()).await
    }

    /// Runs the next attempt from the journal.
    pub(crate) async fn run_attempt(&self, run: RunNo, parked_calls: Vec<ParkedCall>) -> AgentExit {
        let journal = self.host.lock().journal.clone();
        let input = AttemptInput { run, journal, parked_calls, skip_first_gate: false };
        self.agent.run(&self.host, input, &PartialResult::default()).await
    }
}

/// Renders all messages of a request.
pub(crate) fn text_of(request: &ModelRequest) -> String {
    let texts = request.messages.iter().map(|message| match message {
        ChatMessage::User(user) => format!("user: {}", user.text),
        ChatMessage::Assistant(message) => format!("assistant: {}", message.text()),
        ChatMessage::Results(results) => {
            let texts: Vec<&str> = results.iter().map(|result| &*result.text).collect();
            format!("results: {}", texts.join(" | "))
        }
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns an inbox with a message of the operator.
pub(crate) fn message(text: &str) -> InboxBatch {
    message_from(MessageSender::Operator, MessagePurpose::Note, text)
}

/// Returns an inbox with a question of the second task.
pub(crate) fn question(text: &str) -> InboxBatch {
    let no = TaskNo::new(2).unwrap();
    message_from(MessageSender::Child(no), MessagePurpose::Question(CallIndex(3)), text)
}

fn message_from(from: MessageSender, purpose: MessagePurpose, text: &str) -> InboxBatch {
    let note = Note {
        no: MessageNo(1),
        to: Owner::Task(TaskNo::FIRST),
        from,
        body: Json::of(text).unwrap(),
        sent_at: Time(0),
        purpose,
        interrupt: false,
        closes_input: false,
        reply_to: None,
        name: None,
        key: None,
    };
    InboxBatch { messages: vec![Arc::new(note)], results: Vec::new() }
}
