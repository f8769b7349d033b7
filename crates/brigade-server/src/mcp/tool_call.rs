//! What a tool is, and what it has when it is called.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use brigade_delegation::{
    Audience, ClientProfile, DelegationReply, ToolArgs, ToolDefinition, ToolHints, define_tool,
    read_args,
};
use brigade_model::call::WaitMode;
use brigade_model::json::Json;
use brigade_model::refusal::{Refusal, RefusalKind};
use rmcp::model::{JsonObject, ToolAnnotations};
use tokio_util::sync::CancellationToken;

use super::McpOptions;
use super::daemon_client::DaemonClient;
use super::progress::ProgressNotifier;
use super::summary::is_of_other_conversation;
use crate::request_context::TaskTarget;
use crate::requests::{
    self, InboxItem, InboxRequest, ListTasksRequest, ShowTaskRequest, WaitOrInputRequest,
    WaitReply, WaitRequest,
};
use crate::task_info::TaskInfo;

/// What is still answered after the client has closed its end: it may only have asked and gone.
const DISCONNECT_GRACE: Duration = Duration::from_secs(1);

/// As many tasks as one answer of the daemon has.
pub(super) const LISTED_TASKS_MAX: usize = 10_000;

/// What a delegation tool does for a client.
pub(super) trait ClientDelegationTool: ToolArgs {
    fn run(
        self,
        call: &McpCallContext,
    ) -> impl Future<Output = Result<McpToolReply, Refusal>> + Send;

    /// As it is listed.
    fn definition(audience: Audience) -> rmcp::model::Tool {
        let ToolDefinition { name, title, description, schema, hints } =
            define_tool::<Self>(audience);
        rmcp::model::Tool::new(name, description, schema)
            .with_title(title)
            .with_annotations(to_annotations(hints))
    }

    fn call_with(
        arguments: JsonObject,
        call: &McpCallContext,
    ) -> impl Future<Output = Result<McpToolReply, Refusal>> + Send {
        async { read_args::<Self>(call.audience(), arguments)?.run(call).await }
    }
}

fn to_annotations(hints: ToolHints) -> ToolAnnotations {
    ToolAnnotations::new()
        .read_only(hints.is_read_only)
        .destructive(hints.is_destructive)
        .idempotent(hints.is_idempotent)
        .open_world(hints.is_open_world)
}

/// What a tool has to say.
#[derive(Debug)]
pub(super) enum McpToolReply {
    Reply(DelegationReply),
    /// It goes on as a task of the protocol.
    Task(Box<TaskInfo>),
}

/// One call: who asks, for whom, and for how long.
#[derive(Debug)]
pub(super) struct McpCallContext {
    pub(super) options: Arc<McpOptions>,
    pub(super) client_profile: ClientProfile,
    pub(super) daemon: DaemonClient,
    /// The client has taken the call back.
    pub(super) cancelled: CancellationToken,
    /// The client is gone.
    pub(super) disconnected: CancellationToken,
    pub(super) progress: Option<ProgressNotifier>,
    /// A background command of the client's own shell wakes it when it ends.
    pub(super) is_woken_by_shell: bool,
    /// The client knows tasks of the protocol.
    pub(super) supports_tasks: bool,
    /// The client can be asked for input.
    pub(super) supports_elicitation: bool,
    /// Makes the same call the same to the daemon, however often it is asked.
    pub(super) idempotency_key: String,
}

impl McpCallContext {
    pub(super) fn audience(&self) -> Audience {
        Audience::Client(self.client_profile)
    }

    pub(super) fn target(&self, task: &str) -> TaskTarget {
        TaskTarget { session: self.options.session.clone(), task: task.to_owned() }
    }

    pub(super) async fn show_task(&self, task: &str) -> Result<TaskInfo, Refusal> {
        self.daemon.call(|| ShowTaskRequest { target: self.target(task) }).await
    }

    /// How a task is called here: with its session, where that is another one.
    pub(super) fn address(&self, info: &TaskInfo) -> String {
        if info.session == self.options.session {
            info.address.clone()
        } else {
            format!("{}/{}", info.session, info.address)
        }
    }

    /// Waits, and takes the results; a question or an approval that is needed ends it too and takes none. Whoever loses patience or interest takes nothing.
    pub(super) async fn wait_for_tasks(
        &self,
        tasks: &[String],
        mode: WaitMode,
        patience: Duration,
    ) -> Result<WaitReply, Refusal> {
        let began = Instant::now();
        let own = if tasks.is_empty() { self.own_tasks().await? } else { Vec::new() };
        let own: Vec<String> = own.iter().map(|info| info.address.clone()).collect();
        let asked = AtomicBool::new(false);
        let question = || {
            let left = patience.saturating_sub(began.elapsed());
            let timeout_ms = Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
            // An answer that was lost on its way may have taken results: those are had by name.
            let again = asked.swap(true, Ordering::Relaxed);
            let tasks = if again && tasks.is_empty() { own.clone() } else { tasks.to_vec() };
            WaitOrInputRequest(WaitRequest {
                session: self.options.session.clone(),
                tasks,
                mode,
                timeout_ms,
            })
        };
        let told = async {
            match &self.progress {
                Some(progress) => progress.send_until_dropped(self, tasks).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            waited = self.daemon.call(question) => return waited,
            () = self.wait_abandoned() => {}
            () = told => {}
        }
        let mut going_on = Vec::with_capacity(tasks.len());
        for task in tasks {
            going_on.push(self.show_task(task).await?);
        }
        Ok(WaitReply { still_running: going_on, timed_out: true, ..WaitReply::default() })
    }

    /// What this client started and took no result of. Within a task it sees nothing else.
    pub(super) async fn own_tasks(&self) -> Result<Vec<TaskInfo>, Refusal> {
        let mut tasks = self.list_tasks(false).await?;
        tasks.retain(|info| self.options.is_within_task || self.is_own(info));
        Ok(tasks)
    }

    /// Whether its result and messages come to this conversation unasked.
    pub(super) fn is_own(&self, info: &TaskInfo) -> bool {
        let client = self.daemon.introduction.role.client_name();
        client.is_some() && info.client.as_deref() == client && !is_of_other_conversation(info)
    }

    /// Answers a question. Each is answered once: where word of it was lost, the next try finds it
    /// answered, and that is as well.
    pub(super) async fn answer_question(
        &self,
        task: &str,
        question: u32,
        answer: &Json,
    ) -> Result<(), Refusal> {
        let asked = AtomicBool::new(false);
        let again = AtomicBool::new(false);
        let give = || {
            again.store(asked.swap(true, Ordering::Relaxed), Ordering::Relaxed);
            let (target, answer) = (self.target(task), answer.clone());
            requests::AnswerRequest { target, answer, question: Some(question) }
        };
        match self.daemon.call(give).await {
            Err(refusal)
                if again.load(Ordering::Relaxed)
                    && matches!(refusal.kind, RefusalKind::NotFound | RefusalKind::Ended) =>
            {
                Ok(())
            }
            answered => answered,
        }
    }

    /// The newest tasks of the workspace; those that are over and done with too, if they are wanted.
    pub(super) async fn list_tasks(&self, ended: bool) -> Result<Vec<TaskInfo>, Refusal> {
        let (session, most) = (Some(self.options.session.clone()), Some(LISTED_TASKS_MAX));
        self.daemon
            .call(|| ListTasksRequest {
                session: session.clone(),
                include_ended: ended,
                limit: most,
            })
            .await
    }

    /// What this client's tasks said to it. Taken, it is told once. Whoever has no inbox, as a call
    /// from within a task, is told nothing: what is told beside it is not held up.
    pub(super) async fn read_notes(&self, take: bool) -> Vec<InboxItem> {
        let session = self.options.session.clone();
        let inbox =
            InboxRequest { session, mark_read: take, notes_only: true, ..InboxRequest::default() };
        self.daemon.call_once(|| inbox.clone()).await.unwrap_or_default()
    }

    async fn wait_abandoned(&self) {
        tokio::select! {
            () = self.cancelled.cancelled() => {}
            () = self.disconnected.cancelled() => tokio::time::sleep(DISCONNECT_GRACE).await,
        }
    }
}
