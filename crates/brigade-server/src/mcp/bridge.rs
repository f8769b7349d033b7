//! What is served: the tools, and runs as tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brigade_model::ids::ConversationId;
use brigade_model::refusal::Refusal;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, CreateTaskResult, CustomRequest, CustomResult,
    ErrorCode, GetTaskParams, GetTaskResult, Implementation, JsonObject, ListPromptsRequestMethod,
    ListPromptsResult, ListResourceTemplatesRequestMethod, ListResourceTemplatesResult,
    ListResourcesRequestMethod, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ServerCapabilities, ServerConfig, SubscriptionFilter, UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData, ServerHandler};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::attendance::{self, new_conversation};
use super::line::Line;
use super::list_tasks::ListTasks;
use super::progress::Progress;
use super::read_output::ReadOutput;
use super::run_process::RunProcess;
use super::send_message::SendMessage;
use super::spawn_agent::SpawnAgent;
use super::stop_task::StopTask;
use super::tool::{Answer, Call, Tool};
use super::transport::HearOf;
use super::wait_tasks::WaitTasks;
use super::{McpOptions, refusals, tasks};
use crate::start::Starter;
use crate::wire::{As, Introduction};

const INSTRUCTIONS: &str = "Brigade runs commands and sub-agents that outlive this session: what \
    run_process and spawn_agent start goes on when you, this server or the machine's daemon are killed, \
    and its true result is there afterwards. Work belongs to the workspace: list_tasks also shows what earlier conversations \
    started. Wait with wait_tasks instead of polling. A sub-agent that asks something waits until \
    send_message answers it.";
/// What is answered here, if it is asked as it should be.
const UNDERSTOOD: [&str; 5] =
    ["initialize", "tools/call", "tasks/get", "tasks/update", "tasks/cancel"];
/// The client name of one that does not say who it is.
const NOBODY: &str = "mcp";
const CLIENT_NAME_MAX: usize = 64;
/// Clients that begin a turn by themselves when a background command of their own shell ends, by the
/// names that they give themselves.
const WOKEN_BY_SHELL: [&str; 1] = ["claude-code"];
/// Tasks that one subscription is told of.
const HEARD_OF_MAX: usize = 100;

#[derive(Debug)]
pub(super) struct Bridge {
    starter: Starter,
    options: Arc<McpOptions>,
    gone: CancellationToken,
    /// Tells this bridge's keys from those of any other, and whose results are whose.
    conversation: ConversationId,
    calls: AtomicU64,
    watches: TaskTracker,
}

fn is_woken_by_shell(client: &str) -> bool {
    WOKEN_BY_SHELL.contains(&client)
}

/// Declares the tools.
macro_rules! tools {
    ($($tool:ty),* $(,)?) => {
        fn listed() -> Vec<rmcp::model::Tool> {
            vec![$(<$tool>::listed()),*]
        }

        /// None if there is no such tool.
        async fn run(
            name: &str,
            arguments: JsonObject,
            call: &Call,
        ) -> Option<Result<Answer, Refusal>> {
            $(if name == <$tool>::NAME {
                return Some(<$tool>::call(arguments, call).await);
            })*
            None
        }
    };
}

tools!(SpawnAgent, RunProcess, ListTasks, WaitTasks, SendMessage, StopTask, ReadOutput);

impl Bridge {
    pub(super) fn new(starter: Starter, options: McpOptions, gone: CancellationToken) -> Self {
        let conversation = new_conversation();
        let (options, watches) = (Arc::new(options), TaskTracker::new());
        watches.spawn(attendance::attend(starter.clone(), conversation.clone(), gone.clone()));
        Self { starter, options, gone, conversation, calls: AtomicU64::new(0), watches }
    }

    fn call(&self, context: &RequestContext<RoleServer>) -> Call {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let token = context.meta.get_progress_token();
        let client = context.client_capabilities();
        Call {
            options: self.options.clone(),
            line: Line::new(self.starter.clone(), self.acting(context)),
            cancelled: context.ct.clone(),
            gone: self.gone.clone(),
            progress: token.map(|token| Progress::new(context.peer.clone(), token)),
            is_woken: context.client_info().is_some_and(|info| is_woken_by_shell(&info.name)),
            knows_tasks: client.as_ref().is_some_and(|client| client.supports_tasks()),
            // One that says nothing of how it can be asked takes forms.
            can_be_asked: client
                .and_then(|client| client.elicitation)
                .is_some_and(|ways| ways.form.is_some() || ways.url.is_none()),
            key: format!("mcp-{}-{number}", self.conversation),
        }
    }

    fn acting(&self, context: &RequestContext<RoleServer>) -> Introduction {
        let name = self.client_name(context);
        let who = if self.options.shared { As::SharedClient(name) } else { As::Client(name) };
        Introduction { who, conversation: Some(self.conversation.clone()) }
    }

    /// The same in every conversation with the same program.
    fn client_name(&self, context: &RequestContext<RoleServer>) -> String {
        if let Some(client) = &self.options.client {
            return client.clone();
        }
        let named = context.client_info().map(|info| info.name).unwrap_or_default();
        let plain = named.chars().filter(|c| !c.is_control()).take(CLIENT_NAME_MAX);
        let plain: String = plain.collect();
        if plain.trim().is_empty() { NOBODY.to_owned() } else { plain }
    }

    /// A task whose handle goes out. Clients of the newer protocol hear only what they subscribed to,
    /// and ask.
    fn task(&self, info: &crate::info::TaskInfo, context: &RequestContext<RoleServer>) {
        let version = context.protocol_version();
        if version.is_some_and(|version| version.has_initialize()) {
            let id = format!("{}/{}", info.session, info.address);
            let watch = tasks::watch(self.call(context), id, context.peer.clone(), None);
            self.watches.spawn(watch);
        }
    }
}

impl ServerHandler for Bridge {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tasks().build();
        let server = Implementation::new("brigade", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(capabilities)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
            .with_server_info(server.with_title("Brigade"))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(listed()))
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        listed().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = self.call(&context);
        let arguments = request.arguments.unwrap_or_default();
        match run(&request.name, arguments, &call).await {
            Some(Ok(Answer::Task(info))) => {
                self.task(&info, &context);
                Ok(CallToolResponse::Task(CreateTaskResult::new(tasks::seed(&call, &info))))
            }
            Some(Ok(answer)) => Ok(CallToolResponse::Complete(tasks::said(answer))),
            Some(Err(refusal)) => Ok(CallToolResponse::Complete(refusals::as_result(&refusal))),
            None => Err(no_such_tool(&request.name)),
        }
    }

    /// No lists change here; tasks are asked for beside the filter.
    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::new())
    }

    /// Tells of the tasks that are asked for, until the client has heard enough.
    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let context = subscription.request_context();
        let wanted = context.extensions.get::<HearOf>();
        let ids = wanted.map(|wanted| wanted.task_ids.clone()).unwrap_or_default();
        for id in ids.into_iter().take(HEARD_OF_MAX) {
            let (call, within) = (self.call(context), Some(context.id.clone()));
            self.watches.spawn(tasks::watch(call, id, context.peer.clone(), within));
        }
        tokio::select! {
            () = subscription.cancelled() => {}
            () = self.gone.cancelled() => {}
        }
        Ok(())
    }

    // What is not offered is not answered with an empty list either.

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourcesRequestMethod>())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListResourceTemplatesRequestMethod>())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    /// Also what is known but was not understood comes here.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = super::text::clip(&request.method, CLIENT_NAME_MAX);
        if UNDERSTOOD.contains(&method.as_str()) {
            let what = format!("the parameters of {method} are wrong; see the protocol's schema");
            return Err(ErrorData::invalid_params(what, None));
        }
        let what = format!("there is no method {method}");
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, what, None))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let task = tasks::get(&self.call(&context), &request.task_id).await;
        task.map(GetTaskResult::new).map_err(|refusal| refusals::as_error(&refusal))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let call = self.call(&context);
        let updated = tasks::update(&call, &request.task_id, request.input_responses).await;
        updated.map_err(|refusal| refusals::as_error(&refusal))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let cancelled = tasks::cancel(&self.call(&context), &request.task_id).await;
        cancelled.map_err(|refusal| refusals::as_error(&refusal))
    }
}

fn no_such_tool(name: &str) -> ErrorData {
    let known: Vec<String> = listed().iter().map(|tool| tool.name.to_string()).collect();
    let name = super::text::clip(name, CLIENT_NAME_MAX);
    let what = format!("there is no tool {name:?}; there are {}", known.join(", "));
    ErrorData::invalid_params(what, None)
}
