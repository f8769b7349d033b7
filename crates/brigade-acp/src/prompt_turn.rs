//! One prompt: delivers it to the root agent, and follows the run until it ends.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CreateElicitationResponse, PromptResponse, RequestPermissionResponse, SessionNotification,
    SessionUpdate, StopReason,
};
use agent_client_protocol::{Client, Error, RequestCancellationHandle};
use brigade_model::approval::CallDigest;
use brigade_model::call::WaitMode;
use brigade_model::json::Json;
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::plain_text::PlainText;
use brigade_model::refusal::Refusal;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::daemon_connection::ReplyStreamPart;
use brigade_protocol::requests::{
    AgentOutputItem, AnswerRequest, ApproveRequest, FollowTextRequest, ListSubtreeRequest,
    ListTranscriptRequest, ShowTaskRequest, WaitRequest, WaitUntil,
};
use brigade_protocol::task_info::{ApprovalInfo, QuestionInfo};
use brigade_protocol::{ClientError, TaskInfo};
use futures_util::future::{BoxFuture, FusedFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::acp_session::{AcpSession, PromptGuard, SessionView};
use crate::error_codes::{TurnError, failed_run, is_lost_stream, is_outage, refusal_error};
use crate::output_updates::new_chunk;
use crate::permission_request::{ApprovalKey, new_request, read_verdict};
use crate::root_task::{OUTAGE_PAUSE, is_outdated};
use crate::session_history::replay_items;
use crate::{AcpOptions, question_form};

const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The time of one wait. A longer run is waited for again.
const WAIT_MS: u64 = 60_000;
/// The output that is read ahead of the editor.
const OUTPUT_ITEMS: usize = 64;

/// A session and the two sides that it connects.
#[derive(Clone, Debug)]
pub(crate) struct SessionLink {
    pub(crate) client: DaemonClient,
    pub(crate) editor: ConnectionTo<Client>,
    pub(crate) session: Arc<AcpSession>,
    pub(crate) options: Arc<AcpOptions>,
    /// The editor shows forms.
    pub(crate) has_forms: bool,
}

/// The treatment of the past of a session that is opened again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SessionHistory {
    /// The editor gets it.
    Sent,
    /// The editor has it.
    Known,
}

/// The reason why a run is not followed any further.
enum FollowEnd {
    Ended(Box<TaskInfo>),
    /// The root agent asked a question as text. The next prompt answers it.
    Asked,
    /// A prompt follows the run instead.
    Replaced,
}

/// The output of a run, and its end.
struct RunFeed {
    output: mpsc::Receiver<AgentOutputItem>,
    end: oneshot::Receiver<Result<TaskInfo, Refusal>>,
}

/// The response of the editor to a request.
enum EditorReply {
    Permission {
        key: ApprovalKey,
        digest: Option<CallDigest>,
        result: Result<RequestPermissionResponse, Error>,
    },
    Form {
        question: u32,
        result: Result<CreateElicitationResponse, Error>,
    },
}

impl SessionLink {
    /// Runs the turn of a prompt.
    pub(crate) async fn run_prompt(
        &self,
        text: String,
        guard: PromptGuard,
    ) -> Result<PromptResponse, Error> {
        let mut view = self.session.view.lock().await;
        for note in self.session.take_notes() {
            self.send_text(format!("{note}\n\n"))?;
        }
        let task = self.deliver(text).await.map_err(|refusal| refusal_error(&refusal))?;
        view.output.begin_run(task.run);
        view.output.take_has_text();
        let stop = Some(guard.cancelled.clone());
        let end = self.follow_run(&mut view, stop, &CancellationToken::new()).await;
        match end? {
            FollowEnd::Ended(task) => {
                let stop_reason = self.report_end(&mut view, *task)?;
                Ok(PromptResponse::new(stop_reason))
            }
            FollowEnd::Asked | FollowEnd::Replaced => Ok(PromptResponse::new(StopReason::EndTurn)),
        }
    }

    /// Follows a run that no prompt of this connection started, until it ends or a prompt comes.
    pub(crate) async fn follow_without_prompt(&self) -> Result<(), Error> {
        let replaced = self.session.begin_following();
        let mut view = self.session.view.lock().await;
        if let FollowEnd::Ended(_) = self.follow_run(&mut view, None, &replaced).await? {
            for update in view.output.fail_open_calls() {
                self.send_update(update)?;
            }
        }
        Ok(())
    }

    /// Reads the transcript and the descendants, which the editor then has. Returns the root task.
    pub(crate) async fn read_history(&self, history: SessionHistory) -> Result<TaskInfo, Error> {
        let mut view = self.session.view.lock().await;
        let task = self.find_root().await?;
        let target = self.session.root().map_err(|refusal| refusal_error(&refusal))?;
        let mut page = None;
        loop {
            let request = ListTranscriptRequest { target: target.clone(), page };
            let reply = self.call(request).await.map_err(|refusal| refusal_error(&refusal))?;
            let Some(reply) = reply else { break };
            self.send_history(history, replay_items(&mut view.output, reply.items))?;
            page = reply.next;
            if page.is_none() {
                break;
            }
        }
        let tasks = self.list_subtree().await.map_err(|refusal| refusal_error(&refusal))?;
        self.send_history(history, view.tasks.update(&tasks))?;
        if !task.alive {
            self.send_history(history, view.output.fail_open_calls())?;
        }
        Ok(task)
    }

    fn send_history(
        &self,
        history: SessionHistory,
        updates: Vec<SessionUpdate>,
    ) -> Result<(), Error> {
        match history {
            SessionHistory::Sent => updates.into_iter().try_for_each(|it| self.send_update(it)),
            SessionHistory::Known => Ok(()),
        }
    }

    /// Follows the current run. `stop` is the token of `session/cancel`.
    async fn follow_run(
        &self,
        view: &mut SessionView,
        stop: Option<CancellationToken>,
        replaced: &CancellationToken,
    ) -> Result<FollowEnd, Error> {
        let (output_sender, output) = mpsc::channel(OUTPUT_ITEMS);
        let (end_sender, end) = oneshot::channel();
        let feed = RunFeed { output, end };
        let read_end = async {
            // The receiver is dropped only with this future.
            let _sent = end_sender.send(self.wait_end().await);
        };
        // All share the connection to the daemon and its lock. So each is polled while another one
        // waits for that lock.
        let read_feed = async { tokio::join!(self.read_output(output_sender), read_end) };
        let mut read_feed = std::pin::pin!(read_feed.fuse());
        let mut show = std::pin::pin!(self.show_run(view, feed, stop, replaced));
        loop {
            tokio::select! {
                end = &mut show => return end,
                _ = &mut read_feed, if !read_feed.is_terminated() => {}
            }
        }
    }

    /// Shows the run to the editor, and handles its replies.
    async fn show_run(
        &self,
        view: &mut SessionView,
        mut feed: RunFeed,
        stop: Option<CancellationToken>,
        replaced: &CancellationToken,
    ) -> Result<FollowEnd, Error> {
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        let mut requests = EditorRequests::default();
        let stop = stop.unwrap_or_default();
        let mut is_reading = true;
        let mut is_stopping = false;
        let mut ended = None;
        loop {
            tokio::select! {
                biased;
                () = replaced.cancelled() => {
                    requests.withdraw_all();
                    return Ok(FollowEnd::Replaced);
                }
                () = stop.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    requests.withdraw_all();
                    self.stop_root().await.map_err(|refusal| refusal_error(&refusal))?;
                }
                item = feed.output.recv(), if is_reading => match item {
                    Some(item) => {
                        if let Some(update) = view.output.update(item) {
                            self.send_update(update)?;
                        }
                    }
                    None => is_reading = false,
                },
                Some(reply) = requests.replies.next() => {
                    let handled = self.handle_reply(&mut requests, reply).await;
                    self.without_outage(&mut requests, handled)?;
                }
                task = &mut feed.end, if ended.is_none() => {
                    let task = task.unwrap_or_else(|_| Err(Refusal::internal("the wait ended")));
                    ended = Some(task.map_err(|refusal| refusal_error(&refusal))?);
                }
                _ = ticks.tick(), if ended.is_none() => {
                    let asked = self.poll_run(view, &mut requests, is_stopping).await;
                    if self.without_outage(&mut requests, asked)?.unwrap_or(false) {
                        requests.withdraw_all();
                        return Ok(FollowEnd::Asked);
                    }
                }
            }
            if !is_reading && let Some(task) = ended.take() {
                requests.withdraw_all();
                let last = self.poll_run(view, &mut requests, true).await;
                self.without_outage(&mut requests, last)?;
                return Ok(FollowEnd::Ended(Box::new(task)));
            }
        }
    }

    /// Sends the changes since the last poll, and requests what the run needs. Returns true if a
    /// question was asked as text.
    async fn poll_run(
        &self,
        view: &mut SessionView,
        requests: &mut EditorRequests,
        is_stopping: bool,
    ) -> Result<bool, TurnError> {
        let tasks = self.list_subtree().await?;
        for update in view.tasks.update(&tasks) {
            self.send_update(update)?;
        }
        self.send_notes(view).await?;
        if is_stopping {
            return Ok(false);
        }
        self.ask(requests, &tasks).await
    }

    /// Returns `None` for a failure of the daemon: the agent may be alive, and only the wait for its
    /// end ends the turn. A failure that does not pass is shown once.
    fn without_outage<T>(
        &self,
        requests: &mut EditorRequests,
        result: Result<T, TurnError>,
    ) -> Result<Option<T>, Error> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(TurnError::Editor(error)) => Err(error),
            Err(TurnError::Daemon(refusal)) => {
                if !is_outage(&refusal) && !requests.has_shown_failure {
                    requests.has_shown_failure = true;
                    let text = PlainText::of(&refusal.message).into_string();
                    self.send_text(format!("\n\nBrigade cannot show all of the run: {text}\n"))?;
                }
                Ok(None)
            }
        }
    }

    /// Reads the output of the run, also after a loss of the daemon.
    async fn read_output(&self, items: mpsc::Sender<AgentOutputItem>) {
        while let Err(error) = self.read_stream(&items).await {
            if !is_lost_stream(&error) {
                // The result of the run has its last text too.
                return;
            }
            tokio::time::sleep(OUTAGE_PAUSE).await;
            // This call connects to the next daemon.
            let Ok(target) = self.session.root() else { return };
            if self.call_in_turn(ShowTaskRequest { target }).await.is_err() {
                return;
            }
        }
    }

    async fn read_stream(&self, items: &mpsc::Sender<AgentOutputItem>) -> Result<(), ClientError> {
        let connection = self.client.connect().await?;
        let target = self.session.root().map_err(ClientError::Refused)?;
        let request = FollowTextRequest { target };
        let mut stream = connection.call_streaming(request)?;
        while let ReplyStreamPart::Item(item) = stream.next_part().await? {
            if items.send(item).await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Waits until the run has ended.
    async fn wait_end(&self) -> Result<TaskInfo, Refusal> {
        let request = WaitRequest {
            session: self.session.workspace().to_owned(),
            tasks: vec![self.session.root()?.task],
            mode: WaitMode::All,
            timeout_ms: Some(WAIT_MS),
            until: WaitUntil::Ended,
        };
        loop {
            let mut reply = self.call_in_turn(request.clone()).await?;
            if let Some(task) = reply.ended.pop() {
                return Ok(task);
            }
        }
    }

    async fn list_subtree(&self) -> Result<Vec<TaskInfo>, Refusal> {
        self.call(ListSubtreeRequest { target: self.session.root()? }).await
    }

    /// Sends requests for new approvals and questions, and withdraws those that are decided.
    /// Returns true if a question was asked as text.
    async fn ask(
        &self,
        requests: &mut EditorRequests,
        tasks: &[TaskInfo],
    ) -> Result<bool, TurnError> {
        let mut pending = HashSet::new();
        for task in tasks.iter().filter(|task| task.alive) {
            for approval in &task.approvals {
                let key = ApprovalKey::of(task, approval);
                if !requests.approvals.contains_key(&key) {
                    self.request_permission(requests, task, approval).await?;
                }
                pending.insert(key);
            }
        }
        requests.withdraw_decided(&pending);
        let Some(root) = tasks.first().filter(|task| task.alive) else { return Ok(false) };
        let Some(question) = root.questions.first() else { return Ok(false) };
        if !self.has_forms || question.client_call.is_some() {
            self.send_text(format!("\n\n{}\n", PlainText::of(&question.text)))?;
            return Ok(true);
        }
        if requests.questions.insert(question.call) {
            self.request_answer(requests, question);
        }
        Ok(false)
    }

    async fn request_permission(
        &self,
        requests: &mut EditorRequests,
        task: &TaskInfo,
        approval: &ApprovalInfo,
    ) -> Result<(), Refusal> {
        let key = ApprovalKey::of(task, approval);
        let mut approval = approval.clone();
        if approval.digest.is_none() {
            // A list omits long calls.
            let target = self.session.target(&task.address);
            let shown = self.call(ShowTaskRequest { target }).await?;
            let whole = shown.approvals.into_iter().find(|whole| whole.call == approval.call);
            let Some(whole) = whole else { return Ok(()) };
            approval = whole;
        }
        let request = new_request(self.session.id.clone(), task, &approval);
        let sent = self.editor.send_request(request);
        requests.approvals.insert(key.clone(), Some(sent.cancellation_handle()));
        let digest = approval.digest;
        requests.replies.push(Box::pin(async move {
            let result = sent.block_task().await;
            EditorReply::Permission { key, digest, result }
        }));
        Ok(())
    }

    fn request_answer(&self, requests: &mut EditorRequests, question: &QuestionInfo) {
        let text = PlainText::of(&question.text).into_string();
        let form = question_form::new_form(self.session.id.clone(), &text);
        let sent = self.editor.send_request(form);
        let question = question.call;
        requests.replies.push(Box::pin(async move {
            let result = sent.block_task().await;
            EditorReply::Form { question, result }
        }));
    }

    async fn handle_reply(
        &self,
        requests: &mut EditorRequests,
        reply: EditorReply,
    ) -> Result<(), TurnError> {
        let decided = match reply {
            EditorReply::Permission { key, digest, result } => {
                // A withdrawn request has no handle any more.
                let Some(handle) = requests.approvals.get_mut(&key) else { return Ok(()) };
                *handle = None;
                let Ok(response) = result else {
                    let ApprovalKey { task, call } = key;
                    let command = format!("brigade approve {task} {call} --show");
                    self.send_text(format!("\n\n`{command}` decides the request.\n"))?;
                    return Ok(());
                };
                let target = self.session.target(&key.task);
                let verdict = read_verdict(&response, digest);
                let call = Some(key.call);
                self.call_in_turn(ApproveRequest { target, call, digest, verdict }).await
            }
            EditorReply::Form { question, result } => {
                let Ok(response) = result else {
                    let command = format!("brigade answer {} TEXT", self.session.root()?.task);
                    self.send_text(format!("\n\n`{command}` answers the question.\n"))?;
                    return Ok(());
                };
                let answer = Json::of(&question_form::read_answer(response))?;
                let target = self.session.root()?;
                self.answer(AnswerRequest { target, answer, question: Some(question) }).await
            }
        };
        match decided {
            // It was decided elsewhere, or its task has ended.
            Err(refusal) if is_outdated(&refusal) => Ok(()),
            decided => Ok(decided?),
        }
    }

    /// Reports the end of a run. A failed run is an error with the text of its failure.
    fn report_end(&self, view: &mut SessionView, task: TaskInfo) -> Result<StopReason, Error> {
        for update in view.output.fail_open_calls() {
            self.send_update(update)?;
        }
        let has_text = view.output.take_has_text();
        match &task.outcome {
            Some(Outcome::Succeeded { result }) => {
                if !has_text && let Ok(text) = result.decode::<String>() {
                    self.send_text(text)?;
                }
                Ok(StopReason::EndTurn)
            }
            Some(Outcome::Cancelled(_)) => Ok(StopReason::Cancelled),
            Some(Outcome::Failed(failed)) if matches!(failed.failure, Failure::MaxSteps { .. }) => {
                Ok(StopReason::MaxTurnRequests)
            }
            _ => {
                let detail = task.detail.unwrap_or(task.state);
                Err(failed_run(PlainText::of(&detail).into_string()))
            }
        }
    }

    pub(crate) fn send_text(&self, text: String) -> Result<(), Error> {
        self.send_update(SessionUpdate::AgentMessageChunk(new_chunk(text)))
    }

    fn send_update(&self, update: SessionUpdate) -> Result<(), Error> {
        self.editor.send_notification(SessionNotification::new(self.session.id.clone(), update))
    }
}

/// The requests to the editor of one turn.
#[derive(Default)]
struct EditorRequests {
    replies: FuturesUnordered<BoxFuture<'static, EditorReply>>,
    /// The approvals that were asked for; a handle for those without a response.
    approvals: HashMap<ApprovalKey, Option<RequestCancellationHandle>>,
    /// The questions that were asked.
    questions: HashSet<u32>,
    /// A failure of the daemon was shown.
    has_shown_failure: bool,
}

impl EditorRequests {
    /// Withdraws requests for approvals that are no longer pending.
    fn withdraw_decided(&mut self, pending: &HashSet<ApprovalKey>) {
        self.approvals.retain(|key, handle| {
            let is_pending = pending.contains(key);
            if !is_pending {
                cancel_request(handle.take());
            }
            is_pending
        });
    }

    fn withdraw_all(&mut self) {
        self.withdraw_decided(&HashSet::new());
    }
}

/// Tells the editor that a response is not needed any more. It may not know this notification.
fn cancel_request(handle: Option<RequestCancellationHandle>) {
    if let Some(handle) = handle {
        let _sent = handle.cancel();
    }
}
