//! The caller of a request: one for a connection of lines, one for each request of HTTP.

use std::sync::Arc;

use brigade_model::ids::ConversationId;
use rmcp::ErrorData;
use rmcp::service::{RequestContext, RoleServer};

use super::McpOptions;
use brigade_delegation::{ClientProfile, WaitBounds};
use brigade_protocol::frames::{ClientIntroduction, ClientRole};

/// The client name of a client without a name.
const DEFAULT_CLIENT_NAME: &str = "mcp";
pub(super) const CLIENT_NAME_CHARS_MAX: usize = 64;

/// The caller of a request, its settings and its conversation.
#[derive(Clone, Debug)]
pub struct McpCaller<F> {
    /// Creates the clients that send the requests of tools.
    pub request_clients: F,
    pub options: Arc<McpOptions>,
    /// `None` for a client without a session. It receives what it started without one.
    pub conversation: Option<ConversationId>,
}

impl<F> McpCaller<F> {
    /// Returns the profile of a client. An unknown program has the shortest waits.
    pub(super) fn client_profile(&self, program: Option<&str>) -> ClientProfile {
        let is_within_task = self.options.is_within_task;
        let wait = program.map_or(WaitBounds::DEFAULT, WaitBounds::for_client);
        ClientProfile { is_within_task, wait }
    }

    pub(super) fn introduction(&self, program: Option<&str>) -> ClientIntroduction {
        let name = self.client_name(program);
        let role = if self.options.shared {
            ClientRole::SharedClient(name)
        } else {
            ClientRole::Client(name)
        };
        ClientIntroduction { role, conversation: self.conversation.clone() }
    }

    /// Returns the client name, which is the same in every conversation with the same program.
    fn client_name(&self, program: Option<&str>) -> String {
        if let Some(client) = &self.options.client_name {
            return client.clone();
        }
        let named = program.unwrap_or_default();
        let plain = named.chars().filter(|c| !c.is_control()).take(CLIENT_NAME_CHARS_MAX);
        let plain: String = plain.collect();
        if plain.trim().is_empty() { DEFAULT_CLIENT_NAME.to_owned() } else { plain }
    }
}

/// The place where a handler finds the caller of a request.
#[derive(Debug)]
pub(super) enum CallerSource<F> {
    /// The connection has one caller.
    Connection(Arc<McpCaller<F>>),
    /// The HTTP request carries its caller, since each has a token of its own.
    HttpRequest,
}

impl<F: Send + Sync + 'static> CallerSource<F> {
    /// Returns the profile of an unknown program.
    pub(super) fn default_profile(&self) -> ClientProfile {
        match self {
            Self::Connection(caller) => caller.client_profile(None),
            Self::HttpRequest => ClientProfile::UNKNOWN,
        }
    }

    /// Returns the caller of a request.
    pub(super) fn find(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<Arc<McpCaller<F>>, ErrorData> {
        match self {
            Self::Connection(caller) => Ok(caller.clone()),
            Self::HttpRequest => {
                let parts = context.extensions.get::<http::request::Parts>();
                let caller = parts.and_then(|parts| parts.extensions.get::<Arc<McpCaller<F>>>());
                let missing = || ErrorData::internal_error("the request has no caller", None);
                caller.cloned().ok_or_else(missing)
            }
        }
    }
}
