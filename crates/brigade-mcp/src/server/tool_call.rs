//! The trait of a delegation tool for clients, and the context of one call.

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
use super::progress::ProgressNotifier;
use super::streamable_http::CallsOfSession;
use super::summary::is_of_other_conversation;
use brigade_protocol::requests::{
    self, InboxItem, InboxRequest, ListTasksRequest, ShowTaskRequest, WaitReply, WaitRequest,
    WaitUntil,
};
use brigade_protocol::task_info::TaskInfo;
use brigade_protocol::{RequestClient, TaskTarget};

/// The time for open calls after the client has closed its input. It may still read replies.
const DISCONNECT_GRACE: Duration = Duration::from_secs(1);

/// The maximum number of tasks in one reply of the daemon.
pub(super) const LISTED_TASKS_MAX: usize = 10_000;

/// A delegation tool that clients can call.
pub(super) trait ClientDelegationTool: ToolArgs {
    fn run<C: RequestClient>(
        self,
        call: &McpCallContext<C>,
    ) -> impl Future<Output = Result<McpToolReply, Refusal>> + Send;

    /// Returns the definition for the list of tools.
    fn definition(audience: Audience) -> rmcp::model::Tool {
        let ToolDefinition { name, title, description, schema, hints } =
            define_tool::<Self>(audience);
        rmcp::model::Tool::new(name, description, schema)
            .with_title(title)
            .with_annotations(to_annotations(hints))
    }

    fn call_with<C: RequestClient>(
        arguments: JsonObject,
        call: &McpCallContext<C>,
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

/// The reply of a tool.
#[derive(Debug)]
pub(super) enum McpToolReply {
    Reply(DelegationReply),
    /// The run continues as a protocol task.
    Task(Box<TaskInfo>),
}

/// The context of one tool call: its client, its requests and the end of the call.
#[derive(Debug)]
pub(super) struct McpCallContext<C> {
    pub(super) options: Arc<McpOptions>,
    pub(super) client_profile: ClientProfile,
    pub(super) request_client: C,
    /// Cancelled when the client cancels the call.
    pub(super) cancelled: CancellationToken,
    /// Cancelled when the client disconnects.
    pub(super) disconnected: CancellationToken,
    /// The calls of the session over HTTP, if the client has one.
    pub(super) session_calls: Option<CallsOfSession>,
    pub(super) progress: Option<ProgressNotifier>,
    /// The client wakes when a background command of its own shell ends.
    pub(super) is_woken_by_shell: bool,
    /// The client supports protocol tasks.
    pub(super) supports_tasks: bool,
    /// The client supports forms.
    pub(super) supports_elicitation: bool,
    /// The key that makes repetitions of this call start the same task.
    pub(super) idempotency_key: String,
}

impl<C: RequestClient> McpCallContext<C> {
    pub(super) fn audience(&self) -> Audience {
        Audience::Client(self.client_profile)
    }

    pub(super) fn target(&self, task: &str) -> TaskTarget {
        TaskTarget { session: self.options.session.clone(), task: task.to_owned() }
    }

    pub(super) async fn show_task(&self, task: &str) -> Result<TaskInfo, Refusal> {
        self.request_client.call(|| ShowTaskRequest { target: self.target(task) }).await
    }

    /// Returns the address of a task, with its session if that is another one.
    pub(super) fn address(&self, info: &TaskInfo) -> String {
        if info.session == self.options.session {
            info.address.clone()
        } else {
            format!("{}/{}", info.session, info.address)
        }
    }

    /// Waits for tasks and collects their results. A question or a pending approval ends the wait
    /// too and collects nothing, nor does a timeout or a cancelled call.
    pub(super) async fn wait_for_tasks(
        &self,
        tasks: &[String],
        mode: WaitMode,
        timeout: Duration,
    ) -> Result<WaitReply, Refusal> {
        self.wait_until(WaitUntil::EndedOrInput, tasks, mode, timeout).await
    }

    /// Waits until tasks are ready, or have ended before. Collects nothing.
    pub(super) async fn wait_until_ready(
        &self,
        tasks: &[String],
        mode: WaitMode,
        timeout: Duration,
    ) -> Result<WaitReply, Refusal> {
        self.wait_until(WaitUntil::Ready, tasks, mode, timeout).await
    }

    async fn wait_until(
        &self,
        until: WaitUntil,
        tasks: &[String],
        mode: WaitMode,
        timeout: Duration,
    ) -> Result<WaitReply, Refusal> {
        let started_at = Instant::now();
        let own = if tasks.is_empty() { self.own_tasks().await? } else { Vec::new() };
        let own: Vec<String> = own.iter().map(|info| info.address.clone()).collect();
        // A client without a conversation has to name its tasks.
        let has_conversation = self.request_client.introduction().conversation.is_some();
        if tasks.is_empty() && own.is_empty() && !has_conversation {
            return Ok(WaitReply::default());
        }
        let was_sent = AtomicBool::new(!has_conversation);
        let wait = || {
            let remaining = timeout.saturating_sub(started_at.elapsed());
            let timeout_ms = Some(u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX));
            // A lost reply may have collected results. A repetition gets them by naming the tasks.
            let is_repeated = was_sent.swap(true, Ordering::Relaxed);
            let tasks = if is_repeated && tasks.is_empty() { own.clone() } else { tasks.to_vec() };
            WaitRequest { session: self.options.session.clone(), tasks, mode, timeout_ms, until }
        };
        let notify = async {
            match &self.progress {
                Some(progress) => progress.send_until_dropped(self, tasks).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            waited = self.request_client.call(wait) => return waited,
            () = self.session_ended() => {
                return Err(Refusal::ended("the session of MCP has ended; no result was taken"));
            }
            () = self.wait_abandoned() => {}
            () = notify => {}
        }
        let mut still_running = Vec::with_capacity(tasks.len());
        for task in tasks {
            still_running.push(self.show_task(task).await?);
        }
        Ok(WaitReply { still_running, timed_out: true, ..WaitReply::default() })
    }

    /// Returns the tasks that this client started and whose results it has not collected. Inside a
    /// task, the client sees no others.
    pub(super) async fn own_tasks(&self) -> Result<Vec<TaskInfo>, Refusal> {
        let mut tasks = self.list_tasks().await?;
        tasks.retain(|info| self.options.is_within_task || self.is_own(info));
        Ok(tasks)
    }

    /// Returns true if this conversation receives the result and messages of the task without
    /// naming it.
    pub(super) fn is_own(&self, info: &TaskInfo) -> bool {
        let client = self.request_client.introduction().role.client_name();
        client.is_some() && info.client.as_deref() == client && !is_of_other_conversation(info)
    }

    /// Answers a question. Each can be answered once: if the reply was lost, the repetition finds
    /// no open question, which counts as success.
    pub(super) async fn answer_question(
        &self,
        task: &str,
        question: u32,
        answer: &Json,
    ) -> Result<(), Refusal> {
        let was_sent = AtomicBool::new(false);
        let is_repeated = AtomicBool::new(false);
        let request = || {
            is_repeated.store(was_sent.swap(true, Ordering::Relaxed), Ordering::Relaxed);
            requests::AnswerRequest {
                target: self.target(task),
                answer: answer.clone(),
                question: Some(question),
            }
        };
        match self.request_client.call(request).await {
            Err(refusal)
                if is_repeated.load(Ordering::Relaxed)
                    && matches!(refusal.kind, RefusalKind::NotFound | RefusalKind::Ended) =>
            {
                Ok(())
            }
            result => result,
        }
    }

    /// Returns the newest tasks of the workspace, without ended ones whose results were collected.
    pub(super) async fn list_tasks(&self) -> Result<Vec<TaskInfo>, Refusal> {
        self.list(ListTasksRequest::default()).await
    }

    /// Returns the newest tasks of the workspace, also ended ones whose results were collected.
    pub(super) async fn list_all_tasks(&self) -> Result<Vec<TaskInfo>, Refusal> {
        self.list(ListTasksRequest { include_ended: true, ..ListTasksRequest::default() }).await
    }

    async fn list(&self, request: ListTasksRequest) -> Result<Vec<TaskInfo>, Refusal> {
        let request = ListTasksRequest {
            session: Some(self.options.session.clone()),
            limit: Some(LISTED_TASKS_MAX),
            ..request
        };
        self.request_client.call(|| request.clone()).await
    }

    /// Returns the unread messages of this client's tasks.
    pub(super) async fn read_notes(&self) -> Vec<InboxItem> {
        self.call_inbox(InboxRequest::default()).await
    }

    /// Returns the unread messages of this client's tasks and marks them as read.
    pub(super) async fn take_notes(&self) -> Vec<InboxItem> {
        self.call_inbox(InboxRequest { mark_read: true, ..InboxRequest::default() }).await
    }

    /// Returns no messages on an error, as for a call inside a task, which has no inbox. The rest
    /// of the reply does not depend on them.
    async fn call_inbox(&self, request: InboxRequest) -> Vec<InboxItem> {
        let session = self.options.session.clone();
        let request = InboxRequest { session, notes_only: true, ..request };
        self.request_client.call_once(|| request.clone()).await.unwrap_or_default()
    }

    async fn session_ended(&self) {
        match &self.session_calls {
            Some(calls) => calls.cancelled().await,
            None => std::future::pending().await,
        }
    }

    async fn wait_abandoned(&self) {
        tokio::select! {
            () = self.cancelled.cancelled() => {}
            () = self.disconnected.cancelled() => tokio::time::sleep(DISCONNECT_GRACE).await,
        }
    }
}
