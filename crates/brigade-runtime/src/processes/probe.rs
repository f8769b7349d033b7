//! Probes an execution whose shim is dead or of which nothing remains, and returns its end.

use std::io;
use std::path::PathBuf;

use brigade_model::command::{EndReport, WorkResult};
use brigade_model::outcome::Failure;
use brigade_process::control_group;
use brigade_process::orphans::{DeadShim, OrphanReport, end_orphans};
use brigade_process::{BootId, FoundExecution, Shim, ShimRecord, find_execution};

use super::execution_dirs::ProcessExecution;
use super::report::{CommandDescription, end_confirmation, end_from_record, survivor_names};

/// The finding about an execution.
#[derive(Debug)]
pub(crate) enum ProbeResult {
    Alive(Shim),
    Ended(EndReport),
    NeverStarted,
}

/// An execution to probe.
#[derive(Clone, Debug)]
pub(crate) struct ExecutionProbe {
    pub(crate) execution: ProcessExecution,
    pub(crate) dir: PathBuf,
    pub(crate) boot_id: BootId,
    pub(crate) names: CommandDescription,
    /// True if the execution is known to have started, which a missing claim or directory cannot
    /// tell.
    pub(crate) was_started: bool,
    /// True if the runtime held the shim until it died just now.
    pub(crate) saw_shim_die: bool,
}

impl ExecutionProbe {
    /// Probes the execution. Ends the orphans of a dead shim, which takes a while. An error means
    /// that the probe failed and tells nothing about the execution.
    pub(crate) fn probe(&self) -> io::Result<ProbeResult> {
        Ok(match find_execution(&self.dir, self.boot_id)? {
            FoundExecution::Alive(shim) => ProbeResult::Alive(shim),
            FoundExecution::NeverStarted => ProbeResult::NeverStarted,
            FoundExecution::Finished(record) => {
                match end_from_record(&record, &self.dir, &self.names, &record.survivors) {
                    Some(end) => ProbeResult::Ended(end),
                    None => ProbeResult::Ended(
                        self.end_lost("its shim finished without recording an exit", None)?,
                    ),
                }
            }
            FoundExecution::Abandoned { record: Some(record), evidence } => {
                ProbeResult::Ended(self.end_abandoned(&record, &evidence)?)
            }
            FoundExecution::Abandoned { record: None, evidence } => {
                ProbeResult::Ended(self.end_lost(&evidence, None)?)
            }
            FoundExecution::Unclaimed => self.probe_missing("its claim is gone")?,
            FoundExecution::Vanished => self.probe_missing("its directory is gone")?,
        })
    }

    /// Returns `NeverStarted`, unless the execution is known to have started or some of it is
    /// running.
    fn probe_missing(&self, evidence: &str) -> io::Result<ProbeResult> {
        let remains = self.end_orphans(None)?;
        // One process is a shim that started too late; a shim and its process are two.
        if self.was_started || remains.found_count > 1 {
            return Ok(ProbeResult::Ended(lost_end(evidence, &remains)));
        }
        Ok(ProbeResult::NeverStarted)
    }

    /// Returns the end of an execution with a dead shim. The exit may have been recorded.
    fn end_abandoned(&self, record: &ShimRecord, evidence: &str) -> io::Result<EndReport> {
        if record.exit.is_some() {
            let remains = self.end_orphans(Some(record))?;
            if let Some(mut end) =
                end_from_record(record, &self.dir, &self.names, &remains.survivors)
            {
                if !remains.unidentified.is_empty() {
                    end.confirmation = end_confirmation(remaining_names(&remains));
                }
                return Ok(end);
            }
        }
        self.end_lost(evidence, Some(record))
    }

    /// Returns the end of an execution whose exit is unknown. Nothing can follow its orphans any
    /// more, so they are ended.
    fn end_lost(&self, evidence: &str, record: Option<&ShimRecord>) -> io::Result<EndReport> {
        Ok(lost_end(evidence, &self.end_orphans(record)?))
    }

    fn end_orphans(&self, record: Option<&ShimRecord>) -> io::Result<OrphanReport> {
        // Finds processes that left their session and cleared their environment, if there is a
        // group.
        if let Err(error) = control_group::kill_group_of(&self.dir) {
            tracing::debug!(%error, "the control group of a process does not exist any more");
        }
        let leaders = record
            .filter(|_| self.saw_shim_die)
            .map(ShimRecord::session_leaders)
            .unwrap_or_default();
        let mark = self.execution.mark();
        let shim = record.map(|record| record.shim);
        end_orphans(&DeadShim { mark: &mark, shim, session_leaders: &leaders })
    }
}

fn lost_end(evidence: &str, remains: &OrphanReport) -> EndReport {
    let failure =
        Failure::Lost { by: "the runtime that probed it".into(), evidence: evidence.into() };
    let confirmation = end_confirmation(remaining_names(remains));
    EndReport { result: WorkResult::Failed { failure, partial: None }, confirmation }
}

/// Returns the names of the remaining processes, and of those that may belong to the execution.
fn remaining_names(remains: &OrphanReport) -> Vec<String> {
    let unknown = survivor_names(&remains.unidentified).into_iter();
    let unknown =
        unknown.map(|name| format!("{name}, perhaps of another task: it hides its environment"));
    survivor_names(&remains.survivors).into_iter().chain(unknown).collect()
}
