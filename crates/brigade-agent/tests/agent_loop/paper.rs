//! A host, a model and a tool that do as they are told and remember it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use brigade_agent::permission::{Permissions, Rules};
use brigade_agent::{
    Agent, Begun, BoxFuture, Call, Cost, Effect, Exit, Hints, Host, Outcome, Partial, Plugin,
    Policy, Proceed, Progress, Record, Rest, Tool, ToolError, Tools,
};
use brigade_llm::conversation::Arguments;
use brigade_llm::{
    AssistantMessage, Content, ErrorKind, Message, Model, ModelError, Part, PartStream, Reply,
    Request, StopReason, TokenUsage, ToolCall, ToolSpec,
};
use brigade_model::call::{Answer, Asked, Entry, Gathered, OpenCall};
use brigade_model::ids::{CallIndex, MessageNo, Owner, RunNo, Seq, TaskNo, Time};
use brigade_model::json::Json;
use brigade_model::limits::{Left, Money, Usage};
use brigade_model::message::{Message as Note, Purpose, Sender};
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
    pub(crate) journal: Vec<Entry>,
    pub(crate) news: VecDeque<Gathered>,
    /// What a rest is answered with.
    pub(crate) answers: VecDeque<(CallIndex, Answer)>,
    pub(crate) grants: Option<Usage>,
    /// What is left, for each of the next calls; of the last for all that follow.
    pub(crate) left: VecDeque<Left>,
    pub(crate) charged: Vec<Usage>,
    pub(crate) progress: Vec<Progress>,
    pub(crate) parked: Vec<(CallIndex, Asked)>,
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
    pub(crate) fn write(&mut self, index: CallIndex, label: &str, answer: Arc<Answer>) {
        let order = Seq(self.journal.len() as u64);
        self.journal.push(Entry { index, order, label: label.into(), answer });
    }
}

impl Inner {
    fn record_all(&mut self, records: Vec<Record>) {
        for record in records {
            self.charged.extend(record.spent);
            self.write(record.index, record.label, record.answer);
        }
    }
}

impl Host for PaperHost {
    fn proceed(
        &self,
        owed: Vec<Record>,
        index: CallIndex,
        cost: Cost,
    ) -> BoxFuture<'_, Result<Proceed, Refusal>> {
        let mut inner = self.lock();
        inner.record_all(owed);
        let proceed = match inner.news.pop_front() {
            Some(news) => {
                let answer = Arc::new(Answer::Gathered(news));
                inner.write(index, "news", answer.clone());
                Proceed::News(answer)
            }
            None => {
                let amount = inner.grants.map_or(cost.most, |most| cost.most.at_most(most));
                let last = inner.left.len() <= 1;
                let left = if last { inner.left.front().copied() } else { inner.left.pop_front() };
                Proceed::Granted { amount, left: left.unwrap_or_default() }
            }
        };
        Box::pin(std::future::ready(Ok(proceed)))
    }

    fn record(&self, records: Vec<Record>) -> BoxFuture<'_, Result<(), Refusal>> {
        self.lock().record_all(records);
        Box::pin(std::future::ready(Ok(())))
    }

    fn charge(&self, spent: Usage) -> BoxFuture<'_, Result<(), Refusal>> {
        self.lock().charged.push(spent);
        Box::pin(std::future::ready(Ok(())))
    }

    fn park(&self, index: CallIndex, asked: Asked) -> BoxFuture<'_, Result<(), Refusal>> {
        self.lock().parked.push((index, asked));
        Box::pin(std::future::ready(Ok(())))
    }

    fn rest(&self, _open: usize) -> BoxFuture<'_, Result<Rest, Refusal>> {
        let mut inner = self.lock();
        let rest = match inner.answers.pop_front() {
            Some((index, answer)) => {
                let answer = Arc::new(answer);
                let label = if matches!(*answer, Answer::Gathered(_)) { "news" } else { "wait" };
                inner.write(index, label, answer.clone());
                Rest::Answered(index, answer)
            }
            None => Rest::Suspended,
        };
        Box::pin(std::future::ready(Ok(rest)))
    }

    fn finish(&self, owed: Vec<Record>, result: Json) -> BoxFuture<'_, Result<bool, Refusal>> {
        let mut inner = self.lock();
        inner.result = Some(result);
        let done = inner.not_done == 0;
        if done {
            inner.record_all(owed);
        }
        inner.not_done = inner.not_done.saturating_sub(1);
        Box::pin(std::future::ready(Ok(done)))
    }

    fn interrupted(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.interrupted.notified())
    }

    fn progress(&self, progress: Progress) {
        self.lock().progress.push(progress);
    }
}

/// What the model does when it is asked.
#[derive(Clone, Debug)]
pub(crate) enum Play {
    Say(Reply),
    Fail(ErrorKind),
    /// These words, and then the end of the connection.
    Cut(&'static str),
    /// These words, which are void, and then all of it.
    Again(&'static str, Reply),
    Hang,
}

/// Plays in order, and the last again and again.
#[derive(Debug)]
pub(crate) struct PaperModel {
    plays: Mutex<VecDeque<Play>>,
    pub(crate) asked: Mutex<Vec<Arc<Request>>>,
}

impl Model for PaperModel {
    fn call(&self, request: Arc<Request>) -> PartStream {
        self.asked.lock().unwrap().push(request);
        let mut plays = self.plays.lock().unwrap();
        let play = if plays.len() > 1 { plays.pop_front() } else { plays.front().cloned() };
        match play.expect("a play") {
            Play::Say(reply) => Box::pin(stream::iter([Ok(Part::Finished(Box::new(reply)))])),
            Play::Fail(kind) => Box::pin(stream::iter([Err(ModelError::new(kind, "no"))])),
            Play::Cut(words) => {
                let error = ModelError::new(ErrorKind::Connection, "cut off");
                Box::pin(stream::iter([Ok(Part::Text(words.into())), Err(error)]))
            }
            Play::Again(words, reply) => Box::pin(stream::iter([
                Ok(Part::Text(words.into())),
                Ok(Part::Restarted { because: "cut off".into() }),
                Ok(Part::Finished(Box::new(reply))),
            ])),
            Play::Hang => Box::pin(stream::pending()),
        }
    }
}

impl PaperModel {
    pub(crate) fn requests(&self) -> Vec<Arc<Request>> {
        self.asked.lock().unwrap().clone()
    }
}

pub(crate) fn say(text: &str) -> Play {
    reply(vec![Content::Text(text.into())])
}

pub(crate) fn call(name: &str, arguments: Value) -> Content {
    let (id, arguments) = (name.into(), Arguments::Json(arguments));
    Content::Call(ToolCall { id, name: name.into(), arguments, opaque: Value::Null })
}

pub(crate) fn reply(content: Vec<Content>) -> Play {
    let message = AssistantMessage { content, ..AssistantMessage::default() };
    Play::Say(Reply { message, usage: TokenUsage::default(), stop: StopReason::EndOfTurn })
}

/// A tool that answers with what it is given, one after the other, and then the last again.
pub(crate) struct PaperTool {
    spec: ToolSpec,
    effect: Effect,
    outcomes: Mutex<VecDeque<Result<Outcome, ToolError>>>,
    pub(crate) calls: Arc<Mutex<Vec<Call>>>,
}

impl PaperTool {
    pub(crate) fn new(
        name: &str,
        effect: Effect,
        outcomes: impl IntoIterator<Item = Outcome>,
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

    fn hints(&self) -> Hints {
        Hints::of(self.effect)
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Outcome, ToolError>> {
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
            system: "You cook.".into(),
            model: model.clone(),
            model_name: "paper".into(),
            tools: Tools::default(),
            plugins: Vec::new(),
            permissions: Permissions::of("test", Rules::all()),
            unattended: false,
            mark: None,
            policy: Policy::default(),
            result: None,
            temperature: None,
            effort: None,
            max_output: 1_000,
            window: 200_000,
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

    pub(crate) async fn run(&self) -> Exit {
        self.begin(RunNo::FIRST, Vec::new()).await
    }

    /// Goes on from what is in the journal.
    pub(crate) async fn begin(&self, run: RunNo, open: Vec<OpenCall>) -> Exit {
        let begun = Begun { run, journal: self.host.lock().journal.clone(), open, at_leave: false };
        self.agent.run(&self.host, begun, &Partial::default()).await
    }
}

/// All that a request says, as text.
pub(crate) fn text_of(request: &Request) -> String {
    let texts = request.messages.iter().map(|message| match message {
        Message::User(user) => format!("user: {}", user.text),
        Message::Assistant(said) => format!("assistant: {}", said.text()),
        Message::Results(results) => {
            let texts: Vec<&str> = results.iter().map(|result| &*result.text).collect();
            format!("results: {}", texts.join(" | "))
        }
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// A message of the operator's.
pub(crate) fn message(text: &str) -> Gathered {
    message_from(Sender::Operator, Purpose::Note, text)
}

/// A question of the second task.
pub(crate) fn question(text: &str) -> Gathered {
    let no = TaskNo::new(2).unwrap();
    message_from(Sender::Child(no), Purpose::Question(CallIndex(3)), text)
}

fn message_from(from: Sender, purpose: Purpose, text: &str) -> Gathered {
    let note = Note {
        no: MessageNo(1),
        to: Owner::Task(TaskNo::FIRST),
        from,
        body: Json::of(text).unwrap(),
        sent: Time(0),
        purpose,
        interrupt: false,
        last: false,
        reply_to: None,
    };
    Gathered { messages: vec![Arc::new(note)], endings: Vec::new() }
}
