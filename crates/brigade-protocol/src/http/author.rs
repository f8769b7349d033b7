//! The author of a change.

use brigade_model::event_author::EventAuthor;
use brigade_model::ids::SessionId;
use serde::Serialize;
use utoipa::ToSchema;

use super::TaskId;

/// The author of the request that caused a change. It is a label: rights follow from the token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Author)]
pub struct AuthorBody {
    /// Open: `operator`, `client` or `task`.
    pub kind: String,
    /// The name of a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The task that acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The place from which the author acted, for people: `terminal pts/3`, `process 41 (python3)`,
    /// or `token laptop` or `dashboard` with the id of the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl AuthorBody {
    pub fn of(session: SessionId, author: &EventAuthor) -> Self {
        Self {
            kind: author.kind.as_str().to_owned(),
            name: author.name.as_deref().map(str::to_owned),
            task: author.task.map(|no| TaskId { session, no }),
            origin: author.origin.as_ref().map(|origin| origin.as_str().to_owned()),
        }
    }
}
