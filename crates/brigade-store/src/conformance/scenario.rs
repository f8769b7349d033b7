//! The life of one session with every feature of the model, one commit at a time.

use brigade_model::approval::{ApprovalRequest, ApprovalVerdict};
use brigade_model::call::{ConditionRequest, WaitMode};
use brigade_model::command::{
    AfterPark, AnswerCommand, AttemptReport, Caller, CloseCommand, Command, GivenAnswer, MarkRead,
    PushResult, ReadInboxCommand, Recipient, RecoveryFinding, ResumeCommand, SetLimitsCommand,
};
use brigade_model::entry_label::EntryLabel;
use brigade_model::error_details::ErrorDetails;
use brigade_model::ids::{CallIndex, MessageNo, Millis, TaskNo};
use brigade_model::limits::{CostEstimate, Limits, Money, Usage};
use brigade_model::permission::PermissionSubject;
use brigade_model::task::{TaskRow, TaskState};
use brigade_model::task_tree::SessionState;

use super::StoreHarness;
use super::writer::{
    KeyedSpawn, NewMessage, SessionWriter, agent, client, closure, job, json, keyed, named, process,
};

type ScenarioStep =
    for<'a> fn(&'a mut SessionWriter) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// The steps of the scenario. Each step needs the state after the steps before it.
const SCENARIO_STEPS: &[ScenarioStep] = &[
    |w| Box::pin(top_level(w)),
    |w| Box::pin(children(w)),
    |w| Box::pin(budgets(w)),
    |w| Box::pin(parks(w)),
    |w| Box::pin(messages(w)),
    |w| Box::pin(questions(w)),
    |w| Box::pin(waits(w)),
    |w| Box::pin(follow_ups(w)),
    |w| Box::pin(run_ends(w)),
    |w| Box::pin(exhaustion(w)),
    |w| Box::pin(stops(w)),
    |w| Box::pin(held_slots(w)),
    |w| Box::pin(crashes(w)),
    |w| Box::pin(second_crash(w)),
    |w| Box::pin(retries(w)),
    |w| Box::pin(session_inbox(w)),
    |w| Box::pin(closing(w)),
    |w| Box::pin(closed(w)),
];

/// Plays the scenario. With a harness, each step begins with a reopened store and a loaded session.
pub(super) async fn play_scenario(
    mut writer: SessionWriter,
    reopening: Option<&dyn StoreHarness>,
) -> SessionWriter {
    for step in SCENARIO_STEPS {
        if let Some(harness) = reopening {
            writer = writer.reopen(harness).await;
            writer.reload().await;
        }
        step(&mut writer).await;
    }
    assert_eq!(writer.tree.row().state, SessionState::Closed);
    writer
}

pub(super) fn limits() -> Limits {
    Limits { running: Some(4), tokens: Some(10_000), ..Limits::default() }
}

pub(super) fn no(number: u32) -> TaskNo {
    TaskNo::new(number).expect("a task's number")
}

const LEAD: u32 = 1;
const WORKER: u32 = 2;
const BUILDER: u32 = 3;
const HELPER: u32 = 4;
const QUEUED: u32 = 5;

async fn top_level(w: &mut SessionWriter) {
    let lead = keyed(named(agent(), "Lead"), "lead");
    assert_eq!(w.spawn_or_find(client(), lead.clone()).await, KeyedSpawn::New(no(LEAD)));
    assert_eq!(w.spawn_or_find(client(), lead).await, KeyedSpawn::Existing(no(LEAD)));
    let limits = Limits { total: Some(100), ..limits() };
    let set = SetLimitsCommand { caller: Caller::Operator, task: None, limits };
    w.submit(Command::SetLimits(set)).await;
}

async fn children(w: &mut SessionWriter) {
    let lead = w.caller_of(no(LEAD));
    let worker = keyed(named(job(), "Worker"), "worker");
    assert_eq!(w.spawn_or_find(lead.clone(), worker.clone()).await, KeyedSpawn::New(no(WORKER)));
    assert_eq!(w.spawn_or_find(lead.clone(), worker).await, KeyedSpawn::Existing(no(WORKER)));
    let mut builder = named(process(), "Builder");
    builder.keep = true;
    assert_eq!(w.spawn(lead.clone(), builder).await, no(BUILDER));
    assert_eq!(w.spawn(lead.clone(), named(agent(), "Helper")).await, no(HELPER));
    let mut queued = closure();
    queued.limits = Some(Box::new(Limits { time: Some(Millis(60_000)), ..Limits::default() }));
    assert_eq!(w.spawn(lead, queued).await, no(QUEUED));
    assert!(matches!(row(w, QUEUED).state, TaskState::Queued(_)), "{:?}", row(w, QUEUED));
}

async fn budgets(w: &mut SessionWriter) {
    let most = Usage { tokens: 500, money: Money(40) };
    w.report(no(HELPER), AttemptReport::Reserve(CostEstimate { max: most, min: Usage::NONE }))
        .await;
    w.report(no(HELPER), AttemptReport::Charge(Usage { tokens: 321, money: Money(7) })).await;
    w.report(no(LEAD), AttemptReport::Progress(json("on it"))).await;
    w.report(no(LEAD), AttemptReport::State(json("page 2"))).await;
    w.record(no(LEAD), 0).await;
}

async fn parks(w: &mut SessionWriter) {
    w.record(no(WORKER), 0).await;
    park(w, WORKER, 1, ConditionRequest::Timer { duration: Millis(100) }).await;
    assert!(matches!(row(w, WORKER).state, TaskState::Waiting));
    assert!(matches!(row(w, QUEUED).state, TaskState::Running), "the queued task got the slot");
    w.tick_after(200).await;
}

async fn messages(w: &mut SessionWriter) {
    w.send(Caller::Operator, Recipient::Task(no(BUILDER).into())).await;
    let second =
        w.send(Caller::Operator, Recipient::Task("Builder".parse().expect("a name"))).await;
    w.report(
        no(BUILDER),
        AttemptReport::Pushed { message: MessageNo(1), result: PushResult::Delivered },
    )
    .await;
    w.report(
        no(BUILDER),
        AttemptReport::Pushed {
            message: second,
            result: PushResult::Refused { reason: "no input".into() },
        },
    )
    .await;
    let lead = w.caller_of(no(LEAD));
    w.send(lead.clone(), Recipient::Children).await;
    w.send(lead, Recipient::Task(no(HELPER).into())).await;
    park(w, HELPER, 0, ConditionRequest::Message { timeout: None, name: None }).await;
}

async fn questions(w: &mut SessionWriter) {
    let calls = vec![
        (CallIndex(1), ConditionRequest::Question { question: json("which one?") }),
        (CallIndex(2), approval("cook")),
        (CallIndex(3), approval("taste")),
    ];
    let then = AfterPark::Suspend { parked_count: 3 };
    w.report(no(HELPER), AttemptReport::Park { calls, acked_entries: u32::MAX, then }).await;
    let lead = w.caller_of(no(LEAD));
    answer(w, lead, GivenAnswer::Reply(json("the red one"))).await;
    let always = ApprovalVerdict::AllowAlways { rule: Some("cook".parse().expect("a rule")) };
    for (call, verdict) in [(2, always), (3, ApprovalVerdict::AllowOnce)] {
        let command = AnswerCommand {
            caller: Caller::Operator,
            task: no(HELPER).into(),
            call: Some(CallIndex(call)),
            answer: GivenAnswer::Verdict(verdict),
            caller_call: None,
        };
        w.submit(Command::Answer(command)).await;
    }
}

fn approval(tool: &str) -> ConditionRequest {
    let subject = PermissionSubject { tool, text: Some("soup"), is_shell: false };
    let rule = tool.parse().expect("a rule");
    let request = ApprovalRequest::new(&subject, "{}", rule, "the session".into());
    ConditionRequest::Approval { request: request.into() }
}

async fn waits(w: &mut SessionWriter) {
    let tasks = vec![no(WORKER), no(HELPER)];
    let condition =
        ConditionRequest::Tasks { tasks, mode: WaitMode::All, timeout: None, interruptible: false };
    park(w, LEAD, 1, condition).await;
    let worker = running(w, WORKER).await;
    w.finish(worker).await;
    let helper = running(w, HELPER).await;
    w.finish(helper).await;
    running(w, LEAD).await;
}

async fn follow_ups(w: &mut SessionWriter) {
    let lead = w.caller_of(no(LEAD));
    w.send(lead.clone(), Recipient::Task(no(HELPER).into())).await;
    running(w, HELPER).await;
    w.fail(no(HELPER)).await;
    let limits = Some(Limits { tokens: Some(900), ..Limits::default() });
    let resume = ResumeCommand { caller: lead, task: no(HELPER).into(), limits };
    w.submit(Command::Resume(resume)).await;
    let row = w.tree.get(no(HELPER)).expect("a resumed task is in memory");
    assert_eq!(row.run.0, 3);
    assert_eq!(row.extras.as_ref().map(|extra| extra.earlier_runs.len()), Some(1));
}

async fn run_ends(w: &mut SessionWriter) {
    let lead = w.caller_of(no(LEAD));
    w.send(lead, Recipient::Task(no(QUEUED).into())).await;
    w.finish(no(LEAD)).await;
    assert!(matches!(row(w, LEAD).state, TaskState::Closing { .. }));
    assert_eq!(row(w, BUILDER).owner, brigade_model::ids::Owner::Session);
    w.finish(no(QUEUED)).await;
    let helper = running(w, HELPER).await;
    w.finish(helper).await;
    assert!(row(w, LEAD).ended().is_some());
    w.collect(client(), &[]).await;
}

async fn exhaustion(w: &mut SessionWriter) {
    let mut spender = agent();
    spender.limits = Some(Box::new(Limits { tokens: Some(10), ..Limits::default() }));
    let spender = w.spawn(Caller::Operator, spender).await;
    let acting = w.caller_of(spender);
    let child = w.spawn(acting, job()).await;
    let most = Usage { tokens: 100, money: Money(0) };
    let least = Usage { tokens: 20, money: Money(0) };
    w.report(spender, AttemptReport::Reserve(CostEstimate { max: most, min: least })).await;
    w.abort(child).await;
    w.abort(spender).await;
}

async fn stops(w: &mut SessionWriter) {
    let parent = w.spawn(client(), named(agent(), "Doomed")).await;
    let acting = w.caller_of(parent);
    let first = w.spawn(acting.clone(), keyed(job(), "one")).await;
    let second = w.spawn(acting, job()).await;
    w.stop(Caller::Operator, parent).await;
    w.finish(first).await;
    w.tick_after(60).await;
    w.abort(second).await;
    w.abort(parent).await;
    w.collect(client(), &[parent]).await;
}

/// Stops a closure that does not return. It holds its slot after its run and its parent's have
/// ended.
async fn held_slots(w: &mut SessionWriter) {
    let parent = w.spawn(client(), agent()).await;
    let acting = w.caller_of(parent);
    let stuck = w.spawn(acting, closure()).await;
    w.stop(Caller::Operator, parent).await;
    w.abort(parent).await;
    w.tick_after(60).await;
    w.tick_after(10_000).await;
    assert!(row(w, stuck.get()).ended().is_some_and(|ended| ended.lingering));
    assert!(row(w, parent.get()).ended().is_some());
}

async fn crashes(w: &mut SessionWriter) {
    let alive: Vec<TaskNo> =
        w.tree.rows().filter(|(_, row)| row.is_alive()).map(|(no, _)| no).collect();
    for no in alive {
        w.recover(no, RecoveryFinding::Crash).await;
    }
    let stuck = w.tree.rows().find(|(_, row)| row.ended().is_some_and(|ended| ended.lingering));
    let stuck = stuck.map(|(no, _)| no).expect("a task lingers");
    w.abort(stuck).await;
    let by = "a test".into();
    w.recover(no(BUILDER), RecoveryFinding::NotFound { by, evidence: "no such pid".into() }).await;
}

async fn second_crash(w: &mut SessionWriter) {
    let top = w.spawn(client(), agent()).await;
    let acting = w.caller_of(top);
    let child = w.spawn(acting.clone(), job()).await;
    let lost = w.spawn(acting, closure()).await;
    for _ in 0..3 {
        for no in [top, child] {
            w.recover(no, RecoveryFinding::Crash).await;
        }
        w.tick_after(60_000).await;
    }
    w.recover(lost, RecoveryFinding::Crash).await;
    w.recover(child, RecoveryFinding::Crash).await;
    assert!(row(w, child.get()).ended().is_some(), "a crash loop has an end");
}

/// Fails one step twice before it is recorded, with the same index. The job is left in a pause.
async fn retries(w: &mut SessionWriter) {
    let job = w.spawn(client(), job()).await;
    for attempt in 1..=3 {
        running(w, job.get()).await;
        if attempt == 3 {
            w.record(job, 0).await;
        }
        let error = ErrorDetails::new("declined").with_kind("card").with_payload(json("51"));
        let label = EntryLabel::step("step");
        let request = ConditionRequest::Retry { label, attempt, error, pause: Millis(100) };
        park(w, job, attempt / 3, request).await;
        assert!(matches!(row(w, job.get()).state, TaskState::Waiting));
        if attempt < 3 {
            w.tick_after(200).await;
        }
    }
}

async fn session_inbox(w: &mut SessionWriter) {
    let talker = w.spawn(client(), job()).await;
    for _ in 0..3 {
        let acting = w.caller_of(talker);
        w.send(acting, Recipient::Parent).await;
    }
    let approval = NewMessage { name: Some("approval".into()), ..NewMessage::keyed("approval 17") };
    let to = Recipient::Task(talker.into());
    let approved = w.send_message(Caller::Operator, to.clone(), approval.clone()).await;
    assert_eq!(w.send_message(Caller::Operator, to, approval).await, approved);
    let named = ConditionRequest::Message { timeout: None, name: Some("approval".into()) };
    park(w, talker, 1, named).await;
    w.submit(Command::ReadInbox(ReadInboxCommand {
        caller: client(),
        mark_read: MarkRead::Oldest(2),
    }))
    .await;
    park(w, talker, 0, ConditionRequest::Question { question: json("anybody there?") }).await;
}

async fn closing(w: &mut SessionWriter) {
    let running = w.spawn(client(), process()).await;
    w.send(client(), Recipient::Task(running.into())).await;
    w.submit(Command::Close(CloseCommand { caller: Caller::Operator, reason: None })).await;
    assert_eq!(w.tree.row().state, SessionState::Closing);
}

async fn closed(w: &mut SessionWriter) {
    let performed: Vec<TaskNo> =
        w.tree.rows().filter(|(_, row)| row.is_performed()).map(|(no, _)| no).collect();
    for no in performed {
        w.abort(no).await;
    }
}

fn row(w: &SessionWriter, number: u32) -> &TaskRow {
    w.tree.get(no(number)).unwrap_or_else(|| panic!("task {number} is not in memory"))
}

async fn park(
    w: &mut SessionWriter,
    number: impl Into<ScenarioTask>,
    index: u32,
    condition: ConditionRequest,
) {
    let no = number.into().0;
    let open = w.tree.get(no).map_or(0, |row| row.parked_calls.len()) + 1;
    let calls = vec![(CallIndex(index), condition)];
    w.report(
        no,
        AttemptReport::Park {
            calls,
            acked_entries: u32::MAX,
            then: AfterPark::Suspend { parked_count: open },
        },
    )
    .await;
}

/// A task by its number in the scenario, or by the number that a spawn returned.
struct ScenarioTask(TaskNo);

impl From<u32> for ScenarioTask {
    fn from(number: u32) -> Self {
        Self(no(number))
    }
}

impl From<TaskNo> for ScenarioTask {
    fn from(no: TaskNo) -> Self {
        Self(no)
    }
}

async fn answer(w: &mut SessionWriter, caller: Caller, answer: GivenAnswer) {
    let command =
        AnswerCommand { caller, task: no(HELPER).into(), call: None, answer, caller_call: None };
    w.submit(Command::Answer(command)).await;
}

/// Lets a tick grant slots, and checks that the task runs.
async fn running(w: &mut SessionWriter, number: u32) -> TaskNo {
    w.tick_after(1).await;
    assert!(
        matches!(row(w, number).state, TaskState::Running),
        "task {number} is {:?}",
        row(w, number).state
    );
    no(number)
}
