//! Before the first request is answered: every stored state is reconciled and committed.

use brigade_model::action::Action;
use brigade_model::command::{Command, End, EndedHow, Gone, Recover, Report, Reported};
use brigade_model::ids::{TaskNo, TreeId};
use brigade_model::outcome::{Failure, Verified};
use brigade_model::refusal::Refusal;
use brigade_model::task::{State, StopStage, TaskRow};
use brigade_model::tree::{SessionState, Tree};
use brigade_model::work::{Kind, Recovery};
use brigade_store::StoreError;

use crate::commit::{Acknowledged, Decided};
use crate::error::refusal;
use crate::performer::{Reconciled, Reporter, TaskId};
use crate::supervisor::Supervisor;

impl Supervisor {
    /// Takes over what an earlier process left. Nothing is started until all of it is stored.
    pub(crate) async fn recover(&mut self) -> Result<(), Refusal> {
        let trees = self.store.trees().await.map_err(|e| refusal(&e))?;
        let mut to_do: Vec<Acknowledged> = Vec::new();
        for row in trees.into_iter().filter(|row| row.state != SessionState::Closed) {
            match self.load_stored(row.id).await {
                Ok(()) => {}
                Err(error @ (StoreError::Newer { .. } | StoreError::Corrupt(_))) => {
                    // The others go on; whoever asks for this one is told the same.
                    tracing::error!(%error, session = %row.name, "a session cannot be read");
                    continue;
                }
                Err(error) => return Err(refusal(&error)),
            }
            if self.trees.get(&row.id).is_none_or(|tree| tree.loaded() == 0) {
                // Nothing to go on with: it is loaded again when somebody asks.
                self.trees.remove(&row.id);
                continue;
            }
            let mut decided = self.recover_tree(row.id, &Gone::Crash).await;
            self.reconcile(row.id, &mut decided).await?;
            let Some(committed) = self.commit(decided).await else {
                return Err(Refusal::unavailable("recovery could not be stored"));
            };
            to_do.push(committed.publish(&self.view, &self.feed).acknowledge());
        }
        for done in to_do {
            self.perform(done);
        }
        let ids: Vec<TreeId> = self.trees.keys().copied().collect();
        for id in ids {
            self.carry_on(id);
        }
        Ok(())
    }

    /// Asks the performers of work that may have outlived the process.
    async fn reconcile(&mut self, id: TreeId, decided: &mut Decided) -> Result<(), Refusal> {
        let Some(tree) = self.trees.get(&id) else { return Ok(()) };
        let adoptable = |row: &TaskRow| {
            row.is_performed() && row.spec.work.conduct().recovery == Recovery::Adopt
        };
        let rows = tree.rows().filter(|(_, row)| adoptable(row));
        let rows: Vec<(TaskNo, TaskRow)> = rows.map(|(no, row)| (no, row.clone())).collect();
        for (no, row) in rows.into_iter().rev() {
            let task = TaskId { tree: id, no };
            let attempt = row.attempt;
            let reporter = Reporter { task, attempt, inputs: self.sender.clone() };
            let kind = row.spec.work.kind();
            let found = match self.performers.of(&kind).cloned() {
                Some(performer) => performer.reconcile(task, &row, reporter).await,
                None => Reconciled::Ended(unattended(&kind)),
            };
            let (why, end) = match found {
                Reconciled::Adopted => (Gone::Adopted, None),
                // It was at work when we went away, and may have been given what we gave it.
                Reconciled::Ended(end) => (Gone::Adopted, Some(end)),
                Reconciled::NeverBegan => (Gone::NeverBegan, None),
                Reconciled::Unknown { problem } => {
                    return Err(Refusal::unavailable(format!(
                        "what became of {} cannot be found out: {problem}",
                        row.address(no)
                    )));
                }
                Reconciled::Lost { evidence } => {
                    (Gone::NotFound { by: "its performer".into(), evidence }, None)
                }
            };
            let ended =
                end.map(|end| Command::Report(Report { no, attempt, what: Reported::Ended(end) }));
            let now = self.clock.now();
            for command in [Some(Command::Recover(Recover { no, why })), ended].iter().flatten() {
                let _ = self.decide(id, command, now, decided).await;
            }
        }
        Ok(())
    }

    /// Stops that an earlier process began go on.
    fn carry_on(&mut self, id: TreeId) {
        let Some(tree) = self.trees.get(&id) else { return };
        self.timers.set(id, tree.next_due());
        for action in stops_in_effect(tree) {
            self.perform_one(id, action);
        }
    }
}

/// Work that may go on somewhere, with nobody here who could look.
fn unattended(kind: &Kind) -> End {
    let evidence = format!("no performer for {kind} is registered").into();
    let failure = Failure::Lost { by: "recovery".into(), evidence };
    let how = EndedHow::Failed { failure, partial: None };
    End { how, verified: Verified::Unconfirmed }
}

/// Work that was adopted in the middle of its stop is told again.
fn stops_in_effect(tree: &Tree) -> Vec<Action> {
    let stopping = tree.rows().filter_map(|(no, row)| match &row.state {
        State::Stopping(stopping) => Some((no, row.attempt, stopping)),
        _ => None,
    });
    stopping
        .map(|(no, attempt, stopping)| match stopping.stage {
            StopStage::Asked => Action::Stop { no, attempt, deadline: stopping.deadline },
            StopStage::Forced => Action::Kill { no, attempt },
        })
        .collect()
}
