//! A test session: shorthand for commands, a clock under the test's control, and all outputs so
//! far.

use std::sync::Arc;

use brigade_model::action::Action;
use brigade_model::address::TaskRef;
use brigade_model::approval::ApprovalRequest;
use brigade_model::call::{
    CallCompletion, ConditionRequest, RunResult, SpawnedTask, TaskEntry, WaitMode,
};
use brigade_model::command::{
    AfterPark, AnswerCommand, AttemptReport, Caller, ClientCaller, CloseCommand, CollectCommand,
    Command, GivenAnswer, MarkRead, ReadInboxCommand, Recipient, RecoverCommand, RecoveryFinding,
    ReportCommand, ResumeCommand, SendCommand, SetLimitsCommand, SpawnCommand, StopCommand,
    StopTarget, WorkResult,
};
use brigade_model::decide::{CommandReply, StopResult};
use brigade_model::event::{Event, EventRecord};
use brigade_model::ids::{
    CallIndex, ClientIdentity, Epoch, MessageNo, Millis, Owner, RunNo, SessionId, TaskNo, Time,
};
use brigade_model::json::Json;
use brigade_model::limits::{Limits, Money, Usage};
use brigade_model::message::Message;
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::permission::PermissionSubject;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::spec::TaskSpec;
use brigade_model::task::{TaskRow, TaskState};
use brigade_model::task_tree::TaskTree;
use brigade_model::transition::{SessionOpening, handle_command, open_session};
use brigade_model::work::{
    AgentWork, CommandLine, CustomWork, FollowUp, InboxMode, JobWork, KindPolicy,
    ParentClosePolicy, ProcessWork, RecoveryPolicy, StdinSource, WakeOn, Work,
};

pub(crate) struct Env {
    pub(crate) tree: TaskTree,
    pub(crate) now: Time,
    pub(crate) events: Vec<Arc<EventRecord>>,
    pub(crate) journal: Vec<TaskEntry>,
    pub(crate) actions: Vec<Action>,
}

pub(crate) type SubmitResult<T> = Result<T, Refusal>;

pub(crate) fn operator() -> Caller {
    Caller::Operator
}

/// Returns a client in one of its conversations, when some of the others have lapsed.
pub(crate) fn in_conversation(name: &str, conversation: &str, lapsed: &[&str]) -> Caller {
    let id = |text: &str| text.parse().expect("it is an id");
    let identity = ClientIdentity { conversation: Some(id(conversation)), ..name.into() };
    let lapsed = lapsed.iter().map(|text| id(text)).collect();
    Caller::Client(ClientCaller { lapsed, ..identity.into() })
}

pub(crate) fn client(name: &str) -> Caller {
    Caller::Client(name.into())
}

pub(crate) fn json(text: &str) -> Json {
    Json::of(text).expect("a short text is JSON")
}

/// Returns a request to approve this command.
pub(crate) fn approval_of(command: &str) -> ConditionRequest {
    let subject = PermissionSubject { tool: "run_process", text: Some(command), is_shell: true };
    let rule = "run_process".parse().expect("a rule");
    let request = ApprovalRequest::new(&subject, "{}", rule, "the session".into());
    ConditionRequest::Approval { request: Arc::new(request) }
}

pub(crate) fn tokens(tokens: u64) -> Usage {
    Usage { tokens, money: Money(0) }
}

/// Returns a registered job that resumes after at most two crashes.
pub(crate) fn job() -> TaskSpec {
    job_that(RecoveryPolicy::resume_max_crashes(2))
}

pub(crate) fn job_that(recovery: RecoveryPolicy) -> TaskSpec {
    let handler = "cook".into();
    let args = Json::null();
    TaskSpec::new(Work::Job(JobWork::Named { handler, args, recovery }))
}

pub(crate) fn closure() -> TaskSpec {
    TaskSpec::new(Work::Job(JobWork::Closure { label: "closure".into() }))
}

/// Returns an agent that may end before its children, and is then closing.
pub(crate) fn agent() -> TaskSpec {
    TaskSpec::new(Work::Agent(AgentWork {
        may_end_before_children: true,
        ..AgentWork::new("make soup")
    }))
}

/// Returns an agent that ends only after it has collected its children and inbox.
pub(crate) fn collecting_agent() -> TaskSpec {
    TaskSpec::new(Work::Agent(AgentWork::new("make soup")))
}

pub(crate) fn process() -> TaskSpec {
    let command = CommandLine::Shell("cat".into());
    TaskSpec::new(Work::Process(ProcessWork {
        stdin: StdinSource::Messages,
        ..ProcessWork::new(command)
    }))
}

/// The policy of a closure, which tests change.
pub(crate) const POLICY: KindPolicy = KindPolicy {
    recovery: RecoveryPolicy::Lost,
    parent_close: ParentClosePolicy::StopChildren,
    follow_up: FollowUp::Refused,
    inbox_mode: InboxMode::Pull,
    wake_on: WakeOn::AnyCompletion,
};

pub(crate) fn custom(policy: KindPolicy) -> TaskSpec {
    let kind = "station".into();
    let payload = Json::null();
    TaskSpec::new(Work::Custom(CustomWork { kind, payload, policy: Some(policy) }))
}

/// Small changes to a request, in reading order.
pub(crate) trait With: Sized {
    fn named(self, name: &str) -> Self;
    fn keyed(self, key: &str) -> Self;
    fn limited(self, limits: Limits) -> Self;
    fn kept(self) -> Self;
    fn grace(self, grace: u64) -> Self;
}

impl With for TaskSpec {
    fn named(mut self, name: &str) -> Self {
        self.name = Some(name.parse().expect("a good name"));
        self
    }

    fn keyed(mut self, key: &str) -> Self {
        self.key = Some(key.parse().expect("a good key"));
        self
    }

    fn limited(mut self, limits: Limits) -> Self {
        self.limits = Some(Box::new(limits));
        self
    }

    fn kept(mut self) -> Self {
        self.keep = true;
        self
    }

    fn grace(mut self, grace: u64) -> Self {
        self.grace = Some(Millis(grace));
        self
    }
}

impl Env {
    pub(crate) fn new() -> Self {
        Self::limited(Limits::default())
    }

    pub(crate) fn limited(limits: Limits) -> Self {
        let now = Time(1_000_000);
        let id = SessionId::from_uuid(uuid::Uuid::from_u128(1));
        let name = "kitchen".parse().expect("a good session name");
        let (tree, opened) =
            open_session(SessionOpening { id, name, limits, at: now, epoch: Epoch(1) });
        Self { tree, now, events: vec![opened], journal: Vec::new(), actions: Vec::new() }
    }

    pub(crate) fn submit(&mut self, command: &Command) -> SubmitResult<CommandReply> {
        let before = self.tree.clone();
        match handle_command(&mut self.tree, command, self.now) {
            Ok(handled) => {
                self.events.extend(handled.outputs.events);
                self.journal.extend(handled.outputs.journal);
                self.actions.extend(handled.outputs.actions);
                Ok(handled.reply)
            }
            Err(refusal) => {
                assert!(self.tree == before, "a refusal changed the tree: {refusal}");
                Err(refusal)
            }
        }
    }

    /// Clears all outputs, so that a test sees only those of its next step.
    pub(crate) fn clear(&mut self) {
        self.events.clear();
        self.journal.clear();
        self.actions.clear();
    }

    pub(crate) fn by(&self, no: TaskNo) -> Caller {
        Caller::Task { no, attempt: self.row(no).attempt }
    }

    pub(crate) fn row(&self, no: TaskNo) -> &TaskRow {
        self.tree.get(no).unwrap_or_else(|| panic!("{no:?} is not in memory"))
    }

    /// Returns the label of a task's state: `queued`, `running`, `succeeded` and so on.
    pub(crate) fn state(&self, no: TaskNo) -> &'static str {
        self.row(no).state.label()
    }

    #[track_caller]
    pub(crate) fn states(&self, expect: &[(TaskNo, &str)]) {
        let got: Vec<_> = expect.iter().map(|(no, _)| (*no, self.state(*no))).collect();
        assert_eq!(got, expect);
    }

    #[track_caller]
    pub(crate) fn outcome(&self, no: TaskNo) -> &Outcome {
        match &self.row(no).state {
            TaskState::Ended(ended) => &ended.outcome,
            other => panic!("{no:?} is {}", other.label()),
        }
    }

    pub(crate) fn try_spawn(
        &mut self,
        caller: Caller,
        spec: TaskSpec,
    ) -> SubmitResult<SpawnedTask> {
        let spawn = SpawnCommand { caller, spec: Arc::new(spec), call: None };
        match self.submit(&Command::Spawn(spawn))? {
            CommandReply::Spawned(spawned) => Ok(spawned),
            other => panic!("a spawn was answered with {other:?}"),
        }
    }

    /// Spawns a top-level task for a client called `me`.
    #[track_caller]
    pub(crate) fn spawn(&mut self, spec: TaskSpec) -> TaskNo {
        self.try_spawn(client("me"), spec).expect("the spawn is allowed").no
    }

    #[track_caller]
    pub(crate) fn spawn_child(&mut self, parent: TaskNo, spec: TaskSpec) -> TaskNo {
        let caller = self.by(parent);
        self.try_spawn(caller, spec).expect("the spawn is allowed").no
    }

    pub(crate) fn try_report(
        &mut self,
        no: TaskNo,
        report: AttemptReport,
    ) -> SubmitResult<CommandReply> {
        let attempt = self.row(no).attempt;
        self.submit(&Command::Report(ReportCommand { no, attempt, report }))
    }

    #[track_caller]
    pub(crate) fn report(&mut self, no: TaskNo, report: AttemptReport) -> CommandReply {
        self.try_report(no, report).expect("the attempt is current")
    }

    #[track_caller]
    pub(crate) fn succeed(&mut self, no: TaskNo) {
        self.report(no, AttemptReport::Ended(WorkResult::Returned(json("soup")).into()));
    }

    #[track_caller]
    pub(crate) fn fail(&mut self, no: TaskNo) {
        let failure = Failure::error("burnt");
        self.report(no, AttemptReport::Ended(WorkResult::Failed { failure, partial: None }.into()));
    }

    #[track_caller]
    pub(crate) fn aborted(&mut self, no: TaskNo) {
        self.report(no, AttemptReport::Ended(WorkResult::Aborted.into()));
    }

    /// Parks one call and suspends. Returns whether the task now waits.
    #[track_caller]
    pub(crate) fn park(&mut self, no: TaskNo, index: u32, requested: ConditionRequest) -> bool {
        let parked_count = self.row(no).parked_calls.len() + 1;
        match self.park_all(no, vec![(index, requested)], AfterPark::Suspend { parked_count }) {
            Ok(CommandReply::Parked { suspended }) => suspended,
            other => panic!("a park was answered with {other:?}"),
        }
    }

    pub(crate) fn park_all(
        &mut self,
        no: TaskNo,
        calls: Vec<(u32, ConditionRequest)>,
        then: AfterPark,
    ) -> SubmitResult<CommandReply> {
        let calls =
            calls.into_iter().map(|(index, requested)| (CallIndex(index), requested)).collect();
        self.try_report(no, AttemptReport::Park { calls, acked_entries: u32::MAX, then })
    }

    /// Returns the completion of a call, if it has one.
    pub(crate) fn completion(&self, no: TaskNo, index: u32) -> Option<&CallCompletion> {
        let of_call = |new: &&TaskEntry| new.no == no && new.entry.index == CallIndex(index);
        let mut found = self.journal.iter().filter(of_call);
        let completion = found.next().map(|new| &*new.entry.completion);
        assert!(found.next().is_none(), "call {index} of {no:?} completed twice");
        completion
    }

    #[track_caller]
    pub(crate) fn results(&self, no: TaskNo, index: u32) -> Vec<(TaskNo, bool)> {
        match self.completion(no, index) {
            Some(CallCompletion::Results(results)) => summarize(results),
            other => panic!("call {index} of {no:?} has {other:?}"),
        }
    }

    pub(crate) fn stop(&mut self, caller: Caller, target: StopTarget) -> SubmitResult<StopResult> {
        let stop = StopCommand { caller, target, reason: None, grace: None, call: None };
        match self.submit(&Command::Stop(stop))? {
            CommandReply::Stopped(stopped) => Ok(stopped),
            other => panic!("a stop was answered with {other:?}"),
        }
    }

    /// Stops a task as the operator.
    #[track_caller]
    pub(crate) fn stop_task(&mut self, no: TaskNo) -> StopResult {
        self.stop(operator(), StopTarget::Task(no.into())).expect("the operator may")
    }

    pub(crate) fn send(&mut self, caller: Caller, to: Recipient) -> SubmitResult<Vec<MessageNo>> {
        self.send_and(caller, to, false)
    }

    pub(crate) fn interrupt(&mut self, no: TaskNo) {
        let to = Recipient::Task(no.into());
        let send = SendCommand { interrupt: true, ..SendCommand::new(operator(), to, json("now")) };
        self.submit(&Command::Send(send)).expect("an interrupting message is taken");
    }

    pub(crate) fn send_last(&mut self, no: TaskNo) -> SubmitResult<Vec<MessageNo>> {
        self.send_and(operator(), Recipient::Task(no.into()), true)
    }

    fn send_and(
        &mut self,
        caller: Caller,
        to: Recipient,
        closes_input: bool,
    ) -> SubmitResult<Vec<MessageNo>> {
        let send = SendCommand { closes_input, ..SendCommand::new(caller, to, json("more salt")) };
        match self.submit(&Command::Send(send))? {
            CommandReply::Sent(numbers) => Ok(numbers),
            other => panic!("a message was answered with {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn send_to(&mut self, no: TaskNo) -> MessageNo {
        let sent = self.send(operator(), Recipient::Task(no.into()));
        sent.expect("the operator may")[0]
    }

    pub(crate) fn collect(
        &mut self,
        caller: Caller,
        tasks: &[TaskRef],
        mode: WaitMode,
    ) -> SubmitResult<CommandReply> {
        self.submit(&Command::Collect(CollectCommand { caller, tasks: tasks.to_vec(), mode }))
    }

    /// Collects the results of tasks that have ended, as a client's wait for all of them.
    #[track_caller]
    pub(crate) fn collected(&mut self, caller: Caller, tasks: &[TaskRef]) -> Vec<(TaskNo, bool)> {
        match self.collect(caller, tasks, WaitMode::All) {
            Ok(CommandReply::Results(results)) => summarize(&results),
            other => panic!("a wait was answered with {other:?}"),
        }
    }

    pub(crate) fn answer(
        &mut self,
        caller: Caller,
        no: TaskNo,
        answer: GivenAnswer,
    ) -> SubmitResult<CommandReply> {
        let task = no.into();
        self.submit(&Command::Answer(AnswerCommand {
            caller,
            task,
            call: None,
            answer,
            caller_call: None,
        }))
    }

    pub(crate) fn resume(&mut self, caller: Caller, no: TaskNo) -> SubmitResult<CommandReply> {
        self.submit(&Command::Resume(ResumeCommand { caller, task: no.into(), limits: None }))
    }

    #[track_caller]
    pub(crate) fn set_limits(&mut self, no: Option<TaskNo>, limits: Limits) {
        let set = SetLimitsCommand { caller: operator(), task: no.map(TaskRef::from), limits };
        self.submit(&Command::SetLimits(set)).expect("the operator may");
    }

    pub(crate) fn close(&mut self) {
        let close = CloseCommand { caller: operator(), reason: None };
        self.submit(&Command::Close(close)).expect("the operator may");
    }

    pub(crate) fn read_inbox(&mut self) -> Vec<Arc<Message>> {
        self.read(MarkRead::Oldest(usize::MAX))
    }

    pub(crate) fn read(&mut self, take: MarkRead) -> Vec<Arc<Message>> {
        let read = ReadInboxCommand { caller: operator(), mark_read: take };
        match self.submit(&Command::ReadInbox(read)) {
            Ok(CommandReply::Inbox(messages)) => messages,
            other => panic!("an inbox was answered with {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn recover(&mut self, no: TaskNo, finding: RecoveryFinding) {
        self.submit(&Command::Recover(RecoverCommand { no, finding })).expect("the task exists");
    }

    /// Advances the clock and fires the timers that are due.
    pub(crate) fn advance(&mut self, millis: u64) {
        self.now = self.now.after(Millis(millis));
        self.submit(&Command::Tick).expect("a tick is never refused");
    }

    pub(crate) fn unread(&self, of: Owner) -> usize {
        self.tree.unread_count(of)
    }

    pub(crate) fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.events.iter().filter(|record| which(&record.event)).count()
    }

    pub(crate) fn acted(&self, which: impl Fn(&Action) -> bool) -> usize {
        self.actions.iter().filter(|action| which(action)).count()
    }
}

fn summarize(results: &[RunResult]) -> Vec<(TaskNo, bool)> {
    results.iter().map(|result| (result.no, result.collected_before)).collect()
}

pub(crate) fn run_of(no: TaskNo, run: u32) -> TaskRef {
    TaskRef { run: Some(RunNo(run)), ..no.into() }
}

pub(crate) fn wait_for(tasks: &[TaskNo], mode: WaitMode) -> ConditionRequest {
    ConditionRequest::Tasks { tasks: tasks.to_vec(), mode, timeout: None, interruptible: false }
}

/// Asserts that a command was refused with this kind, and with this text in its message.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(got: SubmitResult<T>, kind: RefusalKind, part: &str) {
    let refusal = got.expect_err("it should be refused");
    assert_eq!(refusal.kind, kind, "{refusal}");
    assert!(refusal.message.contains(part), "{:?} lacks {part:?}", refusal.message);
}
