//! `list_tokens`: lists the tokens of the HTTP API.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::http::TokenBody;

/// Selects all valid tokens. Only for the operator.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ListTokensRequest {}

impl Call for ListTokensRequest {
    type Reply = Vec<TokenBody>;
    type Item = NoItems;
}
