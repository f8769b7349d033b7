//! Requests of MCP tools, handled in this process as the caller of an HTTP request.

use std::path::PathBuf;

use brigade_model::ids::{ClientIdentity, ConversationId};
use brigade_model::refusal::Refusal;
use brigade_protocol::call::Call;
use brigade_protocol::frames::ClientIntroduction;
use brigade_protocol::requests::AnyRequest;
use brigade_protocol::{RequestClient, RequestClientFactory};

use super::caller::unfinished_refusal;
use super::open_requests::{FinishedHandler, TokenValidity};
use super::workspace_scope::{no_workspace, restrict_path};
use crate::request_context::{CallerIdentity, RequestContext};
use crate::request_handler::ResponseSink;
use crate::requests::dispatch;

/// Creates clients that call the daemon's handlers with the rights of one token.
#[derive(Clone, Debug)]
pub(crate) struct LocalRequests {
    pub(crate) context: RequestContext,
    pub(crate) processes: ProcessPolicy,
}

/// The processes that a caller may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessPolicy {
    Any,
    /// Only in a sandbox and in this directory; none without a directory.
    Sandboxed {
        directory: Option<PathBuf>,
    },
}

impl RequestClientFactory for LocalRequests {
    type Client = LocalRequestClient;

    fn new_client(&self, introduction: ClientIntroduction) -> LocalRequestClient {
        let name = introduction.role.client_name().unwrap_or_default();
        let client =
            ClientIdentity { name: name.into(), conversation: introduction.conversation.clone() };
        let context =
            RequestContext { caller: CallerIdentity::Client(client), ..self.context.clone() };
        LocalRequestClient { introduction, context, processes: self.processes.clone() }
    }

    /// Signals nothing: a conversation is present while one of its HTTP requests is open.
    fn hold_presence(&self, _: ConversationId) -> impl Future<Output = ()> + Send + 'static {
        std::future::ready(())
    }
}

/// A client whose requests are handled where they are sent.
#[derive(Clone, Debug)]
pub(crate) struct LocalRequestClient {
    introduction: ClientIntroduction,
    context: RequestContext,
    processes: ProcessPolicy,
}

impl RequestClient for LocalRequestClient {
    fn introduction(&self) -> &ClientIntroduction {
        &self.introduction
    }

    async fn call<C: Call>(
        &self,
        new_request: impl Fn() -> C + Send + Sync,
    ) -> Result<C::Reply, Refusal> {
        let mut request: AnyRequest = new_request().into();
        self.processes.apply(&mut request)?;
        // No request of a tool has items.
        let sink = ResponseSink::without_items();
        // The future of all handlers is large.
        let dispatched = Box::pin(dispatch(request, &self.context, sink));
        let handled = async {
            tokio::select! {
                biased;
                reply = dispatched => reply,
                () = self.context.daemon.shutdown.shutdown_token.cancelled() => {
                    Err(Refusal::unavailable("the server shuts down; try again"))
                }
            }
        };
        let reply = match &self.context.validity {
            Some(validity) => finish_call(validity, handled).await?,
            None => handled.await?,
        };
        serde_json::from_str(reply.get())
            .map_err(|error| Refusal::internal(format!("a reply cannot be read: {error}")))
    }

    async fn call_once<C: Call>(
        &self,
        new_request: impl Fn() -> C + Send + Sync,
    ) -> Result<C::Reply, Refusal> {
        self.call(new_request).await
    }
}

/// Runs a call. One that has begun when the token ends may finish; no further one begins.
async fn finish_call<T>(
    validity: &TokenValidity,
    call: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    if validity.cancellation().is_cancelled() {
        return Err(ended_token_refusal());
    }
    match validity.finish(call).await {
        FinishedHandler::InTime(reply) | FinishedHandler::Late(reply) => reply,
        FinishedHandler::Unfinished => Err(unfinished_refusal()),
    }
}

fn ended_token_refusal() -> Refusal {
    Refusal::forbidden("the token has expired or was revoked")
}

impl ProcessPolicy {
    /// Puts new processes and agents into a sandbox, if the caller may start no others.
    fn apply(&self, request: &mut AnyRequest) -> Result<(), Refusal> {
        let Self::Sandboxed { directory } = self else { return Ok(()) };
        match request {
            AnyRequest::Exec(exec) => {
                exec.sandbox.get_or_insert_default();
                let directory = directory.as_ref().ok_or_else(no_workspace)?;
                if let Some(cwd) = &mut exec.process.cwd {
                    *cwd = restrict_path(directory, cwd)?.into();
                }
            }
            AnyRequest::Run(run) => {
                run.sandbox.get_or_insert_default();
                let directory = directory.as_ref().ok_or_else(no_workspace)?;
                if let Some(cwd) = &mut run.cwd {
                    *cwd = restrict_path(directory, cwd)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
