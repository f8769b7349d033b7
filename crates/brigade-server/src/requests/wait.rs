//! Waits for tasks.

use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::ids::TaskNo;
use brigade_model::refusal::Refusal;
use brigade_runtime::{Session, WaitResult};
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::{Desk, Target};
use crate::info::TaskInfo;

/// The operator's wait consumes nothing, nor does that of a process below a command, which reads
/// results and has no inbox that they could come to. A client's takes the results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wait {
    /// Where addresses without a session are looked for.
    pub session: String,
    /// The client's own runs, when there are none.
    #[serde(default)]
    pub tasks: Vec<String>,
    pub mode: WaitMode,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Waited {
    /// In the order in which they were named.
    pub ended: Vec<TaskInfo>,
    /// Those that still go on. Not empty with an any-wait, or when the time was up.
    pub going_on: Vec<TaskInfo>,
    pub timed_out: bool,
}

impl Ask for Wait {
    type Done = Waited;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Waited, Refusal> {
        let (session, numbers) = self.targets(desk).await?;
        let refs: Vec<_> = numbers.iter().map(|no| (*no).into()).collect();
        let patience = self.timeout_ms.map(Duration::from_millis);
        let (endings, timed_out) = match patience {
            None if self.mode == WaitMode::Any => (session.wait_any(refs).await?, false),
            None => (session.wait_all(refs).await?, false),
            Some(patience) => match session.wait_within(refs, self.mode, patience).await? {
                WaitResult::Ended(endings) => (endings, false),
                WaitResult::TimedOut(_) => (Vec::new(), true),
            },
        };
        let name = session.row().name;
        let mut waited = Waited { ended: Vec::new(), going_on: Vec::new(), timed_out };
        let asked = if numbers.is_empty() {
            endings.iter().map(|ending| ending.no).collect()
        } else {
            numbers
        };
        for no in asked {
            let (_, row) = session.get(no).await?;
            let mut info = TaskInfo::of(&name, no, &row);
            match endings.iter().find(|ending| ending.no == no) {
                Some(ending) => {
                    info.set_outcome(&ending.outcome);
                    info.collected_before = ending.collected_before;
                    waited.ended.push(info);
                }
                None if row.ended().is_some() => waited.ended.push(info),
                None => waited.going_on.push(info),
            }
        }
        Ok(waited)
    }
}

impl Wait {
    /// All in one session: a wait is one question to one tree.
    async fn targets(&self, desk: &Desk) -> Result<(Session, Vec<TaskNo>), Refusal> {
        let mut numbers = Vec::new();
        let mut session: Option<Session> = None;
        for task in &self.tasks {
            let target = Target { session: self.session.clone(), task: task.clone() };
            let found = desk.find(&target).await?;
            if session.as_ref().is_some_and(|other| other.id() != found.session.id()) {
                return Err(Refusal::invalid("one wait is for tasks of one session; ask twice"));
            }
            session = Some(found.session);
            numbers.push(found.no);
        }
        match session {
            Some(session) => Ok((desk.waiting_in(session).await?, numbers)),
            None => Ok((desk.open(&self.session).await?, numbers)),
        }
    }
}
