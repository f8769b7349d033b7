//! One turn: starts its program or finds it again, reads its output, answers its requests.
//!
//! Each commit has the transcript entries of the output that was read, and the [`TurnState`] after
//! it. The next attempt goes on from the last state: it reads the rest of the output, and writes the
//! last input again, of which the program gets every byte once.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use brigade_agent::agent_program::{
    AgentProgram, OutputPiece, ProgramEnd, ProgramHost, ProgramSpec, ProgramStart, ProgramStream,
};
use brigade_agent::{Agent, AgentOutput, AgentProgress, Host, JournalRecord};
use brigade_llm::TokenUsage;
use brigade_model::call::CallCompletion;
use brigade_model::ids::CallIndex;
use brigade_model::limits::{LimitKind, Usage};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::truncate::{tail_bytes, truncate_end};
use tokio::time::{Instant, sleep_until};

use super::LEAST_COST;
use super::reply_writer::ReplyWriter;
use super::turn_journal::{
    OpenCall, StopCause, StoredInput, StoredOutcome, StoredTurn, TurnJournal,
};
use crate::event_reader::{EventLine, EventReader, LineTooLong};
use crate::external_agent::{ExternalAgent, ProgramInput, TurnConversation};
use crate::journal_base::commit_records;
use crate::turn_events::{NoticeLevel, TurnEvent, TurnNotice};
use crate::turn_outcome::{FailureCause, TurnEnd, TurnOutcome};
use crate::usage::{ReportPosition, UsageReport};

/// The output in bytes after which its position is stored, although nothing else is. The program
/// waits when much more of it is not released.
const UNCOMMITTED_MAX: u64 = 4 * 1024 * 1024;
/// The time after which a text is committed, although little was read since the last commit.
const TEXT_COMMIT_DELAY: Duration = Duration::from_secs(1);
/// The largest number of calls without a result in the state. An older one gets no result.
const OPEN_CALLS_MAX: usize = 64;
/// The longest id of a call in the state, in bytes.
const CALL_ID_MAX: usize = 1024;
/// The time that a program has after its turn, to exit by itself.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);
/// The same time for a program that may outlive its turn.
const SERVER_EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// The bytes of the standard error that a failed turn reports.
const STDERR_SHOWN: usize = 8 * 1024;
/// The bytes of text that a progress report contains.
const LAST_TEXT_SHOWN: usize = 400;
const ACTIVITY_SHOWN: usize = 200;

/// The parts of the surroundings that a turn uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnContext<'a> {
    pub(super) agent: &'a Agent,
    pub(super) external: &'a dyn ExternalAgent,
    pub(super) host: &'a dyn Host,
    pub(super) programs: &'a dyn ProgramHost,
    pub(super) directory: Option<&'a str>,
}

/// The end of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) enum TurnExit {
    /// Its outcome is stored.
    Ended,
    BudgetExhausted(LimitKind),
}

/// A turn whose program runs, or has ended without an outcome.
#[derive(Debug)]
pub(super) struct TurnRun<'a> {
    pub(super) context: TurnContext<'a>,
    pub(super) journal: &'a mut TurnJournal,
    pub(super) turn: StoredTurn,
    pub(super) conversation: Box<dyn TurnConversation>,
    reader: EventReader,
    replies: ReplyWriter,
    /// Records of output that is read but not committed.
    unflushed: Vec<JournalRecord>,
    /// Requests and questions of the last line that are new, and those that it withdrew.
    pub(super) changed_requests: Vec<CallIndex>,
    /// Input that is not committed.
    pub(super) unsent_input: ProgramInput,
    spent: Usage,
    /// The output before this offset is committed.
    committed_offset: u64,
    /// True if the output that was read must be committed now.
    pub(super) must_commit: bool,
    /// The time at which texts that were read are committed at the latest.
    commit_at: Option<Instant>,
    /// The size of the last state that was committed, in bytes.
    state_size: u64,
    unread_output: Option<LineTooLong>,
}

impl<'a> TurnRun<'a> {
    /// Continues the last turn of the journal.
    pub(super) fn restore(
        context: TurnContext<'a>,
        journal: &'a mut TurnJournal,
        turn: StoredTurn,
    ) -> Result<Self, Refusal> {
        let conversation = context.external.restore_conversation(&turn.state.conversation)?;
        let replies = ReplyWriter::new(journal.steps);
        let committed_offset = turn.state.output_offset;
        Ok(Self {
            context,
            journal,
            turn,
            conversation,
            reader: EventReader::default(),
            replies,
            unflushed: Vec::new(),
            changed_requests: Vec::new(),
            unsent_input: ProgramInput::default(),
            spent: Usage::NONE,
            must_commit: false,
            commit_at: None,
            state_size: 0,
            committed_offset,
            unread_output: None,
        })
    }

    /// Runs the turn until its outcome is stored, or until a budget is exhausted.
    pub(super) async fn run(mut self, spec: ProgramSpec) -> Result<TurnExit, Refusal> {
        let index = self.turn.program_index();
        let start = ProgramStart { index, recorded: self.turn.program.clone(), spec };
        let program = self.context.programs.start_program(start).await?;
        self.write_input(&*program).await?;
        self.forget_input();
        self.continue_requests(&*program).await?;
        if self.turn.state.stop.is_some() {
            program.stop().await?;
        }
        if let Some(limit) = self.read_output(&*program).await? {
            program.stop().await?;
            return Ok(TurnExit::BudgetExhausted(limit));
        }
        let end = self.wait_for_end(&*program).await?;
        self.store_outcome(&end).await?;
        Ok(TurnExit::Ended)
    }

    /// Reads the output to its end. Returns the budget that is exhausted before it, if any.
    async fn read_output(
        &mut self,
        program: &dyn AgentProgram,
    ) -> Result<Option<LimitKind>, Refusal> {
        let host = self.context.host;
        let mut output = program.read_output(self.turn.state.output_offset).await?;
        let mut interrupt = pin!(host.wait_for_interrupt());
        let mut exit_deadline = None;
        loop {
            if self.turn.state.progress.is_closed() && exit_deadline.is_none() {
                exit_deadline = Some(Instant::now() + self.exit_timeout());
            }
            let commit_at = self.commit_at;
            let may_stop = self.turn.state.stop.is_none();
            let may_interrupt = may_stop && self.can_interrupt();
            tokio::select! {
                piece = output.next() => match piece? {
                    Some(piece) => {
                        if let Some(limit) = self.read_piece(program, piece).await? {
                            return Ok(Some(limit));
                        }
                    }
                    None => break,
                },
                (index, completion) = host.next_completion() => {
                    self.apply_completion(index, &completion);
                }
                () = sleep_until(commit_at.unwrap_or_else(Instant::now)), if commit_at.is_some() => {
                    self.must_commit = true;
                }
                () = &mut interrupt, if may_interrupt => {
                    self.stop_program(program, StopCause::Interrupted).await?;
                }
                () = sleep_until(exit_deadline.unwrap_or_else(Instant::now)),
                    if exit_deadline.is_some() && may_stop =>
                {
                    self.stop_program(program, StopCause::Lingered).await?;
                }
            }
            if self.must_commit {
                self.commit(program).await?;
            }
            output.release(self.committed_offset);
        }
        let rest = std::mem::take(&mut self.reader).finish();
        match rest {
            Ok(Some(line)) => self.read_line(program, line).await?,
            Ok(None) => {}
            Err(error) => self.unread_output = Some(error),
        }
        self.commit(program).await?;
        Ok(None)
    }

    /// Commits what was spent. Returns a budget that is exhausted by it, if the turn goes on.
    async fn commit_spent(
        &mut self,
        program: &dyn AgentProgram,
    ) -> Result<Option<LimitKind>, Refusal> {
        if self.spent == Usage::NONE {
            return Ok(None);
        }
        self.commit(program).await?;
        match self.turn.state.progress.is_closed() {
            true => Ok(None),
            false => self.context.host.find_exhausted_budget(LEAST_COST).await,
        }
    }

    fn exit_timeout(&self) -> Duration {
        match self.context.external.outlives_turn() {
            true => SERVER_EXIT_TIMEOUT,
            false => EXIT_TIMEOUT,
        }
    }

    /// Checks that the turn succeeded and its program was only stopped because it went on after it.
    fn is_success_of_server(&self) -> bool {
        let state = &self.turn.state;
        state.stop == Some(StopCause::Lingered)
            && self.context.external.outlives_turn()
            && self.unread_output.is_none()
            && state.progress.closing.as_ref().is_some_and(|closing| closing.success)
    }

    /// Checks that the session can go on after an interruption.
    fn can_interrupt(&self) -> bool {
        self.context.external.resumes_sessions()
            && self.turn.state.progress.session_id().is_some()
            && !self.turn.state.progress.is_closed()
    }

    async fn stop_program(
        &mut self,
        program: &dyn AgentProgram,
        cause: StopCause,
    ) -> Result<(), Refusal> {
        // The cause is stored first: after a crash, the end of the program is not taken for its own.
        self.turn.state.stop = Some(cause);
        self.commit(program).await?;
        program.stop().await
    }

    /// Reads a piece of the output. Returns a budget that one of its lines exhausts.
    async fn read_piece(
        &mut self,
        program: &dyn AgentProgram,
        piece: OutputPiece,
    ) -> Result<Option<LimitKind>, Refusal> {
        if piece.stream == ProgramStream::Stderr {
            self.read_stderr(&piece);
            return Ok(None);
        }
        match self.reader.push(piece.offset, &piece.bytes) {
            Ok(lines) => {
                for line in lines {
                    self.read_line(program, line).await?;
                    // A piece may have many lines, and the rest of them is not paid for.
                    if let Some(limit) = self.commit_spent(program).await? {
                        return Ok(Some(limit));
                    }
                }
            }
            // The rest of the output is read, so that the program can end, but has no meaning.
            Err(error) => {
                if self.unread_output.replace(error).is_none() && self.turn.state.stop.is_none() {
                    self.stop_program(program, StopCause::LineTooLong).await?;
                }
            }
        }
        Ok(None)
    }

    fn read_stderr(&mut self, piece: &OutputPiece) {
        let state = &mut self.turn.state;
        let end = piece.offset + piece.bytes.len() as u64;
        if end <= state.stderr_offset {
            return;
        }
        state.stderr_offset = end;
        if self.reader.is_between_lines() {
            state.output_offset = state.output_offset.max(end);
            self.must_commit |= end - self.committed_offset >= UNCOMMITTED_MAX;
        }
        state.stderr.push_str(&String::from_utf8_lossy(&piece.bytes));
        state.stderr = tail_bytes(&state.stderr, STDERR_SHOWN).to_owned();
    }

    async fn read_line(
        &mut self,
        program: &dyn AgentProgram,
        line: EventLine,
    ) -> Result<(), Refusal> {
        self.turn.state.progress.observe_line(&line.content);
        let step = self.conversation.read_line(&line.content);
        self.turn.state.output_offset = line.end;
        self.must_commit |= line.end - self.committed_offset >= UNCOMMITTED_MAX;
        self.add_input(step.input);
        for (index, event) in (0..).zip(step.events) {
            self.turn.state.progress.observe_event(&event);
            let position =
                ReportPosition { turn: self.turn.record.turn.into(), offset: line.end, index };
            self.apply_event(event, position)?;
        }
        self.commit_requests(program).await
    }

    fn apply_event(&mut self, event: TurnEvent, position: ReportPosition) -> Result<(), Refusal> {
        match event {
            TurnEvent::SessionStarted { .. } => self.must_commit |= self.is_session_new(),
            TurnEvent::Text(part) => {
                self.report(self.replies.text_output(&part));
                self.replies.add_text(&part);
                // A piece of a text is stored with the rest of it.
                if !part.is_delta {
                    self.commit_text(position.offset);
                }
                self.must_commit |= self.replies.is_large();
                self.report_progress("thinking");
            }
            TurnEvent::Reasoning { text } => {
                self.report(self.replies.reasoning_output(&text));
                self.replies.add_reasoning(&text);
            }
            TurnEvent::ToolCall { id, name, arguments } => {
                if !self.turn.state.open_calls.contains_key(&id) {
                    self.report(self.replies.call_output(&id, &name, &arguments));
                    let added = self.replies.add_call(self.journal, &id, &name, arguments)?;
                    self.unflushed.push(added.record);
                    self.open_call(id, &name, added.slots);
                    self.must_commit = true;
                    self.report_progress(&name);
                }
            }
            TurnEvent::ToolResult { id, text, failed } => {
                if let Some(call) = self.turn.state.open_calls.remove(&id) {
                    self.flush_reply()?;
                    let result = ReplyWriter::result(&id, &call, &text, failed);
                    self.report(vec![ReplyWriter::result_output(&result)]);
                    self.unflushed.push(ReplyWriter::result_record(call.slots, &result)?);
                    self.must_commit = true;
                    self.report_progress("thinking");
                }
            }
            TurnEvent::PermissionRequest(request) => self.decide_permission(request),
            TurnEvent::RequestWithdrawn { id } => self.withdraw_request(&id),
            TurnEvent::Question(question) => self.add_question(question),
            TurnEvent::Usage(report) => self.count_usage(position, &report),
            TurnEvent::Closed(_) => {
                self.must_commit = true;
                self.report_progress("done");
            }
            TurnEvent::Notice(TurnNotice { level, text }) => {
                if level != NoticeLevel::Info {
                    self.report_progress(&text);
                }
            }
            TurnEvent::OtherRequest { .. } | TurnEvent::Step { .. } => {}
        }
        Ok(())
    }

    /// Adds a call to those without a result, of which the state has only the last ones.
    fn open_call(&mut self, id: String, name: &str, slots: u32) {
        if id.len() > CALL_ID_MAX {
            return;
        }
        let open = &mut self.turn.state.open_calls;
        if open.len() >= OPEN_CALLS_MAX {
            let oldest = open.iter().min_by_key(|(_, call)| call.slots);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                open.remove(&oldest);
            }
        }
        let name = truncate_end(name, ACTIVITY_SHOWN).into();
        open.insert(id, OpenCall { slots, name });
    }

    /// Commits a text with others, so that the states take no more space than the output. A program
    /// that prints no more is not waited for.
    fn commit_text(&mut self, offset: u64) {
        self.must_commit |= offset.saturating_sub(self.committed_offset) >= self.state_size;
        self.commit_at.get_or_insert_with(|| Instant::now() + TEXT_COMMIT_DELAY);
    }

    fn is_session_new(&self) -> bool {
        let stored = self.journal.last_turn.as_ref();
        let stored = stored.and_then(|turn| turn.state.progress.session_id());
        stored != self.turn.state.progress.session_id()
    }

    fn count_usage(&mut self, position: ReportPosition, report: &UsageReport) {
        let state = &mut self.turn.state;
        let session_id = state.progress.session_id().unwrap_or_default().to_owned();
        let cost = &self.context.agent.cost;
        let price = |tokens: &TokenUsage| cost(tokens).money;
        let counted = state.ledger.count(position, &session_id, report, price);
        let tokens = counted.tokens;
        let spent = Usage { money: counted.money, ..cost(&tokens) };
        if spent == Usage::NONE {
            return;
        }
        self.journal.tokens = self.journal.tokens.saturating_add(spent.tokens);
        self.spent = self.spent.plus(spent);
        self.context.host.report_reply(&tokens, spent);
        self.must_commit = true;
    }

    /// Applies the completion of a parked call: a verdict, an answer, or the program's end.
    pub(super) fn apply_completion(&mut self, index: CallIndex, completion: &Arc<CallCompletion>) {
        if index == self.turn.end_index() {
            self.turn.end = Some(completion.clone());
            return;
        }
        if self.turn.state.open_questions.contains_key(&index.0) {
            let answer = match &**completion {
                CallCompletion::Reply(reply) => {
                    Some(reply.decode().unwrap_or_else(|_| reply.as_str().to_owned()))
                }
                _ => None,
            };
            self.answer_question(index, answer.as_deref());
            return;
        }
        let Some(request) = self.turn.state.open_requests.get(&index.0).cloned() else { return };
        let verdict = match &**completion {
            CallCompletion::Verdict(verdict) => Some(verdict),
            _ => None,
        };
        self.answer(index, &request, verdict);
    }

    pub(super) fn add_input(&mut self, input: ProgramInput) {
        if input == ProgramInput::default() {
            return;
        }
        self.unsent_input.bytes.extend(input.bytes);
        self.unsent_input.ends |= input.ends;
        self.must_commit = true;
    }

    /// Commits what was read, and then writes the input that follows from it.
    pub(super) async fn commit(&mut self, program: &dyn AgentProgram) -> Result<(), Refusal> {
        let has_input = self.stage_input()?;
        self.record(None).await?;
        if has_input {
            self.write_input(program).await?;
            self.forget_input();
        }
        Ok(())
    }

    /// Drops input that the shim has stored, so that later commits do not repeat it.
    fn forget_input(&mut self) {
        let state = &mut self.turn.state;
        state.input_offset += state.input.text.len() as u64;
        state.input.text = String::new();
    }

    /// Moves new input into the state. Returns false if there is none.
    fn stage_input(&mut self) -> Result<bool, Refusal> {
        let input = std::mem::take(&mut self.unsent_input);
        if input == ProgramInput::default() {
            return Ok(false);
        }
        let text = String::from_utf8(input.bytes)
            .map_err(|_| Refusal::internal("the input of a program is not UTF-8"))?;
        let state = &mut self.turn.state;
        state.input_offset += state.input.text.len() as u64;
        state.input = StoredInput { text, ends: input.ends };
        Ok(true)
    }

    /// Writes the last input. The program gets each byte once, however often it is written.
    async fn write_input(&self, program: &dyn AgentProgram) -> Result<(), Refusal> {
        let state = &self.turn.state;
        let bytes = state.input.text.as_bytes();
        let end = state.input_offset + bytes.len() as u64;
        let mut written = Ok(());
        if !bytes.is_empty() {
            written = program.write(state.input_offset, bytes.into()).await;
        }
        if written.is_ok() && state.input.ends {
            written = program.close_input(end).await;
        }
        // A program that has ended reads nothing. Its output and its exit tell the rest.
        match written {
            Err(refusal) if refusal.kind != RefusalKind::Ended => Err(refusal),
            _ => Ok(()),
        }
    }

    fn flush_reply(&mut self) -> Result<(), Refusal> {
        self.unflushed.extend(self.replies.flush(self.journal)?);
        Ok(())
    }

    async fn record(&mut self, outcome: Option<StoredOutcome>) -> Result<(), Refusal> {
        self.flush_reply()?;
        self.turn.state.conversation = self.conversation.save();
        self.turn.state.outcome = outcome;
        let mut state = self.journal.state_record(&self.turn.state)?;
        let spent = std::mem::replace(&mut self.spent, Usage::NONE);
        state.spent = (spent != Usage::NONE).then_some(spent);
        self.state_size = match &*state.completion {
            CallCompletion::Value(value) => value.as_str().len() as u64,
            _ => 0,
        };
        let mut records = std::mem::take(&mut self.unflushed);
        records.push(state);
        commit_records(self.context.host, self.journal, records).await?;
        self.must_commit = false;
        self.commit_at = None;
        self.committed_offset = self.turn.state.output_offset;
        Ok(())
    }

    async fn wait_for_end(&mut self, program: &dyn AgentProgram) -> Result<ProgramEnd, Refusal> {
        let index = self.turn.end_index();
        let host = self.context.host;
        if self.turn.end.is_none() && !self.turn.parked.contains(&index.0) {
            host.park(index, program.end_condition()).await?;
        }
        while self.turn.end.is_none() {
            let (completed, completion) = host.next_completion().await;
            self.apply_completion(completed, &completion);
        }
        let end = self.turn.end.as_deref().and_then(ProgramEnd::of);
        end.ok_or_else(|| Refusal::internal("the end of a program cannot be read"))
    }

    async fn store_outcome(&mut self, end: &ProgramEnd) -> Result<(), Refusal> {
        let requests = std::mem::take(&mut self.turn.state.open_requests);
        let questions = std::mem::take(&mut self.turn.state.open_questions);
        let open = requests.into_keys().chain(questions.into_keys()).map(CallIndex);
        self.context.host.abandon(open.collect()).await?;
        let state = &self.turn.state;
        let turn_end =
            TurnEnd { program: end, stderr: &state.stderr, unread_output: self.unread_output };
        let mark = self.context.external.closing_mark();
        let decided = TurnOutcome::decide(mark, &state.progress, &turn_end);
        let outcome = match (state.stop, decided) {
            (Some(StopCause::Interrupted), _) => StoredOutcome::Interrupted,
            (_, TurnOutcome::Succeeded) => StoredOutcome::Succeeded {},
            _ if state.progress.is_budget_spent() && self.turn.record.budget.is_some() => {
                StoredOutcome::BudgetSpent
            }
            _ if self.is_success_of_server() => StoredOutcome::Succeeded {},
            (Some(StopCause::Lingered), TurnOutcome::Failed(failure))
                if failure.cause != FailureCause::Reported =>
            {
                let seconds = self.exit_timeout().as_secs();
                let text = format!(
                    "its program did not exit within {seconds} s after its turn, and was stopped"
                );
                StoredOutcome::Failed { text }
            }
            (_, TurnOutcome::Failed(failure)) => {
                let is_lost = failure.cause == FailureCause::UnknownEnd;
                let text = match failure.message.is_empty() && is_lost {
                    true => format!("its program: {}", end.outcome),
                    false => failure.to_string(),
                };
                match is_lost && state.progress.session_id().is_some() {
                    true => StoredOutcome::Lost { text },
                    false => StoredOutcome::Failed { text },
                }
            }
        };
        self.record(Some(outcome)).await
    }

    fn report(&self, outputs: Vec<AgentOutput>) {
        for output in outputs {
            self.context.host.report_output(output);
        }
    }

    pub(super) fn report_progress(&self, activity: &str) {
        let answer = self.turn.state.progress.answer();
        let calls = self.turn.state.open_calls.values().map(|call| &*call.name);
        self.context.host.report_progress(AgentProgress {
            step: self.replies.step(),
            activity: truncate_end(activity, ACTIVITY_SHOWN),
            last_tools: truncate_end(&calls.collect::<Vec<_>>().join(", "), ACTIVITY_SHOWN),
            last_text: tail_bytes(answer, LAST_TEXT_SHOWN).to_owned(),
            tokens: self.journal.tokens,
        });
    }
}
