//! The programs of agents whose backend drives the agent of another vendor.
//!
//! Such a program is a process task that is a part of its agent. Its shim has the pipes, so it
//! outlives this runtime, and the next attempt of the agent finds it by the recorded spawn.

use std::sync::Arc;
use std::time::Duration;

use brigade_agent::BoxFuture;
use brigade_agent::agent_program::{
    AgentProgram, OutputPiece, ProgramHost, ProgramOutput, ProgramSpec, ProgramStart, ProgramStream,
};
use brigade_model::call::{ConditionRequest, SpawnedTask, WaitMode};
use brigade_model::refusal::Refusal;
use brigade_model::spec::TaskSpec;
use brigade_model::task::StoredTask;
use brigade_model::work::{EnvValue, Work};
use brigade_process::output::{OutputFollower, OutputView, PagePiece, ReadStart, StdStream};
use tokio::time::Instant;

use super::blueprint::Blueprint;
use super::task_link::{CallSlot, TaskLink, expect_spawned};
use crate::jobs::HandlerRegistry;
use crate::new_task::{NewTask, ProcessTask};
use crate::performer::TaskId;
use crate::processes::InputPiece;
use crate::spawn_parent::SpawnParent;

/// The largest number of bytes stored of each stream. It bounds how far a program is ahead of its
/// reader.
const OUTPUT_CAP: u64 = 32 * 1024 * 1024;
/// The time for which a program waits for a reader that is gone, such as a runtime that was killed.
const LEASE_DURATION: Duration = Duration::from_secs(600);
const LEASE_INTERVAL: Duration = Duration::from_secs(60);
/// The interval at which the end of a program is checked whose shim could not record it.
const END_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The programs of one agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentPrograms {
    pub(crate) link: TaskLink,
    pub(crate) blueprint: Arc<Blueprint>,
}

impl AgentPrograms {
    fn spec(&self, index: u32, program: &ProgramSpec) -> Result<TaskSpec, Refusal> {
        let mut task = NewTask::<ProcessTask>::program(&program.command_line)
            .reads_messages()
            .output_cap(OUTPUT_CAP)
            .first_reader_timeout(LEASE_DURATION);
        let own = self.blueprint.directory.as_deref().map(Into::into);
        if let Some(directory) = program.cwd.clone().or(own) {
            task = task.cwd(directory);
        }
        if let Some(grace) = program.grace {
            task = task.grace(Duration::from_millis(grace.0));
        }
        let parent = SpawnParent::Agent(&self.blueprint);
        let key = format!("call:{index}");
        let spec = task.into_draft().into_spec(&HandlerRegistry::default(), Some(&key), parent)?;
        let mut spec = TaskSpec { part_of_parent: true, ..spec };
        if let Work::Process(work) = &mut spec.work {
            // The person who installed the program chose its variables, not the agent: a sandboxed
            // agent may have references here that it could not pass to other processes. A caller
            // that is itself confined could read their values by the program.
            let is_passed = |value: &EnvValue| {
                !self.blueprint.withholds_variables || matches!(value, EnvValue::Text(_))
            };
            let variables = program.env.iter().filter(|(_, value)| is_passed(value));
            work.env =
                variables.map(|(name, value)| (name.as_str().into(), value.clone())).collect();
        }
        Ok(spec)
    }
}

impl ProgramHost for AgentPrograms {
    fn start_program(
        &self,
        start: ProgramStart,
    ) -> BoxFuture<'_, Result<Arc<dyn AgentProgram>, Refusal>> {
        Box::pin(async move {
            let ProgramStart { index, recorded, spec } = start;
            let slot = CallSlot { index, recorded: recorded.as_ref() };
            let spawned = self.link.spawn(slot, || self.spec(index.0, &spec)).await?;
            let task = expect_spawned(&spawned)?.clone();
            let program: Arc<dyn AgentProgram> =
                Arc::new(StartedProgram { link: self.link.clone(), task });
            Ok(program)
        })
    }

    fn directory(&self) -> Option<Arc<str>> {
        self.blueprint.directory.clone()
    }

    fn new_session_id(&self) -> String {
        crate::ids::new_session_id().as_uuid().to_string()
    }
}

/// A program as the task of its process.
#[derive(Clone, Debug)]
struct StartedProgram {
    link: TaskLink,
    task: SpawnedTask,
}

impl StartedProgram {
    /// Returns the number that identifies this agent as a reader and a writer. All attempts have the
    /// same one.
    fn identity(&self) -> u64 {
        let TaskId { session, no } = self.link.task();
        let (_, random) = session.as_uuid().as_u64_pair();
        (random ^ u64::from(no.get())).max(1)
    }

    async fn write_piece(
        &self,
        offset: u64,
        bytes: Arc<[u8]>,
        closes_input: bool,
    ) -> Result<(), Refusal> {
        self.wait_for_host().await?;
        let writer = self.identity();
        let piece = InputPiece { writer, offset, bytes, closes_input };
        self.link.session().await?.write_input(self.task.no, piece).await
    }

    async fn renew_lease(&self, position: Option<u64>) -> Result<(), Refusal> {
        let session = self.link.session().await?;
        session.renew_lease(self.task.no, self.identity(), position, LEASE_DURATION).await?;
        Ok(())
    }

    /// Waits while the program is on another host. The session goes there, or the program ends as lost.
    /// Nothing is sent to it meanwhile, so that no prompt is sent twice.
    async fn wait_for_host(&self) -> Result<(), Refusal> {
        loop {
            let session = self.link.session().await?;
            if !session.runs_elsewhere(self.task.no).await? {
                return Ok(());
            }
            drop(session);
            tokio::time::sleep(END_CHECK_INTERVAL).await;
        }
    }

    /// Waits until the store says that the program has ended.
    async fn wait_stored_end(self) {
        loop {
            tokio::time::sleep(END_CHECK_INTERVAL).await;
            let Ok(session) = self.link.session().await else { return };
            match session.get(self.task.no).await {
                Ok(StoredTask { row, .. }) if row.is_alive() => {}
                _ => return,
            }
        }
    }
}

impl AgentProgram for StartedProgram {
    fn address(&self) -> String {
        format!("{}:{}", self.task.kind, self.task.no)
    }

    fn write(&self, offset: u64, bytes: Arc<[u8]>) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(self.write_piece(offset, bytes, false))
    }

    fn close_input(&self, offset: u64) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(self.write_piece(offset, Arc::default(), true))
    }

    fn read_output(&self, offset: u64) -> BoxFuture<'_, Result<Box<dyn ProgramOutput>, Refusal>> {
        Box::pin(async move {
            self.wait_for_host().await?;
            self.renew_lease(Some(offset)).await?;
            let output = self.link.session().await?.output(self.task.no).await?;
            let follower = output.follow(OutputView::Combined, ReadStart::At(offset));
            // The follower holds no session, which would keep the runtime alive.
            let follower = follower.end_when(self.clone().wait_stored_end());
            let reader = FollowedOutput {
                program: self.clone(),
                follower,
                ready: Vec::new(),
                released: offset,
                renew_at: Instant::now() + LEASE_INTERVAL,
            };
            let reader: Box<dyn ProgramOutput> = Box::new(reader);
            Ok(reader)
        })
    }

    fn stop(&self) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            let session = self.link.session().await?;
            session.stop(self.task.no, Some("its agent does not need it any more")).await?;
            Ok(())
        })
    }

    fn end_condition(&self) -> ConditionRequest {
        ConditionRequest::Tasks {
            tasks: vec![self.task.no],
            mode: WaitMode::All,
            timeout: None,
            interruptible: false,
        }
    }
}

/// The output of a program, with a lease on everything that is not released.
#[derive(Debug)]
struct FollowedOutput {
    program: StartedProgram,
    follower: OutputFollower,
    /// The pieces of the last page, in reverse order.
    ready: Vec<OutputPiece>,
    released: u64,
    renew_at: Instant,
}

impl FollowedOutput {
    async fn read_page(&mut self) -> Result<bool, Refusal> {
        loop {
            let page = tokio::select! {
                page = self.follower.next() => page,
                () = tokio::time::sleep_until(self.renew_at) => {
                    self.renew_at = Instant::now() + LEASE_INTERVAL;
                    self.program.renew_lease(Some(self.released)).await?;
                    continue;
                }
            };
            let page = page
                .map_err(|error| Refusal::unavailable(format!("the program's output: {error}")))?;
            let Some(page) = page else { return Ok(false) };
            let mut offset = page.from;
            for piece in page.pieces {
                match piece {
                    PagePiece::Bytes { stream, bytes, .. } => {
                        let length = bytes.len() as u64;
                        let stream = match stream {
                            StdStream::Stdout => ProgramStream::Stdout,
                            StdStream::Stderr => ProgramStream::Stderr,
                        };
                        self.ready.push(OutputPiece { stream, offset, bytes });
                        offset += length;
                    }
                    PagePiece::Dropped { bytes } => {
                        return Err(Refusal::internal(format!(
                            "{bytes} bytes of the program's output are not stored any more"
                        )));
                    }
                }
            }
            self.ready.reverse();
            return Ok(true);
        }
    }
}

impl ProgramOutput for FollowedOutput {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<OutputPiece>, Refusal>> {
        Box::pin(async move {
            loop {
                if let Some(piece) = self.ready.pop() {
                    return Ok(Some(piece));
                }
                if !self.read_page().await? {
                    return Ok(None);
                }
            }
        })
    }

    fn release(&mut self, offset: u64) {
        if offset - self.released >= OUTPUT_CAP / 8 {
            self.renew_at = Instant::now();
        }
        self.released = offset;
    }
}
