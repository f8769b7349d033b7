//! One task.

use brigade_model::ids::Owner;
use brigade_model::limits::Limits;
use brigade_model::refusal::{Refusal, RefusalKind};
use serde::{Deserialize, Serialize};

use super::wait::find_earlier_result;
use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{LocatedTask, RequestContext, TaskTarget};
use crate::task_info::{InheritedLimits, TaskInfo};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShowTaskRequest {
    pub target: TaskTarget,
}

impl Call for ShowTaskRequest {
    type Reply = TaskInfo;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<TaskInfo, Refusal> {
        let found = desk.find_task(&self.target).await?;
        let mut info = TaskInfo::of(&found.session.row().name, found.no, &found.row);
        info.conversation = desk.describe_conversation(&found.row);
        info.inherited_limits = list_inherited_limits(desk, &found).await?;
        info.held_ms = read_held_ms(&found).await;
        match found.run.filter(|run| *run < found.row.run) {
            Some(run) => Ok(info.for_run(&find_earlier_result(&found, run).await?)),
            None => Ok(info),
        }
    }
}

/// How long the output of a command has waited for readers. None when it has not, or nobody knows.
async fn read_held_ms(found: &LocatedTask) -> Option<u64> {
    let output = found.session.output(found.task_ref()).await.ok()?;
    let totals = tokio::task::spawn_blocking(move || output.totals()).await.ok()?;
    totals.ok().map(|totals| totals.held_ms).filter(|held| *held > 0)
}

/// The limits of every holder above a task, also of those that ended and whose task it was to keep it.
async fn list_inherited_limits(
    desk: &RequestContext,
    found: &LocatedTask,
) -> Result<Vec<InheritedLimits>, Refusal> {
    // A task sees its own children only, and yet it is told what holds for them.
    let session = desk.runtime().operator_session(found.session.id()).await?;
    let mut above = Vec::new();
    let mut kept = found.row.limit_holder() != found.row.owner;
    let mut holder = found.row.limit_holder();
    while let Owner::Task(no) = holder {
        let row = match session.get(no).await {
            Ok((_, row)) => row,
            // Of a task that is over, what limited it may be gone too.
            Err(refusal) if refusal.kind == RefusalKind::NotFound => break,
            Err(refusal) => return Err(refusal),
        };
        if let Some(limits) = row.limits.as_deref().and_then(shared_limits) {
            let (holder, outlived) = (Some(row.address(no)), kept && !row.is_alive());
            above.push(InheritedLimits {
                holder,
                holder_ended: outlived,
                limits,
                usage: row.usage(),
            });
        }
        kept |= row.limit_holder() != row.owner;
        holder = row.limit_holder();
    }
    let row = session.row();
    above.extend(shared_limits(&row.limits).map(|limits| InheritedLimits {
        holder: None,
        holder_ended: false,
        limits,
        usage: row.usage,
    }));
    Ok(above)
}

/// Without what a holder has for itself alone.
fn shared_limits(limits: &Limits) -> Option<Limits> {
    let shared = Limits { stall: None, inbox: None, ..*limits };
    (!shared.is_empty()).then_some(shared)
}
