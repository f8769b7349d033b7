//! A small runtime that decides commands with the real model and commits their events.

use std::collections::BTreeMap;
use std::sync::Arc;

use brigade_model::call::{CallCompletion, ConditionRequest, JournalEntry, TaskEntry, WaitMode};
use brigade_model::command::{
    AfterPark, AttemptReport, CallRecord, Caller, CollectCommand, Command, EndReport, Recipient,
    RecoverCommand, RecoveryFinding, ReportCommand, SendCommand, SpawnCommand, StopCommand,
    StopTarget, WorkResult,
};
use brigade_model::decide::CommandReply;
use brigade_model::entry_label::EntryLabel;
use brigade_model::error_details::ErrorDetails;
use brigade_model::event::EventRecord;
use brigade_model::event_author::CallerOrigin;
use brigade_model::ids::{
    CallIndex, Epoch, Lane, MessageNo, Millis, Position, Seq, SessionId, TaskNo, Time,
};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::name::{IdempotencyKey, SessionName};
use brigade_model::needs::needs;
use brigade_model::outcome::Failure;
use brigade_model::sandbox::{ResourceLimits, Sandbox, SandboxLayer, TerminalSize};
use brigade_model::spec::TaskSpec;
use brigade_model::task_tree::{ChangedRows, TaskTree};
use brigade_model::transition::{
    CommandOutputs, SessionOpening, SubmittedCommand, handle_command_into, open_session,
};
use brigade_model::work::{
    AgentWork, CommandLine, EnvValue, JobWork, ProcessWork, RecoveryPolicy, Work,
};
use uuid::Uuid;

use super::StoreHarness;
use super::folding::CommitCheck;
use crate::batch::{Batch, SessionBatch};
use crate::error::StoreError;
use crate::needed_rows::load_needed_rows;
use crate::store::{AcquireResult, Store};

pub(super) const EPOCH: Epoch = Epoch(1);

/// The origin of every command.
pub(super) const ORIGIN: &str = "conformance suite";

/// The task of a spawn: a new one, or the one that has the key already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyedSpawn {
    New(TaskNo),
    Existing(TaskNo),
}

/// The writer of one session.
#[derive(Debug)]
pub(super) struct SessionWriter {
    pub(super) store: Arc<dyn Store>,
    pub(super) lane: Lane,
    pub(super) tree: TaskTree,
    pub(super) now: Time,
    /// The journals that the store is expected to return.
    pub(super) journals: BTreeMap<TaskNo, Vec<JournalEntry>>,
    pub(super) check: CommitCheck,
}

impl SessionWriter {
    /// Opens a session and commits it.
    pub(super) async fn open(store: &Arc<dyn Store>, number: u128, limits: Limits) -> Self {
        let (writer, part) = Self::begin(store, number, limits);
        store
            .commit(&Batch { sessions: vec![part], ..Batch::default() })
            .await
            .expect("the session is committed");
        writer
    }

    /// Opens a session without committing it.
    pub(super) fn begin(
        store: &Arc<dyn Store>,
        number: u128,
        limits: Limits,
    ) -> (Self, SessionBatch) {
        Self::begin_named(store, number, &format!("session {number}"), limits)
    }

    pub(super) fn begin_named(
        store: &Arc<dyn Store>,
        number: u128,
        name: &str,
        limits: Limits,
    ) -> (Self, SessionBatch) {
        let now = Time(1_000 + u64::try_from(number).expect("a small number"));
        let name: SessionName = name.parse().expect("a session's name");
        let (tree, record) = open_session(SessionOpening {
            id: session_id(number),
            name,
            limits,
            at: now,
            epoch: EPOCH,
        });
        let mut writer = Self {
            store: store.clone(),
            lane: Lane::default(),
            tree,
            now,
            journals: BTreeMap::new(),
            check: CommitCheck::Nothing,
        };
        let part = writer.session_batch(
            Seq(0),
            CommandOutputs { events: vec![record], ..CommandOutputs::default() },
        );
        (writer, part)
    }

    pub(super) fn id(&self) -> SessionId {
        self.tree.id()
    }

    /// Decides a command and commits its events. Panics if the command is refused.
    pub(super) async fn submit(&mut self, command: Command) -> CommandReply {
        let (reply, part) = self.decide(&command).await;
        if !part.events.is_empty() {
            let batch = Batch { lane: self.lane, sessions: vec![part], ..Batch::default() };
            self.store.commit(&batch).await.expect("the batch is committed");
        }
        self.check.run(self).await;
        self.tree.evict();
        reply
    }

    /// Decides a command without committing its events.
    pub(super) async fn decide(&mut self, command: &Command) -> (CommandReply, SessionBatch) {
        self.load_needs(command).await;
        self.now = self.now.after(Millis(1));
        let base = self.tree.row().seq;
        let origin = CallerOrigin::new(ORIGIN);
        let submitted = SubmittedCommand { command, origin: Some(&origin) };
        let mut outputs = CommandOutputs::default();
        let reply = handle_command_into(&mut self.tree, submitted, self.now, &mut outputs)
            .unwrap_or_else(|refusal| panic!("{command:?} is refused: {refusal}"));
        (reply, self.session_batch(base, outputs))
    }

    async fn load_needs(&mut self, command: &Command) {
        let mut requested = Vec::new();
        loop {
            let missing = needs(&self.tree, command);
            if missing.is_empty() || missing == requested {
                return;
            }
            let loaded = load_needed_rows(&*self.store, &mut self.tree, &missing).await;
            loaded.expect("rows are read");
            requested = missing;
        }
    }

    fn session_batch(&mut self, base: Seq, outputs: CommandOutputs) -> SessionBatch {
        let ChangedRows { tasks, messages } = self.tree.take_dirty();
        for TaskEntry { no, entry } in &outputs.journal {
            self.journals.entry(*no).or_default().push(entry.clone());
        }
        SessionBatch {
            row: self.tree.row().clone(),
            base,
            events: outputs.events,
            tasks,
            journal: outputs.journal,
            messages,
        }
    }

    pub(super) async fn reopen(mut self, harness: &dyn StoreHarness) -> Self {
        self.store = harness.reopen(self.store).await;
        self
    }

    /// Loads the session again as the only writer, in a lane.
    pub(super) async fn move_to(&mut self, lane: Lane) {
        let loaded = self.store.load(self.id()).await.expect("the session is loaded");
        let mut loaded = loaded.expect("the session is there");
        let acquired = self.store.acquire(lane, &loaded.row).await.expect("it is asked");
        let AcquireResult::Acquired(acquired) = acquired else { panic!("it is {acquired:?}") };
        loaded.row.epoch = acquired.epoch;
        self.lane = lane;
        self.tree = loaded.into_tree();
    }

    /// Drops the session from memory and loads it again.
    pub(super) async fn reload(&mut self) {
        let loaded = self.store.load(self.id()).await.expect("the session is loaded");
        self.tree = loaded.expect("the session is there").into_tree();
    }
}

impl SessionWriter {
    /// Returns the current attempt of a task as a caller.
    pub(super) fn caller_of(&self, no: TaskNo) -> Caller {
        let row = self.tree.get(no).unwrap_or_else(|| panic!("task {no} is not in memory"));
        Caller::Task { no, attempt: row.attempt }
    }

    pub(super) async fn spawn(&mut self, caller: Caller, spec: TaskSpec) -> TaskNo {
        match self.spawn_or_find(caller, spec).await {
            KeyedSpawn::New(no) | KeyedSpawn::Existing(no) => no,
        }
    }

    /// Spawns a task, or finds the task that has the same key.
    pub(super) async fn spawn_or_find(&mut self, caller: Caller, spec: TaskSpec) -> KeyedSpawn {
        let spawn = SpawnCommand { caller, spec: Arc::new(spec), call: None };
        match self.submit(Command::Spawn(spawn)).await {
            CommandReply::Spawned(spawned) if spawned.existing => KeyedSpawn::Existing(spawned.no),
            CommandReply::Spawned(spawned) => KeyedSpawn::New(spawned.no),
            other => panic!("a spawn returns {other:?}"),
        }
    }

    pub(super) async fn report(&mut self, no: TaskNo, report: AttemptReport) -> CommandReply {
        let row = self.tree.get(no).unwrap_or_else(|| panic!("task {no} is not in memory"));
        let command = ReportCommand { no, attempt: row.attempt, report };
        self.submit(Command::Report(command)).await
    }

    pub(super) async fn record(&mut self, no: TaskNo, index: u32) {
        let completion = Arc::new(CallCompletion::Value(json(&format!("step {index}"))));
        let record = CallRecord::new(CallIndex(index), EntryLabel::step("step"), completion);
        self.report(no, AttemptReport::Record(record)).await;
    }

    /// Parks a wait for all of these children, without suspending.
    pub(super) async fn wait_for(&mut self, no: TaskNo, index: u32, tasks: Vec<TaskNo>) {
        let mode = WaitMode::All;
        let condition =
            ConditionRequest::Tasks { tasks, mode, timeout: None, interruptible: false };
        let calls = vec![(CallIndex(index), condition)];
        self.report(
            no,
            AttemptReport::Park { calls, acked_entries: u32::MAX, then: AfterPark::Continue },
        )
        .await;
    }

    pub(super) async fn finish(&mut self, no: TaskNo) {
        let end: EndReport = WorkResult::Returned(json(&format!("the result of {no}"))).into();
        self.report(no, AttemptReport::Ended(end)).await;
    }

    pub(super) async fn fail(&mut self, no: TaskNo) {
        let error = ErrorDetails::new("it broke").with_kind("oven").with_payload(json("E7"));
        let failure = Failure::error(error);
        let end = WorkResult::Failed { failure, partial: Some(json("half")) };
        self.report(no, AttemptReport::Ended(end.into())).await;
    }

    pub(super) async fn abort(&mut self, no: TaskNo) {
        self.report(no, AttemptReport::Ended(WorkResult::Aborted.into())).await;
    }

    pub(super) async fn send(&mut self, caller: Caller, to: Recipient) -> MessageNo {
        self.send_message(caller, to, NewMessage::default()).await
    }

    pub(super) async fn send_message(
        &mut self,
        caller: Caller,
        to: Recipient,
        message: NewMessage,
    ) -> MessageNo {
        let send = SendCommand {
            name: message.name,
            key: message.key,
            ..SendCommand::new(caller, to, json("hello"))
        };
        match self.submit(Command::Send(send)).await {
            CommandReply::Sent(numbers) => numbers[0],
            other => panic!("a send returns {other:?}"),
        }
    }

    pub(super) async fn stop(&mut self, caller: Caller, no: TaskNo) {
        let target = StopTarget::Task(no.into());
        let stop = StopCommand {
            caller,
            target,
            reason: Some("enough".into()),
            grace: Some(Millis(50)),
            call: None,
        };
        self.submit(Command::Stop(stop)).await;
    }

    pub(super) async fn collect(&mut self, caller: Caller, tasks: &[TaskNo]) -> CommandReply {
        let tasks = tasks.iter().map(|no| (*no).into()).collect();
        let mode = WaitMode::Any;
        self.submit(Command::Collect(CollectCommand { caller, tasks, mode })).await
    }

    pub(super) async fn recover(&mut self, no: TaskNo, finding: RecoveryFinding) {
        self.submit(Command::Recover(RecoverCommand { no, finding })).await;
    }

    pub(super) async fn tick_after(&mut self, millis: u64) {
        self.now = self.now.after(Millis(millis));
        self.submit(Command::Tick).await;
    }
}

/// The optional parts of a message.
#[derive(Clone, Debug, Default)]
pub(super) struct NewMessage {
    pub(super) name: Option<Arc<str>>,
    pub(super) key: Option<IdempotencyKey>,
}

impl NewMessage {
    pub(super) fn keyed(key: &str) -> Self {
        Self { name: None, key: Some(key.parse().expect("a key")) }
    }
}

pub(super) fn session_id(number: u128) -> SessionId {
    SessionId::from_uuid(Uuid::from_u128(number))
}

pub(super) fn json(text: &str) -> Json {
    Json::of(text).expect("a text is JSON")
}

pub(super) fn client() -> Caller {
    Caller::Client("c".into())
}

pub(super) fn job() -> TaskSpec {
    TaskSpec::new(Work::Job(JobWork::Named {
        handler: "work".into(),
        args: json("arguments"),
        recovery: RecoveryPolicy::resume_max_crashes(3),
    }))
}

pub(super) fn closure() -> TaskSpec {
    TaskSpec::new(Work::Job(JobWork::Closure { label: "closure".into() }))
}

pub(super) fn agent() -> TaskSpec {
    let config = Some(json("config"));
    let work = AgentWork { config, may_end_before_children: true, ..AgentWork::new("think") };
    TaskSpec::new(Work::Agent(work))
}

pub(super) fn process() -> TaskSpec {
    let env = BTreeMap::from([("A".into(), EnvValue::Text("b".into()))]);
    let sandbox = Sandbox {
        terminal: Some(TerminalSize::default()),
        resources: ResourceLimits { cpu_secs: Some(60), ..ResourceLimits::default() },
        layers: vec![SandboxLayer { write: vec!["/src".into()], ..SandboxLayer::default() }],
    };
    TaskSpec::new(Work::Process(ProcessWork {
        env,
        sandbox: Some(Box::new(sandbox)),
        ..ProcessWork::new(CommandLine::Shell("true".into()))
    }))
}

pub(super) fn named(mut spec: TaskSpec, name: &str) -> TaskSpec {
    spec.name = Some(name.parse().expect("a name"));
    spec
}

pub(super) fn limited(mut spec: TaskSpec, limits: Limits) -> TaskSpec {
    spec.limits = Some(Box::new(limits));
    spec
}

pub(super) fn keyed(mut spec: TaskSpec, key: &str) -> TaskSpec {
    spec.key = Some(key.parse().expect("a key"));
    spec
}

/// Reads all events in small pages.
/// Returns a position in the lane of the checks.
pub(super) fn position(no: u64) -> Position {
    Position { lane: Lane::default(), no }
}

pub(super) async fn all_events(
    store: &dyn Store,
    session: Option<SessionId>,
) -> Result<Vec<Arc<EventRecord>>, StoreError> {
    let mut found = Vec::new();
    let mut query = crate::store::EventQuery { session, after: Default::default(), limit: 37 };
    loop {
        let page = store.events(&query).await?;
        assert_eq!(page.gap_to, None);
        if page.items.is_empty() {
            return Ok(found);
        }
        found.extend(page.items.into_iter().map(|item| item.record));
        query.after = page.read_to;
    }
}
