//! Asks the nodes of other hosts about the processes there.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_store::{CallId, CallTarget, NewCall, NodeRow};
use tokio::time::Instant;

use super::Node;
use super::call_message::{decode, encode};
use super::host_watch::{absence_of, open_node_of};
use crate::error::store_refusal;
use crate::ids::new_call_id;
use crate::loop_input::SubmitResult;
use crate::processes::{HostReply, HostRequest};

/// The time between two looks for a reply, without a hint.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The time after which a request is given up.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// The sender of requests to the nodes of other hosts.
#[derive(Clone, Debug)]
pub(crate) struct HostClient {
    node: Arc<Node>,
}

/// Removes a call whose caller does not wait any more.
struct RemoveOnDrop {
    node: Arc<Node>,
    call: CallId,
}

impl HostClient {
    pub(crate) fn new(node: Arc<Node>) -> Self {
        Self { node }
    }

    /// Sends a request to the node of a host, and waits for the reply. Refuses if the host has no node.
    pub(crate) async fn ask_host(
        &self,
        host: &str,
        request: &HostRequest,
    ) -> Result<HostReply, Refusal> {
        self.node.check_lease()?;
        let nodes = self.node.recent_nodes().await?;
        let Some(to) = open_node_of(&nodes, host) else { return Err(absent_host(&nodes, host)) };
        let id = new_call_id();
        let call = NewCall {
            id,
            target: CallTarget::Node(to.id),
            asked_by: self.node.id(),
            request: encode(request)?,
        };
        let _removal = RemoveOnDrop { node: self.node.clone(), call: id };
        let fleet = self.node.fleet();
        if !fleet.ask(&call).await.map_err(|error| store_refusal(&error))? {
            return Err(absent_host(&nodes, host));
        }
        let _ = fleet.notify().await;
        self.wait_for_reply(id, to, host).await
    }

    async fn wait_for_reply(
        &self,
        id: CallId,
        to: &NodeRow,
        host: &str,
    ) -> Result<HostReply, Refusal> {
        let fleet = self.node.fleet();
        let deadline = Instant::now() + REPLY_TIMEOUT;
        loop {
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = fleet.next_hint() => {}
            }
            let results = fleet.replies(&[id]).await.map_err(|error| store_refusal(&error))?;
            match results.into_iter().find(|result| result.id == id) {
                Some(result) => {
                    let Some(reply) = result.reply else {
                        // The node was closed meanwhile.
                        let nodes = fleet.nodes().await.map_err(|error| store_refusal(&error))?;
                        return Err(absent_host(&nodes, host));
                    };
                    return decode::<SubmitResult<HostReply>>(&reply)?;
                }
                None if Instant::now() >= deadline => {
                    return Err(Refusal::unavailable(format!(
                        "node {} does not answer; try again",
                        to.name
                    )));
                }
                None => {}
            }
        }
    }
}

/// Returns the refusal of a request for a host without a node.
fn absent_host(nodes: &[NodeRow], host: &str) -> Refusal {
    let absence = absence_of(nodes, host, Duration::ZERO);
    Refusal::unavailable(format!("the output is on {absence}"))
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        // Calls of a process that ends are removed with its node.
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let node = self.node.clone();
        let call = self.call;
        self.node.start(async move {
            if let Err(error) = node.fleet().remove_calls(&[call]).await {
                tracing::debug!(%error, "a call is removed with the node");
            }
        });
    }
}
