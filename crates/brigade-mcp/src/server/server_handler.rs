//! The handler of the served methods: tools, and runs as protocol tasks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brigade_delegation::{
    Audience, ClientProfile, ListTasks, ReadOutput, RunProcess, SendMessage, SpawnAgent, StopTask,
    ToolArgs, WaitTasks,
};
use brigade_model::ids::ConversationId;
use brigade_model::refusal::Refusal;
use brigade_model::truncate::truncate_line;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, CreateTaskResult, CustomRequest, CustomResult,
    ErrorCode, Extensions, GetTaskParams, GetTaskResult, Implementation, JsonObject,
    ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
    ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, SubscriptionFilter,
    UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData, ServerHandler};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::client_message::TaskSubscription;
use super::conversation_id::new_conversation_id;
use super::mcp_caller::{CLIENT_NAME_CHARS_MAX, CallerSource, McpCaller};
use super::progress::ProgressNotifier;
use super::streamable_http::CallsOfSession;
use super::tool_call::{ClientDelegationTool, McpCallContext, McpToolReply};
use super::{McpOptions, error_codes, protocol_tasks};
use brigade_protocol::{RequestClient, RequestClientFactory};

/// The instructions for the model. Some clients show it nothing else until it asks for a tool.
const INSTRUCTIONS: &str = "Brigade runs commands and sub-agents as tasks that survive this conversation. \
    Use run_process instead of your own shell for builds, tests, servers, and anything that takes over \
    a minute or is worth keeping: the command keeps running when you, this server or the daemon is \
    killed, and its exit code and output are there afterwards. Use spawn_agent for independent work of \
    several steps. For several at once, start each with background: true (sub-agents start in the \
    background anyway), then call wait_tasks.\n\
    The tools belong together: run_process and spawn_agent start tasks; wait_tasks waits and returns \
    results; list_tasks finds tasks, also those of earlier conversations; read_output reads the output \
    of a task so far; send_message answers and steers a sub-agent or writes to a command; stop_task \
    ends a task. Wait with wait_tasks instead of polling. A sub-agent that asks a question waits until \
    you answer it with send_message. A tool call that needs an approval waits for the user: only the user \
    can give it.";
/// Known methods, whose invalid parameters are reported as such.
const KNOWN_METHODS: [&str; 5] =
    ["initialize", "tools/call", "tasks/get", "tasks/update", "tasks/cancel"];
/// The names of clients that start a turn when a background command of their own shell ends.
const SHELL_WOKEN_CLIENTS: [&str; 1] = ["claude-code"];
/// The maximum number of tasks of one subscription.
const SUBSCRIBED_TASKS_MAX: usize = 100;

#[derive(Debug)]
pub(super) struct McpServerHandler<F> {
    callers: CallerSource<F>,
    disconnected: CancellationToken,
    /// A random id for the idempotency keys of this handler. An HTTP session has several handlers
    /// in its life, so its id would give two calls the same key.
    key_prefix: ConversationId,
    next_call: AtomicU64,
    watch_tasks: TaskTracker,
    /// Watches end with this handler.
    _cancel_on_drop: DropGuard,
}

fn is_woken_by_shell(client: &str) -> bool {
    SHELL_WOKEN_CLIENTS.contains(&client)
}

/// Declares the tools.
macro_rules! tools {
    ($($tool:ty),* $(,)?) => {
        fn list_tools(audience: Audience) -> Vec<rmcp::model::Tool> {
            vec![$(<$tool>::definition(audience)),*]
        }

        /// Runs a tool; `None` if there is no tool of this name.
        async fn run_tool<C: RequestClient>(
            name: &str,
            arguments: JsonObject,
            call: &McpCallContext<C>,
        ) -> Option<Result<McpToolReply, Refusal>> {
            $(if name == <$tool>::NAME {
                return Some(<$tool>::call_with(arguments, call).await);
            })*
            None
        }
    };
}

tools!(SpawnAgent, RunProcess, ListTasks, WaitTasks, SendMessage, StopTask, ReadOutput);

impl<F: RequestClientFactory> McpServerHandler<F> {
    /// Returns the handler of one connection, whose presence it signals.
    pub(super) fn for_connection(
        request_clients: F,
        options: McpOptions,
        disconnected: CancellationToken,
    ) -> Self {
        let conversation = new_conversation_id();
        let presence = request_clients.hold_presence(conversation.clone());
        let caller = McpCaller {
            request_clients,
            options: Arc::new(options),
            conversation: Some(conversation.clone()),
        };
        let callers = CallerSource::Connection(Arc::new(caller));
        let handler = Self::new(callers, conversation, disconnected.clone());
        handler.watch_tasks.spawn(disconnected.run_until_cancelled_owned(presence));
        handler
    }

    /// Returns the handler of HTTP requests, each of which carries its caller.
    pub(super) fn for_http(disconnected: CancellationToken) -> Self {
        Self::new(CallerSource::HttpRequest, new_conversation_id(), disconnected)
    }

    fn new(
        callers: CallerSource<F>,
        key_prefix: ConversationId,
        disconnected: CancellationToken,
    ) -> Self {
        Self {
            callers,
            _cancel_on_drop: disconnected.clone().drop_guard(),
            disconnected,
            key_prefix,
            next_call: AtomicU64::new(0),
            watch_tasks: TaskTracker::new(),
        }
    }

    fn new_call_context(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<McpCallContext<F::Client>, ErrorData> {
        let caller = self.callers.find(context)?;
        let number = self.next_call.fetch_add(1, Ordering::Relaxed);
        let token = context.meta.get_progress_token();
        let client = context.client_capabilities();
        let program = context.client_info().map(|info| info.name);
        let introduction = caller.introduction(program.as_deref());
        Ok(McpCallContext {
            client_profile: caller.client_profile(program.as_deref()),
            request_client: caller.request_clients.new_client(introduction),
            cancelled: context.ct.clone(),
            disconnected: self.disconnected.clone(),
            session_calls: find_session_calls(&context.extensions),
            progress: token.map(|token| ProgressNotifier::new(context.peer.clone(), token)),
            // A client on another machine has no command that waits.
            is_woken_by_shell: !caller.options.wait_command.is_empty()
                && program.as_deref().is_some_and(is_woken_by_shell),
            supports_tasks: client.as_ref().is_some_and(|client| client.supports_tasks()),
            // A client that names no mode of elicitation supports forms.
            supports_elicitation: client
                .and_then(|client| client.elicitation)
                .is_some_and(|modes| modes.form.is_some() || modes.url.is_none()),
            idempotency_key: format!("mcp-{}-{number}", self.key_prefix),
            options: caller.options.clone(),
        })
    }

    fn unknown_tool_error(&self, name: &str) -> ErrorData {
        let known = list_tools(Audience::Client(ClientProfile::UNKNOWN));
        let known: Vec<&str> = known.iter().map(|tool| &*tool.name).collect();
        let name = truncate_line(name, CLIENT_NAME_CHARS_MAX);
        let problem = format!("there is no tool {name:?}; the tools are {}", known.join(", "));
        ErrorData::invalid_params(problem, None)
    }

    /// Watches a task whose handle the client gets. Clients of the newer protocol subscribe or poll
    /// instead.
    fn watch_new_task(
        &self,
        info: &brigade_protocol::task_info::TaskInfo,
        context: &RequestContext<RoleServer>,
    ) {
        let version = context.protocol_version();
        if version.is_some_and(|version| version.has_initialize())
            && let Ok(call) = self.new_call_context(context)
        {
            let watch = protocol_tasks::watch_status(
                call,
                protocol_tasks::protocol_task_id(info),
                context.peer.clone(),
                None,
            );
            self.watch_tasks.spawn(watch);
        }
    }
}

/// Returns the calls of the session of an HTTP request.
fn find_session_calls(extensions: &Extensions) -> Option<CallsOfSession> {
    let parts = extensions.get::<http::request::Parts>();
    parts.and_then(|parts| parts.extensions.get::<CallsOfSession>()).cloned()
}

/// Returns the tasks of a subscription. A transport of lines adds them to the message, that of HTTP
/// to the request.
fn find_task_subscription(extensions: &Extensions) -> Option<&TaskSubscription> {
    let parts = extensions.get::<http::request::Parts>();
    let of_request = || parts.and_then(|parts| parts.extensions.get::<TaskSubscription>());
    extensions.get::<TaskSubscription>().or_else(of_request)
}

impl<F: RequestClientFactory> ServerHandler for McpServerHandler<F> {
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
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let program = context.client_info().map(|info| info.name);
        let profile = self.callers.find(&context)?.client_profile(program.as_deref());
        Ok(ListToolsResult::with_all_items(list_tools(Audience::Client(profile))))
    }

    fn get_tool(&self, name: &str) -> Option<rmcp::model::Tool> {
        let profile = self.callers.default_profile();
        list_tools(Audience::Client(profile)).into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = self.new_call_context(&context)?;
        let arguments = request.arguments.unwrap_or_default();
        match run_tool(&request.name, arguments, &call).await {
            Some(Ok(McpToolReply::Task(info))) => {
                self.watch_new_task(&info, &context);
                Ok(CallToolResponse::Task(CreateTaskResult::new(
                    protocol_tasks::new_protocol_task(&call, &info),
                )))
            }
            Some(Ok(reply)) => {
                Ok(CallToolResponse::Complete(protocol_tasks::to_tool_result(reply)))
            }
            Some(Err(refusal)) => {
                Ok(CallToolResponse::Complete(error_codes::refusal_result(&refusal)))
            }
            None => Err(self.unknown_tool_error(&request.name)),
        }
    }

    /// Accepts an empty filter: no lists change, and tasks are not part of the filter.
    fn accepted_subscription_filter(&self, _: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::new())
    }

    /// Notifies the client of the subscribed tasks until it ends the subscription.
    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let context = subscription.request_context();
        let tasks = find_task_subscription(&context.extensions);
        let ids = tasks.map(|tasks| tasks.task_ids.clone()).unwrap_or_default();
        for id in ids.into_iter().take(SUBSCRIBED_TASKS_MAX) {
            let watch = protocol_tasks::watch_status(
                self.new_call_context(context)?,
                id,
                context.peer.clone(),
                Some(context.id.clone()),
            );
            self.watch_tasks.spawn(watch);
        }
        tokio::select! {
            () = subscription.cancelled() => {}
            () = self.disconnected.cancelled() => {}
        }
        Ok(())
    }

    // Methods of capabilities that are not offered do not exist. An empty list would suggest
    // otherwise.

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

    /// Refuses an unknown method, or a known one with invalid parameters.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = truncate_line(&request.method, CLIENT_NAME_CHARS_MAX);
        if KNOWN_METHODS.contains(&method.as_str()) {
            let problem =
                format!("the parameters of {method} are wrong; see the protocol's schema");
            return Err(ErrorData::invalid_params(problem, None));
        }
        let problem = format!("there is no method {method}");
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, problem, None))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let task =
            protocol_tasks::get_task(&self.new_call_context(&context)?, &request.task_id).await;
        task.map(GetTaskResult::new).map_err(|refusal| error_codes::refusal_error(&refusal))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let call = self.new_call_context(&context)?;
        let updated =
            protocol_tasks::update_task(&call, &request.task_id, request.input_responses).await;
        updated.map_err(|refusal| error_codes::refusal_error(&refusal))
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let cancelled =
            protocol_tasks::cancel_task(&self.new_call_context(&context)?, &request.task_id).await;
        cancelled.map_err(|refusal| error_codes::refusal_error(&refusal))
    }
}
