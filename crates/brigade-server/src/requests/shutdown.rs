//! Asks the daemon to leave. Commands go on without it.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ShutdownRequest {}

impl Call for ShutdownRequest {
    type Reply = ();
    type Item = NoItems;

    async fn handle(self, desk: &RequestContext, _: &ItemSender<NoItems>) -> Result<(), Refusal> {
        desk.require_operator("stop the daemon")?;
        desk.shutdown();
        Ok(())
    }
}
