//! `drain_node`: lets a node claim no more sessions and give up those at rest, or undoes that.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::http::NodeBody;

/// Only for the operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DrainNodeRequest {
    /// The name of the node.
    pub node: String,
    pub draining: bool,
}

impl Call for DrainNodeRequest {
    /// The node after the request.
    type Reply = NodeBody;
    type Item = NoItems;
}
