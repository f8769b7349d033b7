//! What carries out one kind of work, and how it is spoken to.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use brigade_model::action::{Action, StartAction};
use brigade_model::call::CallCompletion;
use brigade_model::command::{AttemptReport, Command, EndReport, ReportCommand, SpawnCommand};
use brigade_model::decide::CommandReply;
use brigade_model::ids::{Attempt, CallIndex, SessionId, TaskNo, Time};
use brigade_model::message::Message;
use brigade_model::refusal::Refusal;
use brigade_model::spec::TaskSpec;
use brigade_model::task::TaskRow;
use brigade_model::work::{TaskKind, Work};
use brigade_store::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::error::{in_doubt_refusal, shutdown_refusal};
use crate::loop_input::LoopInput;

/// Which task, in which tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId {
    pub session: SessionId,
    pub no: TaskNo,
}

/// Carries out one kind of work.
///
/// The calls come from the loop and must not block: long work goes into a task of the performer's
/// own. Each may come twice for the same attempt and must then do nothing new.
pub trait Performer: Send + Sync + 'static {
    /// Begins an attempt. What comes of it is said through the reporter.
    fn start(&self, start: StartAction, reporter: Reporter);

    /// The work with what this machine decides about it, which is stored with the task: a later start, also
    /// elsewhere, must not decide otherwise. None where there is nothing to decide.
    fn resolve(&self, _work: &Work) -> Option<Work> {
        None
    }

    /// Hands something to an attempt that is under way. An answer to one that is not in memory is dropped: it is in
    /// the journal, with which the next attempt begins.
    fn deliver(&self, task: TaskId, attempt: Attempt, delivery: Delivery);

    /// Ends an attempt, or lets go of what is kept for a task that waits.
    fn stop(&self, task: TaskId, how: StopMode);

    /// After a crash: what became of work that may have outlived the process. Asked of kinds whose
    /// recovery is `Adopt`, before any request is answered and before the loop runs: it must not
    /// wait for an answer of the reporter, which is for what comes later.
    fn reconcile<'a>(
        &'a self,
        task: TaskId,
        row: &'a TaskRow,
        reporter: Reporter,
    ) -> BoxFuture<'a, ReconcileResult>;

    /// Tasks of which something is kept outside the store, such as output.
    fn tasks_with_data(&self) -> BoxFuture<'_, Vec<TaskId>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// The task was pruned: removes what is kept of it.
    fn remove_data(&self, _task: TaskId) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The same for many tasks of one tree, for kinds that can do it in one go.
    fn remove_all(&self, tasks: Vec<TaskId>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for task in tasks {
                self.remove_data(task).await;
            }
        })
    }

    /// The runtime goes away: ends whatever lives only in this process, and returns when that is
    /// gone. Nothing more is reported. Work that is meant to outlive the process is left alone.
    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[derive(Clone, Debug)]
pub enum Delivery {
    /// A call was answered, as this entry of the task's journal. They come in their order.
    Completion { index: CallIndex, ordinal: u32, answer: Arc<CallCompletion> },
    /// A message, for kinds that take them as they come. Its arrival is to be reported.
    Message(Arc<Message>),
    /// A message came that is to be heard now, for kinds that ask for theirs.
    Interrupt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// End in your own time, before the deadline.
    Graceful { attempt: Attempt, deadline: Time },
    /// End now, and say when that is done.
    Forced { attempt: Attempt },
    /// The task has ended; nothing is expected any more.
    Release,
}

#[derive(Clone, Debug)]
pub enum ReconcileResult {
    /// It is at work, and its reports will come under the same attempt.
    Adopted,
    /// It ended meanwhile, like this.
    Ended(EndReport),
    /// It was never carried out, and made sure that it will not be: it can be started anew.
    NeverStarted,
    /// There is nothing left of it.
    Lost { evidence: Arc<str> },
    /// It could not be looked. Recovery does not go on: nothing may be concluded from that.
    Unknown { problem: Arc<str> },
}

/// Speaks for one attempt of a task.
#[derive(Clone, Debug)]
pub struct Reporter {
    pub task: TaskId,
    pub attempt: Attempt,
    pub(crate) inputs: mpsc::Sender<LoopInput>,
}

impl Reporter {
    /// Says something and hears what came of it.
    pub async fn report(&self, what: AttemptReport) -> Result<CommandReply, Refusal> {
        submit(&self.inputs, self.task.session, self.command(what)).await
    }

    /// Says something that will not be lost: it is kept until it is stored.
    pub async fn post(&self, what: AttemptReport) {
        let command = self.command(what);
        // Without a loop there is nobody left to tell; recovery will find out.
        let _ = self.inputs.send(LoopInput::Report { tree: self.task.session, command }).await;
    }

    /// Says something that may be left out when much is said.
    pub(crate) fn try_report(&self, what: AttemptReport) {
        let command = self.command(what);
        let _ = self.inputs.try_send(LoopInput::Report { tree: self.task.session, command });
    }

    pub(crate) fn command(&self, what: AttemptReport) -> Command {
        Command::Report(ReportCommand { no: self.task.no, attempt: self.attempt, report: what })
    }
}

/// Sends one command through the loop.
pub(crate) async fn submit(
    inputs: &mpsc::Sender<LoopInput>,
    tree: SessionId,
    command: Command,
) -> Result<CommandReply, Refusal> {
    let (reply, answer) = oneshot::channel();
    inputs
        .send(LoopInput::Submit { session: tree, command, reply })
        .await
        .map_err(|_| shutdown_refusal())?;
    answer.await.map_err(|_| in_doubt_refusal())?
}

/// Who performs what.
#[derive(Clone, Default)]
pub(crate) struct PerformerRegistry {
    by_kind: HashMap<TaskKind, Arc<dyn Performer>>,
}

impl PerformerRegistry {
    pub(crate) fn register(&mut self, kind: TaskKind, performer: Arc<dyn Performer>) {
        self.by_kind.insert(kind, performer);
    }

    pub(crate) async fn shutdown(&self) {
        for performer in self.all() {
            performer.shutdown().await;
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn Performer>> {
        self.by_kind.values()
    }

    pub(crate) fn get(&self, kind: &TaskKind) -> Option<&Arc<dyn Performer>> {
        self.by_kind.get(kind)
    }

    /// A spawn with what its performer decides about the work. None where that is nothing.
    pub(crate) fn resolve(&self, command: &Command) -> Option<Command> {
        let Command::Spawn(spawn) = command else { return None };
        let work = self.get(&spawn.spec.work.kind())?.resolve(&spawn.spec.work)?;
        let spec = Arc::new(TaskSpec { work, ..TaskSpec::clone(&spawn.spec) });
        Some(Command::Spawn(SpawnCommand { spec, ..spawn.clone() }))
    }

    pub(crate) fn perform(&self, kind: &TaskKind, action: Action, reporter: Reporter) {
        let task = reporter.task;
        let Some(performer) = self.get(kind) else {
            if let Action::Start(_) = action {
                report_no_performer(kind, reporter);
            }
            return;
        };
        match action {
            Action::Start(start) => performer.start(start, reporter),
            Action::DeliverCompletion { attempt, index, ordinal, completion: answer, .. } => {
                performer.deliver(task, attempt, Delivery::Completion { index, ordinal, answer });
            }
            Action::Push { attempt, message, .. } => {
                performer.deliver(task, attempt, Delivery::Message(message));
            }
            Action::Interrupt { attempt, .. } => {
                performer.deliver(task, attempt, Delivery::Interrupt);
            }
            Action::Stop { attempt, deadline, .. } => {
                performer.stop(task, StopMode::Graceful { attempt, deadline });
            }
            Action::Kill { attempt, .. } => performer.stop(task, StopMode::Forced { attempt }),
            Action::Release { .. } => performer.stop(task, StopMode::Release),
        }
    }
}

/// Says that nobody here can do this work. The loop must not wait for its own channel.
fn report_no_performer(kind: &TaskKind, reporter: Reporter) {
    let reason = format!("no performer for {kind} is registered").into();
    let what = AttemptReport::NoPerformer { reason };
    #[expect(
        clippy::disallowed_methods,
        reason = "ends by itself as soon as the channel has room"
    )]
    tokio::spawn(async move { reporter.post(what).await });
}

impl fmt::Debug for PerformerRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_kind.keys()).finish()
    }
}
