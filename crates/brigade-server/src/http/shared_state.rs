//! The state that all listeners of a daemon share, so that another listener doubles no limit.

use tokio_util::task::TaskTracker;

use super::body_budget::BodyBudget;
use super::change_frames::ChangeFrames;
use super::open_requests::OpenRequests;

#[derive(Debug, Default)]
pub(crate) struct HttpShared {
    pub(crate) open_requests: OpenRequests,
    pub(crate) change_frames: ChangeFrames,
    pub(crate) body_budget: BodyBudget,
    /// The sessions of MCP that are being opened.
    pub(crate) session_openings: TaskTracker,
}
