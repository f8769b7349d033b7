//! `/v1/nodes`: the nodes of the fleet.

use brigade_protocol::http::{DrainRequestBody, NodeBody, NodeListBody};
use brigade_protocol::requests::{DrainNodeRequest, ListNodesRequest};

use crate::http::caller::HttpCaller;
use crate::http::extract::{ApiPath, JsonBody, OptionalJson};
use crate::http::problem::Problem;

/// List the nodes of the fleet
///
/// A server that shares its store with no other one is no node of a fleet: the list is empty. A client's
/// token sees no nodes.
#[utoipa::path(
    get, path = "/v1/nodes", tag = "server",
    responses((status = 200, description = "The nodes", body = NodeListBody), Problem)
)]
pub(super) async fn list_nodes(caller: HttpCaller) -> Result<JsonBody<NodeListBody>, Problem> {
    Ok(JsonBody(caller.reader().call(ListNodesRequest {}).await?))
}

/// Let a node claim no more sessions and give up those at rest, or undo that
#[utoipa::path(
    post, path = "/v1/nodes/{name}/drain", tag = "server", params(("name" = String, Path)),
    request_body = Option<DrainRequestBody>,
    responses((status = 200, description = "The node", body = NodeBody), Problem)
)]
pub(super) async fn drain_node(
    caller: HttpCaller,
    ApiPath(node): ApiPath<String>,
    OptionalJson(request): OptionalJson<DrainRequestBody>,
) -> Result<JsonBody<NodeBody>, Problem> {
    caller.require_operator("drain nodes")?;
    let DrainRequestBody { draining } = request;
    Ok(JsonBody(caller.writer()?.call(DrainNodeRequest { node, draining }).await?))
}
