//! Tasks as answers of the API.

use brigade_model::ids::{RunNo, Time};
use brigade_model::refusal::Refusal;
use brigade_protocol::http::task::TaskSession;
use brigade_protocol::http::task_detail::DetailFacts;
use brigade_protocol::http::{
    InheritedLimitsBody, LimitsBody, PendingApprovalBody, RemainingBody, RunBody, TaskDetailBody,
    TaskId,
};
use brigade_protocol::task_info::ApprovalInfo;
use brigade_runtime::PendingApproval;

use super::routes::{HttpState, task_session};
use crate::request_context::{LocatedTask, RequestContext};
use crate::requests::show_task::{LimitHolder, describe_task, list_limit_holders};

/// The number of earlier runs in an answer.
const EARLIER_RUNS_MAX: u32 = 100;

/// Returns a task, or one of its runs, with all details.
pub(crate) async fn describe_whole(
    state: &HttpState,
    context: &RequestContext,
    found: &LocatedTask,
) -> Result<TaskDetailBody, Refusal> {
    let session = task_session(&found.session);
    let now = state.daemon.runtime.clock().now();
    let facts = DetailFacts {
        cursor: state.cursor().to_string(),
        inherited_limits: list_inherited(context, found, now).await?,
        earlier_runs: list_earlier_runs(found).await?,
        now,
    };
    let info = describe_task(context, found).await?;
    Ok(TaskDetailBody::of(&session, found.no, &found.row, info, facts))
}

/// Returns the limits of other holders that apply to a task.
pub(crate) async fn list_inherited(
    context: &RequestContext,
    found: &LocatedTask,
    now: Time,
) -> Result<Vec<InheritedLimitsBody>, Refusal> {
    let session = found.session.id();
    let holders = list_limit_holders(context, found).await?;
    let bodies = holders.into_iter().map(|holder| {
        let LimitHolder { task, limits, usage } = holder;
        InheritedLimitsBody {
            holder: task.as_ref().map(|task| TaskId { session, no: task.no }),
            holder_ended: task.as_ref().is_some_and(|task| task.has_ended),
            limits: LimitsBody::of(&limits),
            usage: usage.into(),
            remaining: match &task {
                Some(task) => RemainingBody::of_task(&task.row, now),
                None => RemainingBody::of(&limits, usage),
            },
        }
    });
    Ok(bodies.collect())
}

/// Returns the latest earlier runs that are still stored.
async fn list_earlier_runs(found: &LocatedTask) -> Result<Vec<RunBody>, Refusal> {
    let latest = found.row.run.0;
    let uncollected = found.row.extras.iter().flat_map(|extras| &extras.earlier_runs);
    let uncollected: Vec<_> = uncollected.collect();
    let mut runs = Vec::new();
    for run in latest.saturating_sub(EARLIER_RUNS_MAX).max(1)..latest {
        let run = RunNo(run);
        if let Some(ended) = uncollected.iter().find(|ended| ended.run == run) {
            runs.push(RunBody::of(run, &ended.outcome, ended.ended_at, false));
        } else if let Some(stored) = found.session.earlier_run(found.no, run).await? {
            runs.push(RunBody::of(run, &stored.outcome, stored.ended_at, true));
        }
    }
    Ok(runs)
}

pub(crate) fn pending_approval(
    session: &TaskSession,
    pending: PendingApproval,
) -> PendingApprovalBody {
    let task = |no| TaskId { session: session.id, no };
    let PendingApproval { task: no, row, top_task, call, request, requested_at } = pending;
    PendingApprovalBody {
        task: task(no),
        session: session.id.to_string(),
        session_name: session.name.to_string(),
        address: row.address(no),
        name: row.name.as_ref().map(ToString::to_string),
        top_task: task(top_task),
        approval: ApprovalInfo::of(no, call, &request, requested_at).into(),
    }
}
