//! What to say of an execution whose shim is gone, or of which there is nothing left.

use std::io;
use std::path::PathBuf;

use brigade_model::command::{EndReport, WorkResult};
use brigade_model::outcome::Failure;
use brigade_process::control_group;
use brigade_process::orphans::{DeadShim, OrphanReport, end_orphans};
use brigade_process::{FoundExecution, Shim, ShimRecord, find_execution};

use super::execution_dirs::ProcessExecution;
use super::report::{CommandDescription, end_confirmation, end_from_record, survivor_names};

/// What became of it.
#[derive(Debug)]
pub(crate) enum ProbeResult {
    Alive(Shim),
    Ended(EndReport),
    NeverStarted,
}

/// An execution to look for.
#[derive(Clone, Debug)]
pub(crate) struct ExecutionProbe {
    pub(crate) execution: ProcessExecution,
    pub(crate) dir: PathBuf,
    pub(crate) boot_id: [u8; 16],
    pub(crate) names: CommandDescription,
    /// Whether it is known to have been executed: without a claim or a directory it cannot be told.
    pub(crate) was_started: bool,
    /// Whether its shim was held until it died just now.
    pub(crate) saw_shim_die: bool,
}

impl ExecutionProbe {
    /// Looks for it, and ends what is left of one whose shim is dead, which takes a while. An error
    /// means that it could not be looked: nothing follows from it.
    pub(crate) fn probe(&self) -> io::Result<ProbeResult> {
        Ok(match find_execution(&self.dir, &self.boot_id)? {
            FoundExecution::Alive(shim) => ProbeResult::Alive(shim),
            FoundExecution::NeverStarted => ProbeResult::NeverStarted,
            FoundExecution::Finished(record) => {
                match end_from_record(&record, &self.dir, &self.names, &record.survivors) {
                    Some(end) => ProbeResult::Ended(end),
                    None => ProbeResult::Ended(
                        self.end_lost("its shim finished without an ending", None)?,
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

    /// Never begun, unless it is known to have been, or something of it runs.
    fn probe_missing(&self, evidence: &str) -> io::Result<ProbeResult> {
        let remains = self.end_orphans(None)?;
        // One process is a shim that comes too late; it and its command are two.
        if self.was_started || remains.found_count > 1 {
            return Ok(ProbeResult::Ended(lost_end(evidence, &remains)));
        }
        Ok(ProbeResult::NeverStarted)
    }

    /// The shim is dead. The command's ending may be known all the same.
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

    /// Nobody can say how it ended. Whatever is left of it can no longer be followed, so it is ended.
    fn end_lost(&self, evidence: &str, record: Option<&ShimRecord>) -> io::Result<EndReport> {
        Ok(lost_end(evidence, &self.end_orphans(record)?))
    }

    fn end_orphans(&self, record: Option<&ShimRecord>) -> io::Result<OrphanReport> {
        // Finds what left its session and wiped its environment too, where the command had a group.
        if let Err(error) = control_group::kill_group_of(&self.dir) {
            tracing::debug!(%error, "the control group of a command is gone");
        }
        let leaders = record
            .filter(|_| self.saw_shim_die)
            .map(ShimRecord::session_leaders)
            .unwrap_or_default();
        let mark = self.execution.mark();
        let id = record.map(|record| record.shim);
        end_orphans(&DeadShim { mark: &mark, shim: id, session_leaders: &leaders })
    }
}

fn lost_end(evidence: &str, remains: &OrphanReport) -> EndReport {
    let failure =
        Failure::Lost { by: "the runtime that looked for it".into(), evidence: evidence.into() };
    let verified = end_confirmation(remaining_names(remains));
    EndReport { result: WorkResult::Failed { failure, partial: None }, confirmation: verified }
}

/// The processes that are left, and those of which nobody can say whether they are.
fn remaining_names(remains: &OrphanReport) -> Vec<String> {
    let unknown = survivor_names(&remains.unidentified).into_iter();
    let unknown =
        unknown.map(|name| format!("{name}, which may be another's: it hides its environment"));
    survivor_names(&remains.survivors).into_iter().chain(unknown).collect()
}
