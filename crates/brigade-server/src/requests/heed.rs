//! Waits for tasks, and hears what they ask and wait for.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::wait::WaitUntil;
use super::{WaitReply, WaitRequest};
use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

/// A wait that a question ends too, and a call below one of the tasks that the user has to approve:
/// nothing is taken then, and who asks or waits is among those that go on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WaitOrInputRequest(pub WaitRequest);

impl Call for WaitOrInputRequest {
    type Reply = WaitReply;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<WaitReply, Refusal> {
        self.0.run_until(desk, WaitUntil::EndedOrInput).await
    }
}
