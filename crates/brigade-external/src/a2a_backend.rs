//! Runs remote agents that speak A2A 1.0 as agents of Brigade.
//!
//! ```text
//!   inbox ── message ── remote task ── GetTask .. ──┬── result
//!     ▲                    ▲                        └── question ── answer ─┐
//!     └── next message     └───────────────────────────────────────────────┘
//! ```
//!
//! Each message is stored before it is sent, and the id of the remote task as soon as it is known. The
//! next attempt goes on with that task. A message whose answer was lost is sent again with the same
//! id, and the transcript says so. A stop cancels the remote task. If the remote side does not confirm
//! that in time, the outcome names the task as a survivor.

use std::sync::Arc;
use std::time::Duration;

use a2a::{Task, TaskState};
use brigade_agent::inbox::Quoter;
use brigade_agent::{
    Agent, AgentExit, AgentProgress, AttemptInput, Backend, BackendModels, BackendRun, BoxFuture,
    CostEstimate, Host, JournalRecord, PartialResult, StepGrant,
};
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::limits::{Money, Usage};
use brigade_model::outcome::Failure;
use brigade_model::refusal::{Refusal, RefusalKind};
use tokio::time::Instant;

use self::live_task::{LiveTask, LiveTasks};
use self::remote_client::{OutgoingMessage, RemoteClient, RemoteError};
use self::remote_journal::{MessageRecord, RemoteJournal, TaskRecord};
use self::remote_text::{reply_entry, result_text, status_text};

use crate::attempt_error::AttemptError;
use crate::journal_base::{BackendJournal, commit_records, park_on_inbox, wait_for_inbox};

mod live_task;
mod remote_client;
mod remote_journal;
mod remote_text;

const RESUME_PROMPT: &str = "Go on with your task.";
const POLL_PAUSE_MIN: Duration = Duration::from_millis(500);
const POLL_PAUSE_MAX: Duration = Duration::from_secs(5);
/// The time for which the remote side may be unreachable.
const UNREACHABLE_MAX: Duration = Duration::from_secs(10 * 60);
/// The number of times that a message may be sent whose answer was lost.
const SENDS_MAX: u32 = 3;

/// A backend that delegates to a remote agent.
#[derive(Clone, Debug)]
pub struct A2aBackend {
    client: Arc<RemoteClient>,
    live: LiveTasks,
}

impl A2aBackend {
    /// Creates a backend for the agent at this URL, whose card is below it. The URL is one of HTTPS or
    /// of the loopback interface.
    pub fn new(url: &str) -> Result<Self, Refusal> {
        let client = Arc::new(RemoteClient::new(url)?);
        Ok(Self { client, live: LiveTasks::default() })
    }

    /// Sends the token in this environment variable of the runtime. It is read for each request and
    /// stored nowhere.
    #[must_use]
    pub fn token_variable(self, name: impl Into<String>) -> Self {
        let mut client = (*self.client).clone();
        client.token_variable = Some(name.into());
        Self { client: Arc::new(client), ..self }
    }
}

impl Backend for A2aBackend {
    fn models(&self) -> BackendModels {
        BackendModels::OfProgram { reports_cost: false }
    }

    fn works_remotely(&self) -> bool {
        true
    }

    fn end_remote_work<'a>(&'a self, task_key: &'a str) -> BoxFuture<'a, Vec<String>> {
        Box::pin(async move { self.live.end(task_key).await.into_iter().collect() })
    }

    fn run<'a>(&'a self, run: BackendRun<'a>) -> BoxFuture<'a, AgentExit> {
        Box::pin(async move {
            let BackendRun { agent, host, input, partial } = run;
            let live = Arc::new(LiveTask::new(self.client.clone(), host.stop_token()));
            let mut guard = self.live.add(host.task_key(), live.clone());
            let attempt = Attempt { backend: self, agent, host, partial, live };
            match attempt.run(input).await {
                Ok(exit) => exit,
                Err(error) => {
                    let exit = error.into_exit(partial);
                    let refusal = match &exit {
                        AgentExit::Refused(refusal) => Some(refusal.kind),
                        _ => None,
                    };
                    guard.is_kept = refusal == Some(RefusalKind::Ended);
                    exit
                }
            }
        })
    }
}

fn lost(evidence: String) -> AttemptError {
    let by = "the remote agent".into();
    AttemptError::Failed(Failure::Lost { by, evidence: evidence.into() })
}

/// One attempt of a run.
struct Attempt<'a> {
    backend: &'a A2aBackend,
    agent: &'a Agent,
    host: &'a dyn Host,
    partial: &'a PartialResult,
    live: Arc<LiveTask>,
}

impl Attempt<'_> {
    async fn run(&self, input: AttemptInput) -> Result<AgentExit, AttemptError> {
        let quoter = Quoter::new(self.agent.quote_mark);
        let mut journal = RemoteJournal::load(input.journal, &input.parked_calls, quoter)?;
        self.note_live(&journal);
        if self.host.stop_token().is_cancelled() {
            // The stop ends what an earlier attempt has started. Nothing else may start.
            return Err(Refusal::ended("the task is being stopped").into());
        }
        if journal.base.run < input.run {
            let record = journal.run_record(input.run)?;
            self.commit(&mut journal, vec![record]).await?;
        }
        // A stored message without a task may have been sent by the last attempt.
        let mut is_unsure = journal.unaccepted().is_some();
        loop {
            if journal.base.inbox_wait.is_some() {
                if !wait_for_inbox(self.host, &mut journal).await? {
                    return Ok(AgentExit::Suspended);
                }
            } else if let Some(message) = journal.unaccepted().cloned() {
                self.send(&mut journal, &message, is_unsure).await?;
                is_unsure = false;
            } else if let Some(index) = journal.open_question() {
                self.ask(&mut journal, index).await?;
            } else if let Some(task) = journal.running_task().cloned() {
                self.follow(&mut journal, &task).await?;
            } else if journal.wants_message() {
                self.begin_message(&mut journal).await?;
            } else if self.finish(&mut journal).await? {
                return Ok(AgentExit::Finished);
            }
        }
    }

    /// Notes the remote work of earlier attempts, so that a stop ends it from now on.
    fn note_live(&self, journal: &RemoteJournal) {
        if let Some(task) = journal.live_task() {
            self.live.set(task);
        }
        if journal.unaccepted().is_some() {
            self.live.set_unsure();
        }
    }

    async fn commit(
        &self,
        journal: &mut RemoteJournal,
        records: Vec<JournalRecord>,
    ) -> Result<(), AttemptError> {
        Ok(commit_records(self.host, journal, records).await?)
    }

    /// Takes the inbox into the next message, or stores the message if the inbox is empty.
    async fn begin_message(&self, journal: &mut RemoteJournal) -> Result<(), AttemptError> {
        // The remote side reports no cost, so the least amount is reserved.
        let least = Usage { tokens: 1, money: Money(1) };
        let cost = CostEstimate { max: least, min: least };
        let index = journal.base.next_index();
        match self.host.begin_step(Vec::new(), index, cost).await? {
            StepGrant::Inbox(batch) => Ok(journal.apply(index, &EntryLabel::Inbox, &batch)?),
            StepGrant::Exhausted(limit) => Err(AttemptError::Failed(Failure::Budget { limit })),
            StepGrant::Budget { .. } => {
                let record = self.next_message(journal);
                let record = journal.message_record(&record)?;
                self.commit(journal, vec![record]).await?;
                Ok(self.host.check_lease()?)
            }
        }
    }

    fn next_message(&self, journal: &RemoteJournal) -> MessageRecord {
        let number = journal.message_count + 1;
        let id = format!("{}-{number}", self.host.task_key().replace('/', "-"));
        let last = journal.task.as_ref();
        let context_id = last.map(|task| task.context_id.clone()).filter(|id| !id.is_empty());
        if let Some(answer) = &journal.answer {
            let task_id = last.map(|task| task.task_id.clone());
            return MessageRecord { number, id, text: answer.clone(), task_id, context_id };
        }
        let text = match (last, journal.base.unsent.is_empty()) {
            (Some(_), true) => RESUME_PROMPT.to_owned(),
            (Some(_), false) => journal.base.unsent.join("\n\n"),
            (None, _) => {
                let parts = [&*self.agent.system_prompt, &*self.agent.task];
                let parts = parts.into_iter().chain(journal.base.unsent.iter().map(String::as_str));
                let parts = parts.map(str::trim).filter(|part| !part.is_empty());
                parts.collect::<Vec<_>>().join("\n\n")
            }
        };
        MessageRecord { number, id, text, task_id: None, context_id }
    }

    /// Sends a stored message, and stores the id of its task.
    async fn send(
        &self,
        journal: &mut RemoteJournal,
        message: &MessageRecord,
        mut is_unsure: bool,
    ) -> Result<(), AttemptError> {
        let started_at = Instant::now();
        let mut pause = POLL_PAUSE_MIN;
        let mut sends = 0;
        let task = loop {
            if is_unsure {
                let note = "The answer to the last message was lost. It is sent again with the same id, so \
                            the remote agent may have received it twice.";
                let record = journal.note_record(note)?;
                self.commit(journal, vec![record]).await?;
            }
            self.report("sends a message");
            match self.live.send(OutgoingMessage::of(message)).await {
                Ok(task) => break task,
                Err(RemoteError::Refused { code, text }) => {
                    return Err(AttemptError::failed(format!(
                        "the remote agent refused: {text} ({code})"
                    )));
                }
                Err(RemoteError::NotConnected(text)) => {
                    if started_at.elapsed() > UNREACHABLE_MAX {
                        return Err(AttemptError::failed(format!(
                            "the remote agent is unreachable: {text}"
                        )));
                    }
                    is_unsure = false;
                }
                Err(RemoteError::Interrupted(text)) => {
                    sends += 1;
                    if sends >= SENDS_MAX {
                        return Err(lost(format!("no answer to a message: {text}")));
                    }
                    is_unsure = true;
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_PAUSE_MAX);
        };
        let result = result_text(&task);
        let has_task = !task.id.is_empty();
        let record =
            TaskRecord { task_id: task.id, context_id: task.context_id, number: message.number };
        let mut records = vec![journal.task_record(&record)?];
        if !has_task {
            // The remote agent answered with a message, and there is nothing to follow.
            records.push(journal.reply_record(&reply_entry(&result))?);
            records.push(journal.end_record(&result)?);
        }
        self.commit(journal, records).await
    }

    /// Follows a remote task until it ends or asks, and stores that.
    async fn follow(
        &self,
        journal: &mut RemoteJournal,
        task: &TaskRecord,
    ) -> Result<(), AttemptError> {
        self.live.set(&task.task_id);
        let found = self.poll(&task.task_id).await?;
        if found.status.state.is_terminal() {
            self.live.take();
        }
        let text = status_text(&found.status);
        match found.status.state {
            TaskState::Completed => {
                let result = result_text(&found);
                self.partial.set(Json::of(&result).ok());
                let records = vec![
                    journal.reply_record(&reply_entry(&result))?,
                    journal.end_record(&result)?,
                ];
                self.commit(journal, records).await
            }
            TaskState::InputRequired => {
                let text = if text.is_empty() { "It needs input.".to_owned() } else { text };
                let reply = journal.reply_record(&reply_entry(&text))?;
                let question = journal.question_record(&text)?;
                self.commit(journal, vec![reply, question]).await
            }
            _ => {
                if let Some(id) = self.live.id() {
                    // It waits for something that it will not get. A stop meanwhile cancels it too.
                    self.backend.client.cancel_logged(&id).await;
                    self.live.take();
                }
                let partial = result_text(&found);
                self.partial.set(Json::of(&partial).ok().filter(|_| !partial.is_empty()));
                let name = match found.status.state {
                    TaskState::Canceled => "canceled the task",
                    TaskState::Rejected => "rejected the task",
                    TaskState::AuthRequired => "needs authentication",
                    _ => "failed",
                };
                Err(AttemptError::failed(
                    format!("the remote agent {name}: {text}").trim_end_matches(": "),
                ))
            }
        }
    }

    /// Polls a task until it is neither submitted nor working.
    async fn poll(&self, id: &str) -> Result<Task, AttemptError> {
        let mut pause = POLL_PAUSE_MIN;
        let mut seen_at = Instant::now();
        loop {
            match self.backend.client.get(id).await {
                Ok(task) => {
                    seen_at = Instant::now();
                    match task.status.state {
                        TaskState::Submitted | TaskState::Working | TaskState::Unspecified => {
                            self.report(&format!("works remotely, task {id}"));
                        }
                        _ => return Ok(task),
                    }
                }
                Err(RemoteError::Refused { code, text }) => {
                    return Err(lost(format!("it no longer tells of task {id}: {text} ({code})")));
                }
                Err(RemoteError::NotConnected(text) | RemoteError::Interrupted(text)) => {
                    if seen_at.elapsed() > UNREACHABLE_MAX {
                        return Err(lost(format!("it cannot be reached: {text}")));
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_PAUSE_MAX);
        }
    }

    /// Asks the question of the remote agent, and waits for the answer in place: a stop must reach the
    /// remote task meanwhile.
    async fn ask(&self, journal: &mut RemoteJournal, index: CallIndex) -> Result<(), AttemptError> {
        if let Some(task) = &journal.task {
            self.live.set(&task.task_id);
        }
        if !journal.is_question_parked {
            let question = Json::of(&journal.question_text)?;
            self.host.park(index, ConditionRequest::Question { question }).await?;
            journal.is_question_parked = true;
        }
        self.report("waits for an answer");
        let (completed, completion) = self.host.next_completion().await;
        Ok(journal.apply(completed, &EntryLabel::Ask, &completion)?)
    }

    /// Ends the run with the result. Returns false if another message follows.
    async fn finish(&self, journal: &mut RemoteJournal) -> Result<bool, AttemptError> {
        let text = journal.result.clone().unwrap_or_default();
        let result = match self.agent.read_result(&text).await {
            Ok(result) => result,
            Err(problem) => {
                if journal.base.repairs >= self.agent.stop_policy.max_repairs {
                    return Err(AttemptError::failed(format!(
                        "no usable result. The last: {problem}"
                    )));
                }
                let record = journal.repair_record(&problem)?;
                self.commit(journal, vec![record]).await?;
                return Ok(false);
            }
        };
        if self.host.finish(Vec::new(), result).await? {
            return Ok(true);
        }
        park_on_inbox(self.host, journal).await?;
        Ok(false)
    }

    fn report(&self, activity: &str) {
        let progress = AgentProgress {
            step: 0,
            activity: activity.to_owned(),
            last_tools: String::new(),
            last_text: String::new(),
            tokens: 0,
        };
        self.host.report_progress(progress);
    }
}

/// Returns the text of a reply to a question.
fn answer_text(completion: &CallCompletion) -> String {
    match completion {
        CallCompletion::Reply(reply) => {
            reply.decode::<String>().unwrap_or_else(|_| reply.as_str().to_owned())
        }
        CallCompletion::Refused(refusal) => format!("There is no answer: {refusal}"),
        _ => "There is no answer.".to_owned(),
    }
}
