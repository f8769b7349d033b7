//! One task.

use brigade_model::ids::Owner;
use brigade_model::limits::Limits;
use brigade_model::refusal::{Refusal, RefusalKind};
use serde::{Deserialize, Serialize};

use super::wait::earlier_ending;
use crate::ask::{Ask, Items, Never};
use crate::desk::{Desk, Located, Target};
use crate::info::{LimitsAbove, TaskInfo};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Show {
    pub target: Target,
}

impl Ask for Show {
    type Done = TaskInfo;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<TaskInfo, Refusal> {
        let found = desk.find(&self.target).await?;
        let mut info = TaskInfo::of(&found.session.row().name, found.no, &found.row);
        info.conversation = desk.conversation_of(&found.row);
        info.limits_above = limits_above(desk, &found).await?;
        info.held_ms = held_ms(&found).await;
        match found.run.filter(|run| *run < found.row.run) {
            Some(run) => Ok(info.of_run(&earlier_ending(&found, run).await?)),
            None => Ok(info),
        }
    }
}

/// How long the output of a command has waited for readers. None when it has not, or nobody knows.
async fn held_ms(found: &Located) -> Option<u64> {
    let output = found.session.output(found.task_ref()).await.ok()?;
    let totals = tokio::task::spawn_blocking(move || output.totals()).await.ok()?;
    totals.ok().map(|totals| totals.held_ms).filter(|held| *held > 0)
}

/// The limits of every holder above a task, also of those that ended and whose task it was to keep it.
async fn limits_above(desk: &Desk, found: &Located) -> Result<Vec<LimitsAbove>, Refusal> {
    // A task sees its own children only, and yet it is told what holds for them.
    let session = desk.runtime().operate(found.session.id()).await?;
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
        if let Some(limits) = row.limits.as_deref().and_then(shared) {
            let (holder, outlived) = (Some(row.address(no)), kept && !row.is_living());
            above.push(LimitsAbove { holder, outlived, limits, usage: row.usage() });
        }
        kept |= row.limit_holder() != row.owner;
        holder = row.limit_holder();
    }
    let row = session.row();
    above.extend(shared(&row.limits).map(|limits| LimitsAbove {
        holder: None,
        outlived: false,
        limits,
        usage: row.usage,
    }));
    Ok(above)
}

/// Without what a holder has for itself alone.
fn shared(limits: &Limits) -> Option<Limits> {
    let shared = Limits { stall: None, inbox: None, ..*limits };
    (!shared.is_empty()).then_some(shared)
}
