//! `renew_lease`: renews a reader lease on a process's output.

use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{RenewLeaseReply, RenewLeaseRequest};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

/// The longest duration of a lease without renewal.
const LEASE_TIME_MAX: Duration = Duration::from_secs(60);

impl RequestHandler for RenewLeaseRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<RenewLeaseReply, Refusal> {
        let found = context.find_task(&self.target).await?;
        if !context.is_owner_of(&found.row) {
            let address = found.row.address(found.no);
            return Err(Refusal::forbidden(format!(
                "only the starter of {address} or the operator may hold its output"
            )));
        }
        if self.holder == 0 {
            return Err(Refusal::invalid("the holder of a lease must not be 0"));
        }
        let duration = Duration::from_millis(self.duration_ms).min(LEASE_TIME_MAX);
        let output_cap =
            found.session.renew_lease(found.no, self.holder, self.position, duration).await?;
        Ok(RenewLeaseReply { output_cap })
    }
}
