//! `show_task`: shows one task with all details.

use std::sync::Arc;

use brigade_model::ids::{Owner, TaskNo};
use brigade_model::limits::{Limits, Usage};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::task::TaskRow;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::ShowTaskRequest;
use brigade_protocol::task_info::{InheritedLimits, TaskInfo};

use super::wait::find_earlier_result;
use crate::request_context::{LocatedTask, RequestContext};
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for ShowTaskRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<TaskInfo, Refusal> {
        let found = context.find_task(&self.target).await?;
        let holders = list_limit_holders(context, &found).await?;
        let mut info = describe_task(context, &found).await?;
        info.inherited_limits = holders.into_iter().map(LimitHolder::inherited).collect();
        Ok(info)
    }
}

/// Returns the details of a task, or of its named run, without the limits of other holders.
pub(crate) async fn describe_task(
    context: &RequestContext,
    found: &LocatedTask,
) -> Result<TaskInfo, Refusal> {
    let mut info = TaskInfo::of(&found.session.row().name, found.no, &found.row);
    info.conversation = context.describe_conversation(&found.row);
    info.held_ms = read_held_ms(found).await;
    match found.run.filter(|run| *run < found.row.run) {
        Some(run) => Ok(info.for_run(&find_earlier_result(found, run).await?)),
        None => Ok(info),
    }
}

/// A holder of limits that apply to a task.
#[derive(Clone, Debug)]
pub(crate) struct LimitHolder {
    /// The task; `None` for the session.
    pub(crate) task: Option<HolderTask>,
    pub(crate) limits: Limits,
    /// The usage of all tasks that share the limits.
    pub(crate) usage: Usage,
}

#[derive(Clone, Debug)]
pub(crate) struct HolderTask {
    pub(crate) no: TaskNo,
    pub(crate) row: Arc<TaskRow>,
    /// It has ended and kept the task.
    pub(crate) has_ended: bool,
}

impl LimitHolder {
    fn inherited(self) -> InheritedLimits {
        let Self { task, limits, usage } = self;
        InheritedLimits {
            holder: task.as_ref().map(|task| task.row.address(task.no)),
            holder_ended: task.is_some_and(|task| task.has_ended),
            limits,
            usage,
        }
    }
}

/// Returns the time that a process has waited for readers of its output. `None` if it did not wait
/// or the time is unknown.
async fn read_held_ms(found: &LocatedTask) -> Option<u64> {
    let output = found.session.output(found.task_ref()).await.ok()?;
    let totals = tokio::task::spawn_blocking(move || output.totals()).await.ok()?;
    totals.ok().map(|totals| totals.held_ms).filter(|held| *held > 0)
}

/// Returns the limits of every holder that apply to a task, also of ended holders that kept it.
pub(crate) async fn list_limit_holders(
    context: &RequestContext,
    found: &LocatedTask,
) -> Result<Vec<LimitHolder>, Refusal> {
    // A task sees only its children, but may see all limits that apply to them.
    let session = context.runtime().operator_session(found.session.id()).await?;
    let mut inherited = Vec::new();
    let mut kept = found.row.limit_holder() != found.row.owner;
    let mut holder = found.row.limit_holder();
    while let Owner::Task(no) = holder {
        let row = match session.get(no).await {
            Ok(task) => task.row,
            // Retention may have removed the holder of an ended task.
            Err(refusal) if refusal.kind == RefusalKind::NotFound => break,
            Err(refusal) => return Err(refusal),
        };
        if let Some(limits) = row.limits.as_deref().and_then(shared_limits) {
            let has_ended = kept && !row.is_alive();
            let task = Some(HolderTask { no, row: row.clone(), has_ended });
            inherited.push(LimitHolder { task, limits, usage: row.usage() });
        }
        kept |= row.limit_holder() != row.owner;
        holder = row.limit_holder();
    }
    let row = session.row();
    let shared = shared_limits(&row.limits);
    inherited.extend(shared.map(|limits| LimitHolder { task: None, limits, usage: row.usage }));
    Ok(inherited)
}

/// Returns the limits that a holder shares with its descendants.
fn shared_limits(limits: &Limits) -> Option<Limits> {
    let shared = Limits { stall: None, inbox: None, ..*limits };
    (!shared.is_empty()).then_some(shared)
}
