//! `list_nodes`: lists the nodes of the fleet.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::http::NodeListBody;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ListNodesRequest {}

impl Call for ListNodesRequest {
    type Reply = NodeListBody;
    type Item = NoItems;
}
