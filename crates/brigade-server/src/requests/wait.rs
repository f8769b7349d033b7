//! `wait`: waits for tasks and returns their results.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::address::{TaskRef, TaskSelector};
use brigade_model::call::{Condition, RunResult, WaitMode};
use brigade_model::event::Event;
use brigade_model::ids::{RunNo, TaskNo};
use brigade_model::readiness::Readiness;
use brigade_model::refusal::Refusal;
use brigade_model::task::{EarlierRun, EndedState, ResultDelivery, StoredTask, TaskRow};
use brigade_protocol::TaskTarget;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{WaitReply, WaitRequest, WaitUntil};
use brigade_protocol::task_info::TaskInfo;
use brigade_runtime::{FeedUpdate, PendingApproval, Session, WaitResult};

use super::list_approvals::new_approval_item;
use crate::request_context::{LocatedTask, RequestContext};
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for WaitRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<WaitReply, Refusal> {
        let finished = wait_for_tasks(&self, context).await?;
        let session = finished.session.row().name.to_string();
        let infos = |tasks: Vec<WaitedTask>| tasks.into_iter().map(|task| task.info).collect();
        let approvals = finished.pending_approvals.into_iter();
        Ok(WaitReply {
            ended: infos(finished.ended),
            still_running: infos(finished.still_running),
            ready: infos(finished.ready),
            timed_out: finished.timed_out,
            pending_approvals: approvals.map(|one| new_approval_item(&session, one)).collect(),
        })
    }
}

/// The tasks after a wait.
pub(crate) struct FinishedWait {
    pub(crate) session: Session,
    /// In the order in which they were named.
    pub(crate) ended: Vec<WaitedTask>,
    pub(crate) still_running: Vec<WaitedTask>,
    /// Only after a wait for readiness.
    pub(crate) ready: Vec<WaitedTask>,
    pub(crate) timed_out: bool,
    pub(crate) pending_approvals: Vec<PendingApproval>,
}

impl FinishedWait {
    fn new(session: Session, timed_out: bool) -> Self {
        Self {
            session,
            ended: Vec::new(),
            still_running: Vec::new(),
            ready: Vec::new(),
            timed_out,
            pending_approvals: Vec::new(),
        }
    }
}

/// A task after a wait, or one of its runs.
pub(crate) struct WaitedTask {
    pub(crate) no: TaskNo,
    pub(crate) row: Arc<TaskRow>,
    pub(crate) info: TaskInfo,
}

/// Waits for the tasks of a request. A client's wait collects their results.
pub(crate) async fn wait_for_tasks(
    request: &WaitRequest,
    context: &RequestContext,
) -> Result<FinishedWait, Refusal> {
    let ResolvedWait { session, targets } = resolve_targets(request, context).await?;
    if request.until == WaitUntil::Ready {
        return wait_for_readiness(request, context, session, &targets).await;
    }
    let result = match targets.is_empty() && context.is_client() {
        true => wait_for_own(request, context, &session).await?,
        false => wait_for_targets(request, context, &session, &targets).await?,
    };
    finish_wait(request, context, session, targets, result).await
}

/// Waits until tasks are ready. Collects nothing.
async fn wait_for_readiness(
    request: &WaitRequest,
    context: &RequestContext,
    session: Session,
    targets: &[WaitTarget],
) -> Result<FinishedWait, Refusal> {
    if targets.is_empty() {
        return Err(Refusal::invalid("name the tasks that are to become ready"));
    }
    let tasks = targets.iter().map(WaitTarget::task_ref).collect();
    let waited = session.wait_ready(tasks, request.mode, timeout(request)).await?;
    let mut finished = FinishedWait::new(session, waited.timed_out);
    for StoredTask { no, row } in waited.tasks {
        let readiness = row.readiness();
        let mut info = TaskInfo::of(&finished.session.row().name, no, &row);
        info.conversation = context.describe_conversation(&row);
        let task = WaitedTask { no, row, info };
        match readiness {
            Readiness::Ready(_) => finished.ready.push(task),
            Readiness::EndedBefore => finished.ended.push(task),
            Readiness::Pending => finished.still_running.push(task),
        }
    }
    Ok(finished)
}

/// The session and the tasks that a request names.
struct ResolvedWait {
    session: Session,
    targets: Vec<WaitTarget>,
}

/// A task that is waited for.
#[derive(Debug)]
struct WaitTarget {
    no: TaskNo,
    /// The run; `None` is the latest.
    run: Option<RunNo>,
    /// The result of an earlier run that was collected before.
    collected_result: Option<RunResult>,
}

/// The result of a wait.
enum TaskWaitResult {
    Ended(Vec<RunResult>),
    TimedOut,
    InputRequired,
}

/// Finds the tasks, which must be of one session: a wait is one command to one session.
async fn resolve_targets(
    request: &WaitRequest,
    context: &RequestContext,
) -> Result<ResolvedWait, Refusal> {
    let mut targets = Vec::with_capacity(request.tasks.len());
    let mut session: Option<Session> = None;
    for task in &request.tasks {
        let target = TaskTarget { session: request.session.clone(), task: task.clone() };
        let found = context.find_task(&target).await?;
        if session.as_ref().is_some_and(|other| other.id() != found.session.id()) {
            return Err(Refusal::invalid("all tasks of one wait must be of one session"));
        }
        targets.push(WaitTarget::of(&found).await?);
        session = Some(found.session);
    }
    let session = match session {
        Some(session) => context.session_for_wait(session).await?,
        None => context.open_session(&request.session).await?,
    };
    let session = match &context.validity {
        Some(validity) => session.with_cancellation(validity.cancellation().clone()),
        None => session,
    };
    Ok(ResolvedWait { session, targets })
}

/// Waits for the runs whose results this client receives. A conversation that lapses adds its
/// runs.
async fn wait_for_own(
    request: &WaitRequest,
    context: &RequestContext,
    session: &Session,
) -> Result<TaskWaitResult, Refusal> {
    if !context.has_conversation() {
        return Err(Refusal::invalid(
            "name the tasks to wait for: a client without a conversation has none of its own",
        ));
    }
    let timeout = async {
        match timeout(request) {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(timeout);
    let ends_with_input = request.until == WaitUntil::EndedOrInput;
    loop {
        let takeover = context.find_takeover(session);
        let session = session.clone().with_takeover(takeover.lapsed);
        let mut interrupt = WaitInterrupt::TimedOut;
        let interrupted = async {
            interrupt = tokio::select! {
                biased;
                () = wait_for_input(context, &session, Vec::new()), if ends_with_input => {
                    WaitInterrupt::InputRequired
                }
                () = &mut timeout => WaitInterrupt::TimedOut,
                () = context.sleep_until(takeover.next_lapse_at) => WaitInterrupt::Lapsed,
            };
        };
        let results = session.wait_until(Vec::new(), request.mode, interrupted).await?;
        match (results, interrupt) {
            (Some(results), _) => return Ok(TaskWaitResult::Ended(results)),
            (None, WaitInterrupt::InputRequired) => return Ok(TaskWaitResult::InputRequired),
            (None, WaitInterrupt::TimedOut) => return Ok(TaskWaitResult::TimedOut),
            (None, WaitInterrupt::Lapsed) => {}
        }
    }
}

async fn wait_for_targets(
    request: &WaitRequest,
    context: &RequestContext,
    session: &Session,
    targets: &[WaitTarget],
) -> Result<TaskWaitResult, Refusal> {
    let uncollected = targets.iter().filter(|target| target.collected_result.is_none());
    let uncollected: Vec<TaskRef> = uncollected.map(WaitTarget::task_ref).collect();
    let has_collected = uncollected.len() < targets.len();
    if has_collected && uncollected.is_empty() {
        return Ok(TaskWaitResult::Ended(Vec::new()));
    }
    // An any-wait that has one result needs no other. It only adds those that are ready.
    let is_complete = has_collected && request.mode == WaitMode::Any;
    let timeout = if is_complete { Some(Duration::ZERO) } else { timeout(request) };
    let range = WaitRange { tasks: uncollected, timeout };
    let result = match request.until {
        WaitUntil::Ended => wait_ended(request, session, range).await?,
        WaitUntil::EndedOrInput => wait_ended_or_input(request, context, session, range).await?,
        WaitUntil::Ready => return Err(Refusal::internal("a wait for readiness collects nothing")),
    };
    Ok(match result {
        TaskWaitResult::TimedOut if is_complete => TaskWaitResult::Ended(Vec::new()),
        result => result,
    })
}

async fn wait_ended(
    request: &WaitRequest,
    session: &Session,
    range: WaitRange,
) -> Result<TaskWaitResult, Refusal> {
    let WaitRange { tasks, timeout } = range;
    let results = match (timeout, request.mode) {
        (None, WaitMode::Any) => session.wait_any(tasks).await?,
        (None, WaitMode::All) => session.wait_all(tasks).await?,
        (Some(timeout), mode) => match session.wait_within(tasks, mode, timeout).await? {
            WaitResult::Ended(results) => results,
            WaitResult::TimedOut(_) => return Ok(TaskWaitResult::TimedOut),
        },
    };
    Ok(TaskWaitResult::Ended(results))
}

async fn wait_ended_or_input(
    request: &WaitRequest,
    context: &RequestContext,
    session: &Session,
    range: WaitRange,
) -> Result<TaskWaitResult, Refusal> {
    let WaitRange { tasks, timeout } = range;
    let mut interrupt = TaskWaitResult::InputRequired;
    let interrupted = async {
        let input = wait_for_input(context, session, task_numbers(&tasks));
        match timeout {
            Some(timeout) => {
                if tokio::time::timeout(timeout, input).await.is_err() {
                    interrupt = TaskWaitResult::TimedOut;
                }
            }
            None => input.await,
        }
    };
    let results = session.wait_until(tasks.clone(), request.mode, interrupted).await?;
    Ok(results.map_or(interrupt, TaskWaitResult::Ended))
}

async fn finish_wait(
    request: &WaitRequest,
    context: &RequestContext,
    session: Session,
    mut targets: Vec<WaitTarget>,
    result: TaskWaitResult,
) -> Result<FinishedWait, Refusal> {
    let timed_out = matches!(result, TaskWaitResult::TimedOut);
    let results = match result {
        TaskWaitResult::Ended(results) => results,
        TaskWaitResult::TimedOut | TaskWaitResult::InputRequired => Vec::new(),
    };
    let mut finished = FinishedWait::new(session.clone(), timed_out);
    if request.until == WaitUntil::EndedOrInput {
        let named = targets.iter().map(|target| target.no).collect();
        let watch = InputWatch::new(context, &session, named).await?;
        finished.pending_approvals = watch.pending_approvals();
    }
    if targets.is_empty() {
        targets = WaitTarget::of_results(&results);
    }
    for target in targets {
        let StoredTask { no, row } = session.get(target.no).await?;
        let mut info = TaskInfo::of(&session.row().name, no, &row);
        info.conversation = context.describe_conversation(&row);
        let scope =
            ReplyScope { latest_run: row.run, consumes_results: context.consumes_results() };
        let selected = target.select_results(&results, scope);
        if !selected.is_empty() {
            finished.ended.extend(selected.into_iter().map(|result| {
                let info = info.clone().for_run(result);
                WaitedTask { no, row: row.clone(), info }
            }));
        } else if is_shown_as_running(row.ended(), scope.consumes_results) {
            finished.still_running.push(WaitedTask { no, row, info });
        } else {
            finished.ended.push(WaitedTask { no, row, info });
        }
    }
    Ok(finished)
}

/// Returns whether a reply lists a task without a selected result as running. A task that ended after the
/// collection, or after the timeout, has a result that nobody collected: a later wait does.
fn is_shown_as_running(ended: Option<&EndedState>, consumes_results: bool) -> bool {
    ended.is_none_or(|ended| consumes_results && ended.delivery != ResultDelivery::Collected)
}

fn timeout(request: &WaitRequest) -> Option<Duration> {
    request.timeout_ms.map(Duration::from_millis)
}

/// The end of a wait without results.
enum WaitInterrupt {
    InputRequired,
    TimedOut,
    /// A conversation lapsed, so that there may be more runs to wait for.
    Lapsed,
}

/// The tasks and the timeout of one wait of the runtime.
struct WaitRange {
    tasks: Vec<TaskRef>,
    timeout: Option<Duration>,
}

/// The facts that select the results of one task for a reply.
#[derive(Clone, Copy)]
struct ReplyScope {
    latest_run: RunNo,
    consumes_results: bool,
}

impl WaitTarget {
    async fn of(found: &LocatedTask) -> Result<Self, Refusal> {
        let target = Self { no: found.no, run: found.run, collected_result: None };
        let Some(earlier) = found.run.filter(|run| *run < found.row.run) else {
            return Ok(target);
        };
        if find_uncollected_run(&found.row, earlier).is_some() {
            return Ok(target);
        }
        let result = find_earlier_result(found, earlier).await?;
        Ok(Self { collected_result: Some(result), ..target })
    }

    /// Returns a target for each task that has results.
    fn of_results(results: &[RunResult]) -> Vec<Self> {
        let mut numbers: Vec<TaskNo> = results.iter().map(|result| result.no).collect();
        numbers.dedup();
        let targets = numbers.into_iter().map(|no| Self { no, run: None, collected_result: None });
        targets.collect()
    }

    fn task_ref(&self) -> TaskRef {
        TaskRef { selector: TaskSelector::Number(self.no), run: self.run }
    }

    /// Returns every run whose result the caller collected. A caller that does not collect results
    /// gets the latest run alone, if it has ended.
    fn select_results<'a>(&'a self, all: &'a [RunResult], scope: ReplyScope) -> Vec<&'a RunResult> {
        let own = all.iter().chain(&self.collected_result).filter(|result| result.no == self.no);
        let own = own.filter(|result| self.run.is_none_or(|run| run == result.run));
        let own: Vec<&RunResult> = own.collect();
        let latest = own.iter().copied().find(|result| result.run == scope.latest_run);
        match latest {
            Some(latest) if !scope.consumes_results => vec![latest],
            _ => own,
        }
    }
}

/// Returns the result of a run that another run followed.
pub(super) async fn find_earlier_result(
    found: &LocatedTask,
    run: RunNo,
) -> Result<RunResult, Refusal> {
    let LocatedTask { no, row, .. } = found;
    let new_result = |outcome, ended_at, collected_before| RunResult {
        no: *no,
        run,
        kind: row.spec.work.kind(),
        name: row.name.clone(),
        outcome,
        ended_at,
        collected_before,
    };
    if let Some(ended) = find_uncollected_run(row, run) {
        return Ok(new_result(ended.outcome.clone(), ended.ended_at, false));
    }
    match found.session.earlier_run(*no, run).await? {
        Some(stored) => Ok(new_result(stored.outcome, stored.ended_at, true)),
        None => {
            let address = row.address(*no);
            Err(Refusal::not_found(format!("run {run} of {address} is no longer stored")))
        }
    }
}

fn find_uncollected_run(row: &TaskRow, run: RunNo) -> Option<&EarlierRun> {
    let mut uncollected = row.extras.iter().flat_map(|extra| &extra.earlier_runs);
    uncollected.find(|ended| ended.run == run)
}

fn task_numbers(tasks: &[TaskRef]) -> Vec<TaskNo> {
    let numbers = tasks.iter().filter_map(|task| match task.selector {
        TaskSelector::Number(no) => Some(no),
        TaskSelector::KindAndNumber(..) | TaskSelector::Name(_) => None,
    });
    numbers.collect()
}

/// Returns when one of these tasks asks a question, or when one of them or of their descendants
/// needs an approval. Without tasks, it watches all whose results this client receives.
async fn wait_for_input(context: &RequestContext, session: &Session, tasks: Vec<TaskNo>) {
    let Ok(watch) = InputWatch::new(context, session, tasks).await else {
        // The wait itself reports the error.
        return std::future::pending().await;
    };
    let mut feed = watch.whole_session.subscribe(context.runtime().cursor());
    loop {
        if watch.has_pending_input() {
            return;
        }
        loop {
            match feed.next().await {
                Some(Ok(FeedUpdate::Event(item)))
                    if !matches!(item.record.event, Event::Parked { .. }) => {}
                Some(Ok(_)) => break,
                // The runtime shuts down, which the wait itself reports.
                Some(Err(_)) | None => std::future::pending().await,
            }
        }
    }
}

/// Finds questions and approvals that end a wait.
struct InputWatch<'a> {
    context: &'a RequestContext,
    session: &'a Session,
    /// The same session with all descendants of this client's tasks.
    whole_session: Session,
    /// The tasks to watch. If empty, all whose results this client receives.
    tasks: Vec<TaskNo>,
}

impl<'a> InputWatch<'a> {
    async fn new(
        context: &'a RequestContext,
        session: &'a Session,
        tasks: Vec<TaskNo>,
    ) -> Result<Self, Refusal> {
        let whole_session = context.runtime().operator_session(session.id()).await?;
        Ok(Self { context, session, whole_session, tasks })
    }

    fn has_pending_input(&self) -> bool {
        let rows = self.session.list();
        let asks = |row: &TaskRow| row.is_alive() && has_open_question(row);
        rows.iter().any(|task| asks(&task.row) && self.is_selected(task.no, &task.row))
            || !self.pending_approvals().is_empty()
    }

    fn is_selected(&self, no: TaskNo, row: &TaskRow) -> bool {
        match self.tasks.as_slice() {
            [] => self.context.receives_from(row),
            named => named.contains(&no),
        }
    }

    /// Returns the pending approvals of the watched tasks and their descendants.
    fn pending_approvals(&self) -> Vec<PendingApproval> {
        let pending = self.session.approvals();
        if pending.is_empty() {
            return Vec::new();
        }
        let tasks = self.whole_session.list().into_iter();
        let rows: HashMap<TaskNo, Arc<TaskRow>> = tasks.map(|task| (task.no, task.row)).collect();
        let is_watched = |no: TaskNo| {
            let owner = |no: &TaskNo| rows.get(no).and_then(|row| row.owner.task());
            let mut owners = std::iter::successors(Some(no), owner);
            owners.any(|no| rows.get(&no).is_some_and(|row| self.is_selected(no, row)))
        };
        pending.into_iter().filter(|approval| is_watched(approval.task)).collect()
    }
}

fn has_open_question(row: &TaskRow) -> bool {
    row.parked_calls.iter().any(|call| {
        matches!(call.condition, Condition::Question { .. } | Condition::ClientTool { .. })
    })
}

#[cfg(test)]
mod tests {
    use brigade_model::ids::Time;
    use brigade_model::json::Json;
    use brigade_model::outcome::Outcome;

    use super::*;

    #[test]
    fn a_result_that_a_wait_has_not_collected_is_not_in_its_reply() {
        let ended = |delivery| EndedState {
            outcome: Arc::new(Outcome::Succeeded { result: Json::null() }),
            at: Time(1),
            delivery,
            lingering: false,
        };
        let pending = ended(ResultDelivery::Pending);
        assert!(is_shown_as_running(Some(&pending), true));
        assert!(!is_shown_as_running(Some(&pending), false), "the operator collects nothing");
        assert!(!is_shown_as_running(Some(&ended(ResultDelivery::Collected)), true));
        assert!(is_shown_as_running(None, true));
    }
}
