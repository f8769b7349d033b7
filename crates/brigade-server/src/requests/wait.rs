//! Waits for tasks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::address::{TaskRef, TaskSelector};
use brigade_model::call::{Condition, RunResult, WaitMode};
use brigade_model::event::Event;
use brigade_model::ids::{RunNo, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;
use brigade_runtime::{FeedUpdate, Session, WaitResult};
use serde::{Deserialize, Serialize};

use super::PendingApprovalItem;
use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{LocatedTask, RequestContext, TaskTarget};
use crate::task_info::TaskInfo;

/// The operator's wait consumes nothing, nor does that of a process below a command, which reads
/// results and has no inbox that they could come to. A client's takes the results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WaitRequest {
    /// Where addresses without a session are looked for.
    pub session: String,
    /// When there are none, what comes to the client unasked: its runs of this conversation, and of
    /// those that have lapsed.
    #[serde(default)]
    pub tasks: Vec<String>,
    pub mode: WaitMode,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// What a wait is over with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitUntil {
    Ended,
    EndedOrInput,
}

/// Why a wait is over before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitInterrupt {
    InputRequired,
    TimedOut,
    /// There may be more to wait for by now.
    Lapsed,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WaitReply {
    /// In the order in which they were named.
    pub ended: Vec<TaskInfo>,
    /// Those that still go on. Not empty with an any-wait, when the time was up, or when one asks.
    pub still_running: Vec<TaskInfo>,
    pub timed_out: bool,
    /// The calls of these tasks and of all below them that wait for the user, where they end a wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_approvals: Vec<PendingApprovalItem>,
}

impl Call for WaitRequest {
    type Reply = WaitReply;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<WaitReply, Refusal> {
        self.run_until(desk, WaitUntil::Ended).await
    }
}

impl WaitRequest {
    pub(super) async fn run_until(
        self,
        desk: &RequestContext,
        until: WaitUntil,
    ) -> Result<WaitReply, Refusal> {
        let (session, mut sought) = self.resolve_targets(desk).await?;
        let (endings, timed_out) = match desk.consumes_results() && sought.is_empty() {
            true => self.wait_for_own(desk, &session, until).await?,
            false => self.wait_for_targets((desk, &session), &sought, until).await?,
        };
        if sought.is_empty() {
            let mut told: Vec<TaskNo> = endings.iter().map(|ending| ending.no).collect();
            told.dedup();
            sought = told
                .into_iter()
                .map(|no| WaitTarget { no, run: None, collected_result: None })
                .collect();
        }
        let mut waited = WaitReply { timed_out, ..WaitReply::default() };
        if until == WaitUntil::EndedOrInput {
            let named: Vec<TaskNo> = match self.tasks.is_empty() {
                true => Vec::new(),
                false => sought.iter().map(|one| one.no).collect(),
            };
            waited.pending_approvals =
                InputWatch::new(desk, &session, named).await?.pending_approvals();
        }
        for one in sought {
            let (no, row) = session.get(one.no).await?;
            let mut info = TaskInfo::of(&session.row().name, no, &row);
            info.conversation = desk.describe_conversation(&row);
            let heard = one.select_results(&endings, (row.run, desk.consumes_results()));
            if heard.is_empty() && row.is_alive() {
                waited.still_running.push(info);
            } else if heard.is_empty() {
                waited.ended.push(info);
            } else {
                waited.ended.extend(heard.into_iter().map(|ending| info.clone().for_run(ending)));
            }
        }
        Ok(waited)
    }
}

/// A task that is waited for.
#[derive(Debug)]
struct WaitTarget {
    no: TaskNo,
    /// The latest, when nobody says.
    run: Option<RunNo>,
    /// How that run ended, where it was told long ago and another began since.
    collected_result: Option<RunResult>,
}

impl WaitTarget {
    async fn of(found: &LocatedTask) -> Result<Self, Refusal> {
        let (no, run, row) = (found.no, found.run, &found.row);
        let Some(earlier) = run.filter(|run| *run < row.run) else {
            return Ok(Self { no, run, collected_result: None });
        };
        let untold = row.extras.iter().flat_map(|extra| &extra.earlier_runs);
        if untold.into_iter().any(|ended| ended.run == earlier) {
            return Ok(Self { no, run, collected_result: None });
        }
        let told = Some(find_earlier_result(found, earlier).await?);
        Ok(Self { no, run, collected_result: told })
    }

    /// What is to be told of it. Who takes results is told of every run whose result he took, and
    /// everybody else of the latest, if that is over.
    fn select_results<'a>(
        &'a self,
        all: &'a [RunResult],
        (latest, takes): (RunNo, bool),
    ) -> Vec<&'a RunResult> {
        let of_it = all.iter().chain(&self.collected_result).filter(|ending| ending.no == self.no);
        let of_it = of_it.filter(|ending| self.run.is_none_or(|run| run == ending.run));
        let of_it: Vec<&RunResult> = of_it.collect();
        let last = of_it.iter().copied().find(|ending| ending.run == latest);
        match last {
            Some(last) if !takes => vec![last],
            _ => of_it,
        }
    }
}

/// How a run ended that another followed.
pub(super) async fn find_earlier_result(
    found: &LocatedTask,
    run: RunNo,
) -> Result<RunResult, Refusal> {
    let (no, row) = (found.no, &found.row);
    let untold = row.extras.iter().flat_map(|extra| &extra.earlier_runs);
    let untold = untold.into_iter().find(|ended| ended.run == run);
    let collected_before = untold.is_none();
    let (outcome, at) = match untold {
        Some(ended) => (ended.outcome.clone(), ended.ended_at),
        None => match found.session.earlier_run(no, run).await? {
            Some(kept) => (kept.outcome, kept.ended_at),
            None => {
                let address = row.address(no);
                return Err(Refusal::not_found(format!("run {run} of {address} is not kept")));
            }
        },
    };
    let (kind, name) = (row.spec.work.kind(), row.name.clone());
    Ok(RunResult { no, run, kind, name, outcome, ended_at: at, collected_before })
}

impl WaitRequest {
    async fn wait_for_targets(
        &self,
        (desk, session): (&RequestContext, &Session),
        sought: &[WaitTarget],
        until: WaitUntil,
    ) -> Result<(Vec<RunResult>, bool), Refusal> {
        let untold = sought.iter().filter(|one| one.collected_result.is_none());
        let untold =
            untold.map(|one| TaskRef { selector: TaskSelector::Number(one.no), run: one.run });
        let untold: Vec<TaskRef> = untold.collect();
        let is_told = untold.len() < sought.len();
        let patience = match self.timeout_ms.map(Duration::from_millis) {
            _ if is_told && untold.is_empty() => return Ok((Vec::new(), false)),
            // It is answered already, with whatever else has ended by now.
            _ if is_told && self.mode == WaitMode::Any => Some(Duration::ZERO),
            patience => patience,
        };
        if until == WaitUntil::EndedOrInput {
            let (endings, is_up) =
                self.wait_ended_or_input(desk, session, (untold, patience)).await?;
            return Ok((endings, is_up && (!is_told || self.mode == WaitMode::All)));
        }
        Ok(match patience {
            None if self.mode == WaitMode::Any => (session.wait_any(untold).await?, false),
            None => (session.wait_all(untold).await?, false),
            Some(patience) => match session.wait_within(untold, self.mode, patience).await? {
                WaitResult::Ended(endings) => (endings, false),
                WaitResult::TimedOut(_) => (Vec::new(), !is_told || self.mode == WaitMode::All),
            },
        })
    }

    /// Waits for what comes to this client unasked, which grows when a conversation lapses.
    async fn wait_for_own(
        &self,
        desk: &RequestContext,
        session: &Session,
        until: WaitUntil,
    ) -> Result<(Vec<RunResult>, bool), Refusal> {
        if !desk.has_conversation() {
            return Err(Refusal::invalid(
                "name the tasks to wait for: a client without a conversation has none of its own",
            ));
        }
        let time_is_up = async {
            match self.timeout_ms.map(Duration::from_millis) {
                Some(patience) => tokio::time::sleep(patience).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(time_is_up);
        loop {
            let takeover = desk.find_takeover(session);
            let session = session.clone().with_takeover(takeover.lapsed);
            let mut end = WaitInterrupt::TimedOut;
            let ends = async {
                end = tokio::select! {
                    biased;
                    () = wait_for_input(desk, &session, Vec::new()), if until == WaitUntil::EndedOrInput => WaitInterrupt::InputRequired,
                    () = &mut time_is_up => WaitInterrupt::TimedOut,
                    () = desk.sleep_until(takeover.next_lapse_at) => WaitInterrupt::Lapsed,
                };
            };
            let endings = session.wait_until(Vec::new(), self.mode, ends).await?;
            match (endings, end) {
                (Some(endings), _) => return Ok((endings, false)),
                (None, WaitInterrupt::Lapsed) => {}
                (None, end) => return Ok((Vec::new(), end == WaitInterrupt::TimedOut)),
            }
        }
    }

    /// Whichever is first: the endings, a question, or the end of patience.
    async fn wait_ended_or_input(
        &self,
        desk: &RequestContext,
        session: &Session,
        (untold, patience): (Vec<TaskRef>, Option<Duration>),
    ) -> Result<(Vec<RunResult>, bool), Refusal> {
        let mut timed_out = false;
        let end = async {
            let asked = wait_for_input(desk, session, task_numbers(&untold));
            match patience {
                Some(patience) => timed_out = tokio::time::timeout(patience, asked).await.is_err(),
                None => asked.await,
            }
        };
        let endings = session.wait_until(untold.clone(), self.mode, end).await?;
        Ok(endings.map_or((Vec::new(), timed_out), |endings| (endings, false)))
    }

    /// All in one session: a wait is one question to one tree.
    async fn resolve_targets(
        &self,
        desk: &RequestContext,
    ) -> Result<(Session, Vec<WaitTarget>), Refusal> {
        let mut sought = Vec::new();
        let mut session: Option<Session> = None;
        for task in &self.tasks {
            let target = TaskTarget { session: self.session.clone(), task: task.clone() };
            let found = desk.find_task(&target).await?;
            if session.as_ref().is_some_and(|other| other.id() != found.session.id()) {
                return Err(Refusal::invalid("one wait is for tasks of one session; ask twice"));
            }
            sought.push(WaitTarget::of(&found).await?);
            session = Some(found.session);
        }
        match session {
            Some(session) => Ok((desk.session_for_wait(session).await?, sought)),
            None => Ok((desk.open_session(&self.session).await?, sought)),
        }
    }
}

fn task_numbers(tasks: &[TaskRef]) -> Vec<TaskNo> {
    let numbers = tasks.iter().filter_map(|task| match task.selector {
        TaskSelector::Number(no) => Some(no),
        TaskSelector::KindAndNumber(..) | TaskSelector::Name(_) => None,
    });
    numbers.collect()
}

/// Until one of these tasks asks something, or one of them or of those below waits for an approval; any
/// whose results come to this client, when none are named.
async fn wait_for_input(desk: &RequestContext, session: &Session, tasks: Vec<TaskNo>) {
    let Ok(attention) = InputWatch::new(desk, session, tasks).await else {
        // The wait itself says what is wrong.
        return std::future::pending().await;
    };
    let mut feed = attention.whole_session.subscribe(desk.runtime().position());
    loop {
        if attention.has_pending_input() {
            return;
        }
        loop {
            match feed.next().await {
                Ok(FeedUpdate::Event(item))
                    if !matches!(item.record.event, Event::Parked { .. }) => {}
                Ok(_) => break,
                // The runtime is ending, and says so to the wait itself.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

/// Looks for what ends a wait before its tasks end.
struct InputWatch<'a> {
    context: &'a RequestContext,
    session: &'a Session,
    /// The same session with all that is below the tasks of this client.
    whole_session: Session,
    /// Whatever comes to this client unasked, when there are none.
    tasks: Vec<TaskNo>,
}

impl<'a> InputWatch<'a> {
    async fn new(
        desk: &'a RequestContext,
        session: &'a Session,
        tasks: Vec<TaskNo>,
    ) -> Result<Self, Refusal> {
        let all = desk.runtime().operator_session(session.id()).await?;
        Ok(Self { context: desk, session, whole_session: all, tasks })
    }

    fn has_pending_input(&self) -> bool {
        let rows = self.session.list();
        let asks = |row: &TaskRow| row.is_alive() && has_open_question(row);
        rows.iter().any(|(no, row)| asks(row) && self.is_selected(*no, row))
            || !self.pending_approvals().is_empty()
    }

    fn is_selected(&self, no: TaskNo, row: &TaskRow) -> bool {
        match self.tasks.as_slice() {
            [] => self.context.receives_from(row),
            named => named.contains(&no),
        }
    }

    /// The calls that wait for an approval, in these tasks and below.
    fn pending_approvals(&self) -> Vec<PendingApprovalItem> {
        let pending = self.session.approvals();
        if pending.is_empty() {
            return Vec::new();
        }
        let rows: HashMap<TaskNo, Arc<TaskRow>> = self.whole_session.list().into_iter().collect();
        let is_meant = |no: TaskNo| {
            let owner = |no: &TaskNo| rows.get(no).and_then(|row| row.owner.task());
            let mut line = std::iter::successors(Some(no), owner);
            line.any(|no| rows.get(&no).is_some_and(|row| self.is_selected(no, row)))
        };
        let session = self.session.row().name.to_string();
        let meant = pending.into_iter().filter(|one| is_meant(one.task));
        meant.map(|one| PendingApprovalItem::of(&session, one)).collect()
    }
}

fn has_open_question(row: &TaskRow) -> bool {
    row.parked_calls.iter().any(|call| {
        matches!(call.condition, Condition::Question { .. } | Condition::ClientTool { .. })
    })
}
