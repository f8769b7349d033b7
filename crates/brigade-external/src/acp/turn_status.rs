//! The status that a program reports beside the protocol.

use serde::Deserialize;
use serde_json::Value;

use crate::json_path::JsonPath;

/// The field of a session's updates that tells a failed turn from one that ended well.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TurnStatus {
    path: JsonPath,
    /// The values of a failed turn. A later value means that the program has recovered.
    failed: Vec<String>,
}

impl TurnStatus {
    /// Checks that an update reports a failure. Without a status it is `None`.
    pub(super) fn has_failed(&self, update: &Value) -> Option<bool> {
        let status = self.path.find(update)?.as_str()?;
        Some(self.failed.iter().any(|failed| failed == status))
    }
}
