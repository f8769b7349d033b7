//! An MCP server whose requests are handled in the same process, without a daemon and a socket.

use std::sync::{Arc, Mutex};

use brigade_mcp::server::{McpOptions, serve};
use brigade_model::ids::ConversationId;
use brigade_model::refusal::Refusal;
use brigade_protocol::call::Call;
use brigade_protocol::frames::{ClientIntroduction, ClientRole};
use brigade_protocol::requests::AnyRequest;
use brigade_protocol::{RequestClient, RequestClientFactory};
use rmcp::ServiceExt;
use rmcp::model::{CallToolRequestParams, CallToolResult, ClientConfig, Implementation};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::SESSION;

/// Handlers of two requests, and the introductions of their clients.
#[derive(Clone, Debug, Default)]
struct LocalHandlers {
    introductions: Arc<Mutex<Vec<ClientIntroduction>>>,
    presence: Arc<Mutex<Option<ConversationId>>>,
    presence_ended: CancellationToken,
}

impl RequestClientFactory for LocalHandlers {
    type Client = LocalClient;

    fn new_client(&self, introduction: ClientIntroduction) -> LocalClient {
        self.introductions.lock().unwrap().push(introduction.clone());
        LocalClient { introduction }
    }

    fn hold_presence(
        &self,
        conversation: ConversationId,
    ) -> impl Future<Output = ()> + Send + 'static {
        *self.presence.lock().unwrap() = Some(conversation);
        let guard = self.presence_ended.clone().drop_guard();
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    }
}

/// A client whose requests are handled where they are sent.
#[derive(Debug)]
struct LocalClient {
    introduction: ClientIntroduction,
}

impl RequestClient for LocalClient {
    fn introduction(&self) -> &ClientIntroduction {
        &self.introduction
    }

    async fn call<C: Call>(
        &self,
        new_request: impl Fn() -> C + Send + Sync,
    ) -> Result<C::Reply, Refusal> {
        let reply = handle_request(new_request().into())?;
        serde_json::from_value(reply).map_err(|error| Refusal::internal(error.to_string()))
    }

    async fn call_once<C: Call>(
        &self,
        new_request: impl Fn() -> C + Send + Sync,
    ) -> Result<C::Reply, Refusal> {
        self.call(new_request).await
    }
}

fn handle_request(request: AnyRequest) -> Result<Value, Refusal> {
    match request {
        AnyRequest::ListTasks(list) => Ok(json!([{
            "address": "process:7",
            "kind": "process",
            "session": list.session,
            "description": "make soup",
            "state": "running",
            "alive": true,
            "run": 1,
            "attempt": 1,
            "spawned_at": 1,
            "last_activity_at": 1,
        }])),
        AnyRequest::Inbox(inbox) => {
            assert!(inbox.notes_only && !inbox.mark_read, "{inbox:?}");
            let note = json!({
                "number": 1,
                "from": "agent:3",
                "text": "The soup is hot.",
                "sent_at": 1,
                "receipt": "accepted",
            });
            Ok(json!([note]))
        }
        _ => Err(Refusal::not_found("nothing else is served")),
    }
}

/// Returns the text of a tool result.
fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

#[tokio::test]
async fn tools_call_handlers_in_the_same_process() {
    let handlers = LocalHandlers::default();
    let directory = tempfile::tempdir().unwrap();
    let options = McpOptions::new(SESSION, directory.path());
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (input, output) = tokio::io::split(theirs);
    let config = ClientConfig::new(Default::default(), Implementation::new("cook", "1"));
    let served = serve(handlers.clone(), options, input, output);
    let used = async {
        let client = config.serve(ours).await.unwrap();
        let list = client.call_tool(CallToolRequestParams::new("list_tasks")).await.unwrap();
        let stop = CallToolRequestParams::new("stop_task")
            .with_arguments(serde_json::from_value(json!({"task": "process:7"})).unwrap());
        let stop = client.call_tool(stop).await.unwrap();
        client.cancel().await.unwrap();
        (list, stop)
    };
    let (served, (list, stop)) = tokio::join!(served, used);
    served.unwrap();

    assert!(text(&list).contains("process:7"), "{}", text(&list));
    assert!(text(&list).contains("The soup is hot."), "{}", text(&list));
    let structured = list.structured_content.unwrap();
    assert_eq!(structured["tasks"][0]["state"], "running", "{structured}");
    assert_eq!(stop.is_error, Some(true));
    assert!(text(&stop).contains("nothing else is served"), "{}", text(&stop));

    let introductions = handlers.introductions.lock().unwrap().clone();
    let conversation = handlers.presence.lock().unwrap().clone();
    let expected = ClientIntroduction { role: ClientRole::Client("cook".to_owned()), conversation };
    assert!(expected.conversation.is_some());
    assert_eq!(introductions, [expected.clone(), expected]);
    handlers.presence_ended.cancelled().await;
}
