//! A host, a model and a tool that do as they are told and remember it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use brigade_agent::permission::{PermissionRules, Permissions};
use brigade_agent::{
    Agent, AgentExit, AgentProgress, AttemptInput, BoxFuture, CostEstimate, ExecutionHints, Host,
    JournalRecord, PartialResult, Plugin, StepGrant, StopPolicy, SuspendResult, Tool, ToolEffect,
    ToolError, ToolInvocation, ToolReply, ToolSet,
};
use brigade_llm::conversation::ToolArguments;
use brigade_llm::{
    AssistantMessage, ChatMessage, ContentBlock, Model, ModelError, ModelErrorKind, ModelReply,
    ModelRequest, PartStream, ReplyPart, StopReason, TokenUsage, ToolCall, ToolSpec,
};
use brigade_model::call::{CallCompletion, ConditionRequest, InboxBatch, JournalEntry, ParkedCall};
use brigade_model::ids::{CallIndex, MessageNo, Owner, RunNo, Seq, TaskNo, Time};
use brigade_model::json::Json;
use brigade_model::limits::{Money, RemainingBudgets, Usage};
use brigade_model::message::{Message as Note, MessagePurpose, MessageSender};
use brigade_model::refusal::Refusal;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct PaperHost {
    inner: Mutex<Inner>,
    pub(crate) interrupted: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) journal: Vec<JournalEntry>,
    pub(crate) news: VecDeque<InboxBatch>,
    /// What a rest is answered with.
    pub(crate) answers: VecDeque<(CallIndex, CallCompletion)>,
    pub(crate) grants: Option<Usage>,
    /// What is left, for each of the next calls; of the last for all that follow.
    pub(crate) left: VecDeque<RemainingBudgets>,
    pub(crate) charged: Vec<Usage>,
    pub(crate) progress: Vec<AgentProgress>,
    pub(crate) parked: Vec<(CallIndex, ConditionRequest)>,
    pub(crate) result: Option<Json>,
    /// How often it is not done when it says so.
    pub(crate) not_done: u32,
}

impl PaperHost {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub(crate) fn labels(&self) -> Vec<String> {
        self.lock().journal.iter().map(|entry| entry.label.to_string()).collect()
    }

    pub(crate) fn words(&self) -> String {
        self.lock().result.as_ref().expect("a result").decode().unwrap()
    }
}

impl Inner {
    pub(crate) fn write(&mut self, index: CallIndex, label: &str, answer: Arc<CallCompletion>) {
        let order = Seq(self.journal.len() as u64);
        self.journal.push(JournalEntry { index, order, label: label.into(), completion: answer });
    }
}

impl Inner {
    fn record_all(&mut self, records: Vec<JournalRecord>) {
        for record in records {
            self.charged.extend(record.spent);
            self.write(record.index, record.label, record.completion);
        }
    }
}

impl Host for PaperHost {
    fn begin_step(
        &self,
        owed: Vec<JournalRecord>,
        index: CallIndex,
        cost: CostEstimate,
    ) -> BoxFuture<'_, Result<StepGrant, Refusal>> {
        let mut inner = self.lock();
        inner.record_all(owed);
        let proceed = match inner.news.pop_front() {
            Some(news) => {
                let answer = Arc::new(CallCompletion::Inbox(news));
                inner.write(index, "news", answer.clone());
                StepGrant::Inbox(answer)
            }
            None => {
                let amount = inner.grants.map_or(cost.max, |most| cost.max.at_most(most));
                let last = inner.left.len() <= 1;
                let left = if last { inner.left.front().copied() } else { inner.left.pop_front() };
                StepGrant::Budget { amount, remaining: left.unwrap_or_default() }
            }
        };
        Box::pin(std::future::ready(Ok(proceed)))
    }

    fn record(&self, records: Vec<JournalRecord>) -> BoxFuture<'_, Result<(), Refusal>> {
        self.lock().record_all(records);
        Box::pin(std::future::ready(Ok(())))
    }

    fn charge(&self, spent: Usage) -> BoxFuture<'_, Result<(), Refusal>> {
        self.lock().charged.push(spent);
        Box::pin(std::future::ready(Ok(())))
    }

    fn park(
        &self,
        index: CallIndex,
        asked: ConditionRequest,
    ) -> BoxFuture<'_, Result<(), Refusal>> {
        self.lock().parked.push((index, asked));
        Box::pin(std::future::ready(Ok(())))
    }

    fn suspend(&self, _open: usize) -> BoxFuture<'_, Result<SuspendResult, Refusal>> {
        let mut inner = self.lock();
        let rest = match inner.answers.pop_front() {
            Some((index, answer)) => {
                let answer = Arc::new(answer);
                let label =
                    if matches!(*answer, CallCompletion::Inbox(_)) { "news" } else { "wait" };
                inner.write(index, label, answer.clone());
                SuspendResult::Completed(index, answer)
            }
            None => SuspendResult::Suspended,
        };
        Box::pin(std::future::ready(Ok(rest)))
    }

    fn finish(
        &self,
        owed: Vec<JournalRecord>,
        result: Json,
    ) -> BoxFuture<'_, Result<bool, Refusal>> {
        let mut inner = self.lock();
        inner.result = Some(result);
        let done = inner.not_done == 0;
        if done {
            inner.record_all(owed);
        }
        inner.not_done = inner.not_done.saturating_sub(1);
        Box::pin(std::future::ready(Ok(done)))
    }

    fn wait_for_interrupt(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.interrupted.notified())
    }

    fn report_progress(&self, progress: AgentProgress) {
        self.lock().progress.push(progress);
    }
}

/// What the model does when it is asked.
#[derive(Clone, Debug)]
pub(crate) enum Play {
    Say(ModelReply),
    Fail(ModelErrorKind),
    /// These words, and then the end of the connection.
    Cut(&'static str),
    /// These words, which are void, and then all of it.
    Again(&'static str, ModelReply),
    Hang,
}

/// Plays in order, and the last again and again.
#[derive(Debug)]
pub(crate) struct PaperModel {
    plays: Mutex<VecDeque<Play>>,
    pub(crate) asked: Mutex<Vec<Arc<ModelRequest>>>,
}

impl Model for PaperModel {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        self.asked.lock().unwrap().push(request);
        let mut plays = self.plays.lock().unwrap();
        let play = if plays.len() > 1 { plays.pop_front() } else { plays.front().cloned() };
        match play.expect("a play") {
            Play::Say(reply) => Box::pin(stream::iter([Ok(ReplyPart::Finished(Box::new(reply)))])),
            Play::Fail(kind) => Box::pin(stream::iter([Err(ModelError::new(kind, "no"))])),
            Play::Cut(words) => {
                let error = ModelError::new(ModelErrorKind::Connection, "cut off");
                Box::pin(stream::iter([Ok(ReplyPart::Text(words.into())), Err(error)]))
            }
            Play::Again(words, reply) => Box::pin(stream::iter([
                Ok(ReplyPart::Text(words.into())),
                Ok(ReplyPart::Restarted { because: "cut off".into() }),
                Ok(ReplyPart::Finished(Box::new(reply))),
            ])),
            Play::Hang => Box::pin(stream::pending()),
        }
    }
}

impl PaperModel {
    pub(crate) fn requests(&self) -> Vec<Arc<ModelRequest>> {
        self.asked.lock().unwrap().clone()
    }
}

pub(crate) fn say(text: &str) -> Play {
    reply(vec![ContentBlock::Text(text.into())])
}

pub(crate) fn call(name: &str, arguments: Value) -> ContentBlock {
    let (id, arguments) = (name.into(), ToolArguments::Json(arguments));
    ContentBlock::Call(ToolCall { id, name: name.into(), arguments, opaque: Value::Null })
}

pub(crate) fn reply(content: Vec<ContentBlock>) -> Play {
    let message = AssistantMessage { content, ..AssistantMessage::default() };
    Play::Say(ModelReply { message, usage: TokenUsage::default(), stop: StopReason::EndOfTurn })
}

/// A tool that answers with what it is given, one after the other, and then the last again.
pub(crate) struct PaperTool {
    spec: ToolSpec,
    effect: ToolEffect,
    outcomes: Mutex<VecDeque<Result<ToolReply, ToolError>>>,
    pub(crate) calls: Arc<Mutex<Vec<ToolInvocation>>>,
}

impl PaperTool {
    pub(crate) fn new(
        name: &str,
        effect: ToolEffect,
        outcomes: impl IntoIterator<Item = ToolReply>,
    ) -> Self {
        let parameters = Arc::new(json!({ "type": "object" }));
        let spec = ToolSpec { name: name.into(), description: name.into(), parameters };
        let outcomes = Mutex::new(outcomes.into_iter().map(Ok).collect());
        Self { spec, effect, outcomes, calls: Arc::default() }
    }
}

impl std::fmt::Debug for PaperTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.spec.name)
    }
}

impl Tool for PaperTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(self.effect)
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        self.calls.lock().unwrap().push(call);
        let mut outcomes = self.outcomes.lock().unwrap();
        let next =
            if outcomes.len() > 1 { outcomes.pop_front() } else { outcomes.front().cloned() };
        Box::pin(std::future::ready(next.expect("an outcome")))
    }
}

pub(crate) struct Stage {
    pub(crate) host: PaperHost,
    pub(crate) model: Arc<PaperModel>,
    pub(crate) agent: Agent,
}

impl Stage {
    pub(crate) fn new(plays: impl IntoIterator<Item = Play>) -> Self {
        let plays = Mutex::new(plays.into_iter().collect());
        let model = Arc::new(PaperModel { plays, asked: Mutex::default() });
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
        Self { host: PaperHost::default(), model, agent }
    }

    pub(crate) fn tool(mut self, tool: PaperTool) -> Self {
        self.agent.tools.add(Arc::new(tool));
        self
    }

    pub(crate) fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.agent.plugins.push(Arc::new(plugin));
        self
    }

    pub(crate) async fn run(&self) -> AgentExit {
        self.begin(RunNo::FIRST, Vec::new()).await
    }

    /// Goes on from what is in the journal.
    pub(crate) async fn begin(&self, run: RunNo, open: Vec<ParkedCall>) -> AgentExit {
        let begun = AttemptInput {
            run,
            journal: self.host.lock().journal.clone(),
            parked_calls: open,
            skip_first_gate: false,
        };
        self.agent.run(&self.host, begun, &PartialResult::default()).await
    }
}

/// All that a request says, as text.
pub(crate) fn text_of(request: &ModelRequest) -> String {
    let texts = request.messages.iter().map(|message| match message {
        ChatMessage::User(user) => format!("user: {}", user.text),
        ChatMessage::Assistant(said) => format!("assistant: {}", said.text()),
        ChatMessage::Results(results) => {
            let texts: Vec<&str> = results.iter().map(|result| &*result.text).collect();
            format!("results: {}", texts.join(" | "))
        }
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// A message of the operator's.
pub(crate) fn message(text: &str) -> InboxBatch {
    message_from(MessageSender::Operator, MessagePurpose::Note, text)
}

/// A question of the second task.
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
    };
    InboxBatch { messages: vec![Arc::new(note)], results: Vec::new() }
}
