//! Recovery: reconciles and commits every stored session before the first request is answered.

use std::sync::Arc;

use brigade_model::action::Action;
use brigade_model::command::{
    AttemptReport, Command, EndReport, RecoverCommand, RecoveryFinding, ReportCommand, WorkResult,
};
use brigade_model::ids::{SessionId, TaskNo};
use brigade_model::outcome::{EndConfirmation, Failure};
use brigade_model::refusal::Refusal;
use brigade_model::task::{StopPhase, TaskRow, TaskState};
use brigade_model::task_tree::{SessionState, TaskTree};
use brigade_model::work::{RecoveryPolicy, TaskKind};
use brigade_store::StoreError;

use crate::commit::{Acknowledged, Decided};
use crate::error::store_refusal;
use crate::performer::{ReconcileResult, TaskId};
use crate::supervisor::Supervisor;

/// The recovery of a loop's sessions, which is stored.
#[derive(Debug)]
pub(crate) struct Recovered {
    to_perform: Vec<Acknowledged>,
}

impl Supervisor {
    /// Recovers this loop's sessions of an earlier process, and stores that.
    ///
    /// Nothing starts until all loops have done so. The result is for [`Supervisor::begin`].
    pub(crate) async fn recover(&mut self) -> Result<Recovered, Refusal> {
        let mut to_perform: Vec<Acknowledged> = Vec::new();
        if self.owned.is_some() {
            // Each session is recovered when this node acquires it.
            return Ok(Recovered { to_perform });
        }
        let share = self.share;
        let sessions = self.store.sessions().await.map_err(|e| store_refusal(&e))?.into_iter();
        let open = sessions.filter(|row| row.state != SessionState::Closed);
        for row in open.filter(|row| share.includes(row.id)) {
            match self.load_unfinished(row.id).await {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error @ (StoreError::Newer { .. } | StoreError::Corrupt(_))) => {
                    // The other sessions continue. A request for this one gets the same error.
                    tracing::error!(%error, session = %row.name, "a session cannot be read");
                    continue;
                }
                Err(error) => return Err(store_refusal(&error)),
            }
            let mut decided = Decided::default();
            self.recover_into(row.id, &mut decided).await?;
            let Some(committed) = self.commit(decided).await else {
                if self.lost_sessions.contains(&row.id) {
                    continue;
                }
                return Err(Refusal::unavailable("recovery could not be stored"));
            };
            to_perform.push(committed.publish(&self.view, &self.feed).acknowledge());
        }
        Ok(Recovered { to_perform })
    }

    /// Starts what continues, after the last session of all loops was counted.
    pub(crate) async fn begin(&mut self, recovered: Recovered) -> Result<(), Refusal> {
        let Recovered { mut to_perform } = recovered;
        // Tasks that queue for the runtime start now.
        let mut granted = Decided::default();
        self.grant_running_slots(self.clock.now(), &mut granted).await;
        let Some(committed) = self.commit(granted).await else {
            return Err(Refusal::unavailable("recovery could not be stored"));
        };
        to_perform.push(committed.publish(&self.view, &self.feed).acknowledge());
        for done in to_perform {
            self.perform(done);
        }
        let ids: Vec<SessionId> = self.trees.keys().copied().collect();
        for id in ids {
            self.resume_stops(id);
        }
        #[cfg(feature = "processes")]
        self.release_recorded_worktrees();
        Ok(())
    }

    /// Decides how the tasks of a session continue whose process is gone.
    pub(crate) async fn recover_into(
        &mut self,
        id: SessionId,
        decided: &mut Decided,
    ) -> Result<(), Refusal> {
        self.recover_session(id, &RecoveryFinding::Crash, decided).await;
        self.reconcile(id, decided).await
    }

    /// Asks the performers about work that may have outlived the process.
    async fn reconcile(&mut self, id: SessionId, decided: &mut Decided) -> Result<(), Refusal> {
        let Some(tree) = self.trees.get(&id) else { return Ok(()) };
        let adoptable = |row: &TaskRow| {
            (row.is_performed() || row.away().is_some())
                && row.spec.work.policy().recovery == RecoveryPolicy::Adopt
        };
        let rows = tree.rows().filter(|(_, row)| adoptable(row));
        let rows: Vec<(TaskNo, TaskRow)> = rows.map(|(no, row)| (no, row.clone())).collect();
        for (no, row) in rows.into_iter().rev() {
            let task = TaskId { session: id, no };
            let attempt = row.attempt;
            let reporter = self.reporter(task, attempt);
            let kind = row.spec.work.kind();
            let found = match self.performers.get(&kind).cloned() {
                Some(performer) => performer.reconcile(task, &row, reporter).await,
                None => match self.other_host(&row) {
                    Some(host) => ReconcileResult::Elsewhere { host },
                    None => ReconcileResult::Ended(lost_without_performer(&kind)),
                },
            };
            let (finding, end) = match found {
                ReconcileResult::Adopted => (RecoveryFinding::Adopted, None),
                // It ran while this process was away, and may have got what was sent to it.
                ReconcileResult::Ended(end) => (RecoveryFinding::Adopted, Some(end)),
                ReconcileResult::Elsewhere { host } => (self.find_host(id, &host).await?, None),
                ReconcileResult::NeverStarted => (RecoveryFinding::NeverStarted, None),
                ReconcileResult::Unknown { problem } => {
                    return Err(Refusal::unavailable(format!(
                        "recovery cannot find out what happened to {}: {problem}",
                        row.address(no)
                    )));
                }
                ReconcileResult::Lost { evidence } => {
                    (RecoveryFinding::NotFound { by: "its performer".into(), evidence }, None)
                }
            };
            let ended = end.map(|end| {
                Command::Report(ReportCommand { no, attempt, report: AttemptReport::Ended(end) })
            });
            let now = self.clock.now();
            #[cfg(feature = "processes")]
            let is_present = matches!(finding, RecoveryFinding::HostPresent);
            for command in
                [Some(Command::Recover(RecoverCommand { no, finding })), ended].iter().flatten()
            {
                let _ = self.decide(id, command.into(), now, decided).await;
            }
            #[cfg(feature = "processes")]
            if is_present {
                self.await_end_at_host(id, no);
            }
        }
        Ok(())
    }

    /// Returns the host of work that was started there, if it is not the host of this node.
    fn other_host(&self, row: &TaskRow) -> Option<Arc<str>> {
        let owned = self.owned.as_ref()?;
        row.host().filter(|host| !owned.node.host.is_same(host)).cloned()
    }

    /// Releases the worktrees that an earlier process did not release. Those of alive tasks stay.
    #[cfg(feature = "processes")]
    fn release_recorded_worktrees(&self) {
        let recorded = self.processes.as_ref().map(|it| it.worktrees.recorded_tasks());
        let recorded = recorded.into_iter().flatten();
        for task in recorded.filter(|task| self.share.includes(task.session)) {
            self.start_worktree_release(task);
        }
    }

    /// Repeats the stops that an earlier process began.
    pub(crate) fn resume_stops(&mut self, id: SessionId) {
        let Some(tree) = self.trees.get(&id) else { return };
        self.timers.set(id, tree.next_due());
        for action in stops_to_repeat(tree) {
            self.perform_action(id, action);
        }
    }
}

/// Returns the end of work that may still run, but has no performer here that could look.
fn lost_without_performer(kind: &TaskKind) -> EndReport {
    let evidence = format!("no performer for {kind} is registered").into();
    let failure = Failure::Lost { by: "recovery".into(), evidence };
    let result = WorkResult::Failed { failure, partial: None };
    EndReport { result, confirmation: EndConfirmation::Unconfirmed }
}

/// Returns the stop actions to repeat for work that was adopted while it was stopping.
fn stops_to_repeat(tree: &TaskTree) -> Vec<Action> {
    let stopping = tree.rows().filter_map(|(no, row)| match &row.state {
        TaskState::Stopping(stopping) => Some((no, row.attempt, stopping)),
        _ => None,
    });
    stopping
        .map(|(no, attempt, stopping)| match stopping.phase {
            StopPhase::Graceful => Action::Stop { no, attempt, deadline: stopping.deadline },
            StopPhase::Forced => Action::Kill { no, attempt },
        })
        .collect()
}
