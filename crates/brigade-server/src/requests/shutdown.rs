//! `shutdown`: asks the daemon to shut down. Processes keep running.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ShutdownRequest {}

impl Call for ShutdownRequest {
    type Reply = ();
    type Item = NoItems;

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<(), Refusal> {
        context.require_operator("stop the daemon")?;
        context.shutdown();
        Ok(())
    }
}
