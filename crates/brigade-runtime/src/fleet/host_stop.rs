//! Stops of processes on other hosts.

use brigade_model::action::Action;
use brigade_model::command::{AttemptReport, WorkResult};
use brigade_model::ids::Millis;
use brigade_model::task::TaskRow;

use super::HostClient;
use super::host_watch::is_elsewhere;
use crate::performer::Reporter;
use crate::processes::{HostReply, HostRequest, ProcessExecution};
use crate::supervisor::Supervisor;

impl Supervisor {
    /// Lets the node of its host stop a process. Returns false for what is done here.
    pub(crate) fn stop_at_host(&self, row: &TaskRow, action: &Action, reporter: &Reporter) -> bool {
        let Some(owned) = &self.owned else { return false };
        let grace = match action {
            Action::Stop { deadline, .. } => deadline.since(self.clock.now()),
            Action::Kill { .. } => Millis(0),
            _ => return false,
        };
        let Some(host) = row.host().filter(|_| is_elsewhere(row, &owned.node.host)).cloned() else {
            return false;
        };
        let Reporter { task, attempt, .. } = *reporter;
        let execution = ProcessExecution { task, run: row.run, attempt }.into();
        let request = HostRequest::Stop { execution, grace };
        let client = HostClient::new(owned.node.clone());
        let reporter = reporter.clone();
        owned.node.start(async move {
            match client.ask_host(&host, &request).await {
                Ok(HostReply::Stopped) => {
                    reporter.post(AttemptReport::Ended(WorkResult::Aborted.into())).await;
                }
                Ok(_) => {}
                // The stop ends unconfirmed at its deadline, and the host carries it out when it returns.
                Err(refusal) => {
                    tracing::warn!(%refusal, no = %reporter.task.no, "a stop on another host")
                }
            }
        });
        true
    }
}
