//! Runs the agents of other vendors as agents of Brigade.
//!
//! ```text
//!   inbox ── prompt ── TurnRecord ── program ── output ── replies, results, TurnState ──┐
//!     ▲                                                                                │
//!     └────────── next turn in the same session, until the inbox is empty ─────────────┘
//! ```
//!
//! Each turn has a program of its own, so nothing runs while the agent waits. Messages and results of
//! its tasks are the prompt of its next turn.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use brigade_agent::agent_program::{ProgramHost, ProgramSpec};
use brigade_agent::inbox::{Quoter, unanswered_reminder};
use brigade_agent::permission::{PermissionSubject, Permissions};
use brigade_agent::{
    Agent, AgentExit, AttemptInput, Backend, BackendModels, BackendRun, BoxFuture, CostEstimate,
    Host, JournalRecord, PartialResult, StepGrant,
};
use brigade_model::entry_label::EntryLabel;
use brigade_model::json::Json;
use brigade_model::limits::{LimitKind, Money, Usage};
use brigade_model::outcome::Failure;
use brigade_model::program_access::ProgramAccess;
use brigade_model::refusal::Refusal;
use brigade_model::truncate::truncate_middle;

use self::turn_journal::{
    StoredInput, StoredOutcome, StoredSession, StoredTurn, TurnJournal, TurnRecord, TurnState,
};
use self::turn_run::{TurnContext, TurnExit, TurnRun};
use crate::adapter::{AccessLevel, TurnStart};
use crate::attempt_error::AttemptError;
use crate::external_agent::ExternalAgent;
use crate::journal_base::{BackendJournal, commit_records, park_on_inbox, wait_for_inbox};

mod reply_writer;
mod turn_journal;
mod turn_permissions;
mod turn_run;

/// The prompt of a turn for which nobody wrote one.
const RESUME_PROMPT: &str = "Go on with your task.";
/// The number of turns in one run whose program may be lost.
const LOST_TURNS_MAX: u32 = 3;

/// The bytes of an answer that the prompt of a new session quotes.
const LAST_ANSWER_SHOWN: usize = 32 * 1024;

/// The amount that is reserved for a turn. Its cost is not known before, so this is the least one.
const LEAST_COST: CostEstimate = CostEstimate { max: LEAST_USAGE, min: LEAST_USAGE };
const LEAST_USAGE: Usage = Usage { tokens: 1, money: Money(1) };

/// A backend that runs the agent of another vendor.
#[derive(Clone)]
pub struct ExternalBackend {
    agent: Arc<dyn ExternalAgent>,
    brigade: Option<String>,
}

impl ExternalBackend {
    pub fn new(agent: Arc<dyn ExternalAgent>) -> Self {
        Self { agent, brigade: None }
    }

    /// Offers Brigade's tools to the agent: the program at this path serves them with `mcp`.
    #[must_use]
    pub fn brigade_program(self, path: PathBuf) -> Self {
        Self { brigade: path.into_os_string().into_string().ok(), ..self }
    }

    pub fn agent(&self) -> &Arc<dyn ExternalAgent> {
        &self.agent
    }
}

impl fmt::Debug for ExternalBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExternalBackend").field(&self.agent.name()).finish()
    }
}

impl Backend for ExternalBackend {
    fn models(&self) -> BackendModels {
        BackendModels::OfProgram { reports_cost: self.agent.reports_cost() }
    }

    fn check_permissions(&self, permissions: &Permissions) -> Result<(), Refusal> {
        let access = access_level(&*self.agent, permissions);
        let checked = self.agent.check_access(access);
        checked.map_err(|error| Refusal::invalid(error.to_string()))
    }

    fn program_access(&self, permissions: &Permissions) -> Option<ProgramAccess> {
        let access = access_level(&*self.agent, permissions);
        (!self.agent.asks_permission()).then_some(match access {
            AccessLevel::Read => ProgramAccess::Read,
            AccessLevel::Edit => ProgramAccess::Edit,
            AccessLevel::Full => ProgramAccess::Full,
        })
    }

    fn asks_permission(&self) -> bool {
        self.agent.asks_permission()
    }

    fn run<'a>(&'a self, run: BackendRun<'a>) -> BoxFuture<'a, AgentExit> {
        Box::pin(async move {
            let BackendRun { agent, host, input, partial } = run;
            let Some(programs) = host.programs() else {
                let failure = Failure::error("this runtime cannot start processes for agents");
                return AgentExit::Failed { failure, partial: None };
            };
            let attempt = Attempt {
                external: &*self.agent,
                brigade: self.brigade.as_deref(),
                agent,
                host,
                partial,
                directory: programs.directory(),
                programs,
            };
            match attempt.run(input).await {
                Ok(exit) => exit,
                Err(error) => error.into_exit(partial),
            }
        })
    }
}

/// The next action of an attempt.
enum NextAction {
    WaitForInbox,
    ContinueTurn(Box<StoredTurn>),
    BeginTurn,
    End(StoredOutcome),
}

/// One attempt of a run.
struct Attempt<'a> {
    external: &'a dyn ExternalAgent,
    brigade: Option<&'a str>,
    agent: &'a Agent,
    host: &'a dyn Host,
    partial: &'a PartialResult,
    programs: Arc<dyn ProgramHost>,
    directory: Option<Arc<str>>,
}

impl Attempt<'_> {
    async fn run(&self, input: AttemptInput) -> Result<AgentExit, AttemptError> {
        let quoter = Quoter::new(self.agent.quote_mark);
        let mut journal = TurnJournal::load(input.journal, &input.parked_calls, quoter)?;
        self.host.abandon(std::mem::take(&mut journal.stale_calls)).await?;
        if journal.base.run < input.run {
            let record = journal.base.record(EntryLabel::RunStarted, 1, &input.run)?;
            self.commit(&mut journal, vec![record]).await?;
        }
        loop {
            self.note_partial(&journal);
            match next_action(&journal) {
                NextAction::WaitForInbox => {
                    if !wait_for_inbox(self.host, &mut journal).await? {
                        return Ok(AgentExit::Suspended);
                    }
                }
                NextAction::ContinueTurn(turn) => self.continue_turn(&mut journal, *turn).await?,
                NextAction::BeginTurn => self.begin_turn(&mut journal).await?,
                NextAction::End(outcome) => {
                    if self.end_run(&mut journal, outcome).await? {
                        return Ok(AgentExit::Finished);
                    }
                }
            }
        }
    }

    fn note_partial(&self, journal: &TurnJournal) {
        let answer = journal.answer();
        if !answer.is_empty() {
            self.partial.set(Json::of(answer).ok());
        }
    }

    async fn commit(
        &self,
        journal: &mut TurnJournal,
        records: Vec<JournalRecord>,
    ) -> Result<(), AttemptError> {
        Ok(commit_records(self.host, journal, records).await?)
    }

    /// Takes the inbox into the next prompt, or begins a turn if the inbox is empty.
    async fn begin_turn(&self, journal: &mut TurnJournal) -> Result<(), AttemptError> {
        let index = journal.base.next_index();
        match self.host.begin_step(Vec::new(), index, LEAST_COST).await? {
            StepGrant::Inbox(batch) => Ok(journal.apply(index, &EntryLabel::Inbox, &batch)?),
            StepGrant::Exhausted(limit) => Err(AttemptError::Failed(Failure::Budget { limit })),
            StepGrant::Budget { remaining, .. } => {
                // An interrupt that the last turn did not take belongs to a message of this prompt.
                tokio::select! {
                    biased;
                    () = self.host.wait_for_interrupt() => {}
                    () = std::future::ready(()) => {}
                }
                let budget = remaining.money.map(|money| Money(money.amount));
                let record = TurnRecord { budget, ..self.next_turn(journal) };
                self.store_turn(journal, record).await
            }
        }
    }

    /// Returns the next turn: in the last session if the agent can resume it.
    fn next_turn(&self, journal: &TurnJournal) -> TurnRecord {
        let turn = journal.last_turn.as_ref().map_or(1, |turn| turn.record.turn + 1);
        let resumable = journal.last_session_id().filter(|_| self.external.resumes_sessions());
        let messages = match journal.base.unsent.is_empty() {
            true => RESUME_PROMPT.to_owned(),
            false => journal.base.unsent.join("\n\n"),
        };
        let new_session = || StoredSession::New { id: self.programs.new_session_id() };
        let (session, prompt) = match (resumable, &journal.last_turn) {
            (Some(id), last) => {
                let cut_off = last.as_ref().filter(|last| last.is_cut_off() && !journal.has_reply);
                let prompt = match cut_off {
                    Some(last) => format!(
                        "{}\n\n[This prompt is sent again, since your program ended before it \
                         answered.]\n\n{messages}",
                        last.record.prompt
                    ),
                    None => messages,
                };
                (StoredSession::Resumed { id: id.to_owned() }, prompt)
            }
            (None, None) => {
                let rest = journal.base.unsent.iter().map(String::as_str);
                let parts = [&*self.agent.system_prompt, &*self.agent.task];
                let parts = parts.into_iter().chain(rest).map(str::trim);
                let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
                (new_session(), parts.join("\n\n"))
            }
            (None, Some(last)) => {
                let answer = truncate_middle(last.state.progress.answer(), LAST_ANSWER_SHOWN);
                let prompt = format!(
                    "{}\n\n{}\n\n[You have worked on this before, in a session that cannot be \
                     resumed. Check what is done already. Your last text was:]\n{answer}\n\n{messages}",
                    self.agent.system_prompt.trim(),
                    self.agent.task
                );
                (new_session(), prompt.trim().to_owned())
            }
        };
        TurnRecord { turn, run: journal.base.run, prompt: prompt.into(), session, budget: None }
    }

    /// Stores the start of a turn with its first input, before its program starts.
    async fn store_turn(
        &self,
        journal: &mut TurnJournal,
        record: TurnRecord,
    ) -> Result<(), AttemptError> {
        let start = self.turn_start(&record);
        // A turn that cannot start is refused before anything is stored.
        self.program_spec(&start)?;
        let opening = self.external.begin_turn(&start);
        let text = String::from_utf8(opening.input.bytes)
            .map_err(|_| Refusal::internal("the input of a program is not UTF-8"))?;
        let state = TurnState {
            turn: record.turn,
            input: StoredInput { text, ends: opening.input.ends },
            conversation: opening.conversation.save(),
            ledger: journal.next_ledger(),
            ..TurnState::default()
        };
        let records = vec![journal.turn_record(&record)?, journal.state_record(&state)?];
        self.commit(journal, records).await
    }

    async fn continue_turn(
        &self,
        journal: &mut TurnJournal,
        turn: StoredTurn,
    ) -> Result<(), AttemptError> {
        let spec = self.program_spec(&self.turn_start(&turn.record))?;
        let context = TurnContext {
            agent: self.agent,
            external: self.external,
            host: self.host,
            programs: &*self.programs,
            directory: self.directory.as_deref(),
        };
        match TurnRun::restore(context, journal, turn)?.run(spec).await? {
            TurnExit::Ended => Ok(()),
            TurnExit::BudgetExhausted(limit) => {
                Err(AttemptError::Failed(Failure::Budget { limit }))
            }
        }
    }

    fn turn_start<'t>(&'t self, record: &'t TurnRecord) -> TurnStart<'t> {
        TurnStart {
            prompt: &record.prompt,
            session: record.session.as_start(),
            model: Some(&*self.agent.model_name).filter(|name| !name.is_empty()),
            access: access_level(self.external, &self.agent.permissions),
            directory: self.directory.as_deref().unwrap_or("."),
            brigade: self.brigade,
            budget: record.budget,
        }
    }

    fn program_spec(&self, start: &TurnStart<'_>) -> Result<ProgramSpec, AttemptError> {
        let is_set = |name: &str| std::env::var_os(name).is_some();
        let spec = self.external.program_spec(start, &is_set);
        spec.map_err(|error| AttemptError::Failed(Failure::error(error.to_string())))
    }

    /// Ends the run with the outcome of its last turn. Returns false if another turn follows.
    async fn end_run(
        &self,
        journal: &mut TurnJournal,
        outcome: StoredOutcome,
    ) -> Result<bool, AttemptError> {
        match outcome {
            StoredOutcome::Succeeded {} => self.finish(journal).await,
            StoredOutcome::Failed { text } => Err(AttemptError::failed(text)),
            StoredOutcome::BudgetSpent => {
                Err(AttemptError::Failed(Failure::Budget { limit: LimitKind::Money }))
            }
            StoredOutcome::Lost { text } => {
                if !self.external.resumes_sessions() || journal.lost_turns > LOST_TURNS_MAX {
                    return Err(AttemptError::failed(text));
                }
                let note = format!(
                    "Your program was interrupted: {text}. Go on with your task. First check what is \
                     done already."
                );
                self.note(journal, &note).await?;
                Ok(false)
            }
            StoredOutcome::Interrupted => {
                self.note(journal, RESUME_PROMPT).await?;
                Ok(false)
            }
        }
    }

    async fn note(&self, journal: &mut TurnJournal, note: &str) -> Result<(), AttemptError> {
        let record = journal.base.record(EntryLabel::Note, 1, note)?;
        self.commit(journal, vec![record]).await
    }

    async fn finish(&self, journal: &mut TurnJournal) -> Result<bool, AttemptError> {
        let result = match self.agent.read_result(journal.answer()).await {
            Ok(result) => result,
            Err(problem) => {
                if journal.base.repairs >= self.agent.stop_policy.max_repairs {
                    return Err(AttemptError::failed(format!(
                        "no usable result. The last: {problem}"
                    )));
                }
                let records = journal.repair_records(&problem)?;
                self.commit(journal, records).await?;
                return Ok(false);
            }
        };
        if self.host.finish(Vec::new(), result).await? {
            return Ok(true);
        }
        if let Some(reminder) = unanswered_reminder(&journal.asking) {
            self.note(journal, &reminder).await?;
            return Ok(false);
        }
        park_on_inbox(self.host, journal).await?;
        Ok(false)
    }
}

/// Returns the access of a program: not more than the rules allow without a question, unless it asks
/// for permissions.
fn access_level(external: &dyn ExternalAgent, permissions: &Permissions) -> AccessLevel {
    let is_allowed = |tool: &str, is_shell| {
        let subject = PermissionSubject { tool, text: None, is_shell };
        permissions.check(&subject).is_allowed()
    };
    if external.asks_permission() || is_allowed("run_process", true) {
        AccessLevel::Full
    } else if is_allowed("write_file", false) && is_allowed("edit_file", false) {
        AccessLevel::Edit
    } else {
        AccessLevel::Read
    }
}

fn next_action(journal: &TurnJournal) -> NextAction {
    if journal.base.inbox_wait.is_some() {
        return NextAction::WaitForInbox;
    }
    let Some(turn) = &journal.last_turn else { return NextAction::BeginTurn };
    match &turn.state.outcome {
        // The run of that turn has ended, and its program with it.
        None if turn.record.run < journal.base.run => NextAction::BeginTurn,
        None => NextAction::ContinueTurn(Box::new(turn.clone())),
        Some(outcome @ (StoredOutcome::Failed { .. } | StoredOutcome::BudgetSpent))
            if turn.record.run == journal.base.run =>
        {
            NextAction::End(outcome.clone())
        }
        // A message, a note or a new run asks for another turn.
        Some(_) if !journal.base.unsent.is_empty() || turn.record.run < journal.base.run => {
            NextAction::BeginTurn
        }
        Some(outcome) => NextAction::End(outcome.clone()),
    }
}
