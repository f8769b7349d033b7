//! The loop: news, model, record, tools, record, until the model has nothing more to do.

use std::sync::Arc;
use std::{fmt, mem};

use brigade_llm::{Effort, ErrorKind, Message, Model, ModelError, StopReason, TokenUsage};
use brigade_model::call::{Answer, Asked, Entry, OpenCall};
use brigade_model::ids::{RunNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::limits::{Left, Rest, Usage};
use brigade_model::outcome::Failure;
use brigade_model::quote_mark::QuoteMark;
use brigade_model::refusal::Refusal;
use serde_json::Value;

use crate::ask::Paid;
use crate::ending::Tried;
use crate::hooks::When;
use crate::host::{self, Host, Proceed, Progress, Record};
use crate::news::Quoter;
use crate::permission::Permissions;
use crate::plugin::Plugin;
use crate::policy::Policy;
use crate::remaining::Standing;
use crate::state::Board;
use crate::toolbox::Tools;
use crate::transcript::{Next, Opening, Transcript, label};
use crate::validate::Schema;

/// How many bytes of the last words, and of what it is at, whoever looks is shown.
const WORDS_SHOWN: usize = 400;
const DOING_SHOWN: usize = 200;

/// One agent, ready to work: everything that it is, but for what it has said and done.
#[derive(Clone)]
pub struct Agent {
    /// Its name or address, for scripts and people.
    pub name: Arc<str>,
    /// What it was asked to do.
    pub task: Arc<str>,
    pub system: Arc<str>,
    pub model: Arc<dyn Model>,
    /// Who provides it, as telemetry names providers.
    pub provider: Arc<str>,
    /// The provider's name of the model.
    pub model_name: Arc<str>,
    pub tools: Tools,
    pub plugins: Vec<Arc<dyn Plugin>>,
    pub permissions: Permissions,
    /// Nobody is there to approve what is to be asked about.
    pub unattended: bool,
    /// What stands around everything that is quoted to it. Its system prompt names it.
    pub mark: Option<QuoteMark>,
    pub policy: Policy,
    /// What its result must look like; words, when there is none.
    pub result: Option<Schema>,
    pub temperature: Option<f64>,
    pub effort: Option<Effort>,
    /// The most tokens of one reply.
    pub max_output: u32,
    /// Tokens that the model takes in all.
    pub window: u64,
    pub cost: Arc<dyn Fn(&TokenUsage) -> Usage + Send + Sync>,
}

/// What an agent begins an attempt with.
#[derive(Clone, Debug)]
pub struct Begun {
    pub run: RunNo,
    pub journal: Vec<Entry>,
    pub open: Vec<OpenCall>,
    /// The model may be asked at once: there is nothing to hear before, and no budget.
    pub at_leave: bool,
}

/// How an attempt came out.
#[derive(Clone, Debug, PartialEq)]
pub enum Exit {
    /// The work is done, and the host knows.
    Finished,
    /// It waits, and there is nothing left of it here.
    Suspended,
    Failed {
        failure: Failure,
        partial: Option<Json>,
    },
    /// The host would not go on: the attempt is over.
    Over(Refusal),
}

impl Agent {
    /// Works until the task is done, waits, or fails. Dropped at any point it can be begun anew from
    /// what the host has written down. `partial` is kept at what there is of a result.
    pub async fn run(&self, host: &dyn Host, begun: Begun, partial: &Partial) -> Exit {
        let (task, quoter) = (self.task.clone(), Quoter::new(self.mark));
        let opening = Opening { task, quoter, board: Board::new(host.session_state()) };
        let mut transcript = match Transcript::load(opening, begun.journal, &begun.open) {
            Ok(transcript) => transcript,
            Err(refusal) => return Exit::failed(format!("its journal cannot be read: {refusal}")),
        };
        transcript.at_leave = begun.at_leave;
        partial.set(transcript.partial());
        self.tools.arrived().await;
        let exit = self.work(host, &mut transcript, (begun.run, partial)).await;
        match exit {
            Ok(exit) => exit,
            Err(Ended::Failure(failure)) => match self.write_owed(host, &mut transcript).await {
                Ok(()) => Exit::Failed { failure, partial: transcript.partial() },
                Err(refusal) => Exit::Over(refusal),
            },
            Err(Ended::Refused(refusal)) => Exit::Over(refusal),
        }
    }

    async fn work(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        (run, partial): (RunNo, &Partial),
    ) -> Result<Exit, Ended> {
        if transcript.run < run {
            self.note(host, transcript, label::RUN, &run).await?;
        }
        self.bind(host, transcript).await?;
        loop {
            while transcript.open() > 0 && !transcript.is_due() {
                self.write_owed(host, transcript).await?;
                match host.rest(transcript.open()).await? {
                    host::Rest::Suspended => return Ok(Exit::Suspended),
                    host::Rest::Answered(index, answer) => transcript.told(index, &answer)?,
                }
            }
            match transcript.next() {
                Next::Calls => self.carry_out(host, transcript).await?,
                Next::Ended { said, stop } => {
                    if self.end_turn(host, transcript, (&said.text(), stop)).await? {
                        return Ok(Exit::Finished);
                    }
                }
                Next::Model => {
                    if !transcript.stepped {
                        self.consult(host, transcript, When::StepEnd).await?;
                        transcript.stepped = true;
                    }
                    self.step(host, transcript, partial).await?;
                }
            }
        }
    }

    /// One step: hear the news, or else ask the model and write down what it says.
    async fn step(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        partial: &Partial,
    ) -> Result<(), Ended> {
        if let Some(failure) = self.policy.ends(&transcript.tally) {
            return Err(failure.into());
        }
        if self.is_long(transcript)
            && let Some(cut) = self.cut(transcript)
        {
            return self.compact(host, transcript, cut).await;
        }
        let Some(granted) = self.proceed(host, transcript).await? else { return Ok(()) };
        let mut request = self.request(transcript, transcript.messages(), granted);
        self.consult_before(host, transcript, &mut request).await?;
        let progress =
            Progress { step: transcript.tally.steps + 1, ..self.progress(transcript, "thinking") };
        match self.listen(host, progress, Arc::new(request)).await? {
            Ok(Some(Paid { reply, spent })) => {
                let (reply, written) = self.within_bounds(reply)?;
                let written = (label::MODEL, written);
                let index = self.consult_after(host, transcript, (&reply, spent), written).await?;
                // Nothing is done before it is written down. Last words are written down with the
                // ending that they are.
                if reply.message.calls().next().is_some() {
                    self.write_owed(host, transcript).await?;
                }
                transcript.said(index, reply);
                partial.set(transcript.partial());
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => self.recover(host, transcript, error).await,
        }
    }

    /// Hears the news; or else says what may be spent.
    pub(crate) async fn proceed(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<Option<Usage>, Ended> {
        let (index, cost) = (transcript.next_index(), self.expected_cost(transcript));
        // That plugins know of the run is written down first, or they would be told of it again after
        // a crash during the call.
        if mem::take(&mut transcript.at_leave) && transcript.owed.is_empty() {
            return Ok(Some(cost.most));
        }
        match host.proceed(mem::take(&mut transcript.owed), index, cost).await? {
            Proceed::News(news) => {
                transcript.enter(index, label::NEWS, &news)?;
                Ok(None)
            }
            Proceed::Exhausted(limit) => Err(Failure::Budget { limit }.into()),
            Proceed::Granted { amount, left } => {
                self.warn(transcript, left)?;
                Ok(Some(amount))
            }
        }
    }

    /// Tells the model of budgets that run low. Written down with what it replies: without a reply it
    /// is to be told again.
    fn warn(&self, transcript: &mut Transcript, left: Left) -> Result<(), Refusal> {
        let of = u64::from(self.policy.max_steps);
        let steps = of.saturating_sub(transcript.tally.steps.into());
        let standing = Standing { left, steps: Rest { left: steps, of, shared: false } };
        let Some(warning) = standing.warning(transcript.warned, Quoter::new(self.mark)) else {
            // What was raised in the meantime is told anew when it runs low.
            transcript.warned = standing.warned();
            return Ok(());
        };
        let (index, answer) = (transcript.next_index(), Answer::Value(Json::of(&warning)?));
        let record = Record::new(index, label::WARNING, Arc::new(answer));
        transcript.enter(index, label::WARNING, &record.answer)?;
        transcript.owed.push(record);
        Ok(())
    }

    /// Writes down what could wait for the next thing to be said, when that is something else.
    pub(crate) async fn write_owed(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<(), Refusal> {
        match mem::take(&mut transcript.owed) {
            owed if owed.is_empty() => Ok(()),
            owed => host.record(owed).await,
        }
    }

    /// A conversation that is too long is made shorter; anything else has been tried often enough.
    async fn recover(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        error: ModelError,
    ) -> Result<(), Ended> {
        let failure = match (error.kind, self.cut(transcript)) {
            (ErrorKind::TooLong, Some(cut)) => return self.compact(host, transcript, cut).await,
            (ErrorKind::TooLong, None) => {
                "the conversation does not fit into the model's window, and there is nothing left in \
                 it to sum up"
                    .to_owned()
            }
            _ => format!("the model: {error}"),
        };
        Err(Failure::Error(failure.into()).into())
    }

    /// The model has nothing more to do. True when the task is done with that.
    async fn end_turn(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        (text, stop): (&str, StopReason),
    ) -> Result<bool, Ended> {
        match self.result(text, stop, transcript).await? {
            Err(problem) => self.note(host, transcript, label::NOTE, &problem).await?,
            Ok(result) => {
                match self.try_to_end(host, transcript, result).await? {
                    Tried::Ended => return Ok(true),
                    Tried::Again => return Ok(false),
                    Tried::Unheard => {}
                }
                match owed(transcript.asked()) {
                    Some(owed) => self.note(host, transcript, label::NOTE, &owed).await?,
                    None => self.wait_for_news(host, transcript).await?,
                }
            }
        }
        Ok(false)
    }

    /// The result that the last words are; or what is wrong with them, to be mended.
    async fn result(
        &self,
        text: &str,
        stop: StopReason,
        transcript: &Transcript,
    ) -> Result<Result<Json, String>, Ended> {
        let problem = match (stop, &self.result) {
            (StopReason::Filtered, _) => {
                let held_back = "the provider held the model's reply back";
                return Err(Failure::Error(held_back.into()).into());
            }
            (StopReason::Length, _) => {
                "Your reply was cut off at the most tokens that one may have. Go on, in shorter \
                 pieces."
                    .to_owned()
            }
            (StopReason::EndOfTurn, None) if text.trim().is_empty() => {
                "Your reply was empty. Say what came of your task, or go on with it.".to_owned()
            }
            (StopReason::EndOfTurn, None) => return Ok(Ok(Json::of(text)?)),
            (StopReason::EndOfTurn, Some(schema)) => match read_result(schema, text).await {
                Ok(result) => return Ok(Ok(Json::of(&result)?)),
                Err(problem) => format!(
                    "Your result does not fit: {problem}\nReply with the whole result again, as JSON \
                     that fits the schema and nothing else."
                ),
            },
        };
        if transcript.tally.notes >= self.policy.max_repairs {
            let times = transcript.tally.notes + 1;
            let failure = format!("no usable result after {times} tries. The last: {problem}");
            return Err(Failure::Error(failure.into()).into());
        }
        Ok(Err(problem))
    }

    async fn wait_for_news(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<(), Ended> {
        let index = transcript.next_index();
        host.park(index, Asked::News).await?;
        transcript.parked(index, None);
        host.progress(self.progress(transcript, "waiting for its tasks"));
        Ok(())
    }

    async fn note(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        label: &'static str,
        what: &impl serde::Serialize,
    ) -> Result<(), Ended> {
        let (index, answer) = (transcript.next_index(), Arc::new(Answer::Value(Json::of(what)?)));
        // In one commit with what is owed: what plugins know of a refused ending, for one, must not be
        // there without the refusal.
        transcript.owed.push(Record::new(index, label, answer.clone()));
        self.write_owed(host, transcript).await?;
        Ok(transcript.enter(index, label, &answer)?)
    }

    pub(crate) fn progress(&self, transcript: &Transcript, doing: impl Into<String>) -> Progress {
        Progress {
            step: transcript.tally.steps,
            doing: beginning(doing.into(), DOING_SHOWN),
            used: beginning(transcript.last_tools(), DOING_SHOWN),
            words: ending(&current_words(&transcript.messages)),
            tokens: transcript.tally.tokens,
        }
    }
}

/// The words of the newest message of the model, as long as nobody spoke after it: what it said before
/// is no word of what it is at now.
fn current_words(messages: &[(u32, Message)]) -> String {
    let newest = messages.iter().rev().find_map(|(_, message)| match message {
        Message::Assistant(said) => Some(said.text()),
        Message::User(_) => Some(String::new()),
        Message::Results(_) => None,
    });
    newest.unwrap_or_default()
}

/// Reminds of questions: who waits for tasks that wait for it would wait for ever.
fn owed(asked: &[TaskNo]) -> Option<String> {
    let tasks: Vec<String> = asked.iter().map(|no| format!("task {no}")).collect();
    (!tasks.is_empty()).then(|| {
        format!(
            "You have ended your turn without an answer for {}, which asked you something and may \
             wait for it. Answer with send_message, or stop the task; if it has its answer by now, \
             just end your turn again.",
            tasks.join(", ")
        )
    })
}

fn beginning(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
        text.push_str("..");
    }
    text
}

/// The last words of a text, as many as whoever looks is shown.
pub(crate) fn ending(text: &str) -> String {
    text[text.ceil_char_boundary(text.len().saturating_sub(WORDS_SHOWN))..].to_owned()
}

/// The JSON in a reply, which may stand in a code block, as far as it fits the schema.
async fn read_result(schema: &Schema, text: &str) -> Result<Value, String> {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let text = inner.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner));
    let value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    schema.check_apart(&value).await.map_err(|mismatch| mismatch.to_string())?;
    Ok(value)
}

impl Exit {
    fn failed(message: impl Into<Arc<str>>) -> Self {
        Self::Failed { failure: Failure::Error(message.into()), partial: None }
    }
}

/// Why the loop does not go on.
#[derive(Debug)]
pub(crate) enum Ended {
    Failure(Failure),
    Refused(Refusal),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// What there is of a result, for whoever ends the agent from outside.
#[derive(Clone, Debug, Default)]
pub struct Partial(Arc<std::sync::Mutex<Option<Json>>>);

impl Partial {
    pub fn set(&self, partial: Option<Json>) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = partial;
    }

    pub fn get(&self) -> Option<Json> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub fn take(&self) -> Option<Json> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("name", &self.name).finish_non_exhaustive()
    }
}
