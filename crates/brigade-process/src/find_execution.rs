//! Classifies the execution of a process whose runtime has died.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::process_identity::{BootId, ProcessId};
use crate::shim::layout::CLAIM;
use crate::shim::record::{Claimer, ShimPhase, ShimRecord};
use crate::shim_handle::Shim;

/// The state of an execution.
#[derive(Debug)]
pub enum FoundExecution {
    /// The shim is alive. The process is too, unless the record says otherwise.
    Alive(Shim),
    /// The process has ended and the shim has finished.
    Finished(ShimRecord),
    /// According to the record, nothing was executed, and nothing will be.
    NeverStarted,
    /// There was no claim, and this call has taken it. Nothing will be executed. Nothing was
    /// executed either, unless somebody removed the claim.
    Unclaimed,
    /// The shim has died without finishing. Descendants of the process may still run.
    Abandoned { record: Option<ShimRecord>, evidence: String },
    /// The directory does not exist. It is unknown whether anything was executed.
    Vanished,
}

/// Classifies the execution, and prevents a later start of one that has not started.
pub fn find_execution(dir: &Path, boot: BootId) -> io::Result<FoundExecution> {
    if !dir.is_dir() {
        return Ok(FoundExecution::Vanished);
    }
    if claim(dir, boot)? {
        return Ok(FoundExecution::Unclaimed);
    }
    let file = match File::open(dir.join(CLAIM)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(FoundExecution::Vanished);
        }
        Err(error) => return Err(error),
    };
    let record = match ShimRecord::read_from(&file) {
        Ok(record) => record,
        Err(error) => {
            return Ok(FoundExecution::Abandoned { record: None, evidence: error.to_string() });
        }
    };
    if record.claimer == Claimer::Runtime {
        return Ok(FoundExecution::NeverStarted);
    }
    let same_boot = record.boot_id == boot;
    if same_boot && let Some(shim) = Shim::from_claim(record.shim, file.try_clone()?)? {
        return Ok(FoundExecution::Alive(shim));
    }
    // The shim may have written it again before it exited.
    let record = ShimRecord::read_from(&file)?;
    Ok(match record.phase {
        ShimPhase::Done => FoundExecution::Finished(record),
        ShimPhase::Claimed if same_boot => FoundExecution::NeverStarted,
        _ if same_boot => {
            abandoned_execution(record, "its shim is gone and recorded no exit status")
        }
        _ => abandoned_execution(record, "the machine has been restarted since"),
    })
}

fn abandoned_execution(record: ShimRecord, evidence: &str) -> FoundExecution {
    FoundExecution::Abandoned { record: Some(record), evidence: evidence.to_owned() }
}

/// Tries to take the claim for the runtime. A shim that comes later does nothing.
pub fn claim(dir: &Path, boot: BootId) -> io::Result<bool> {
    let claim = dir.join(CLAIM);
    if claim.exists() {
        return Ok(false);
    }
    let draft = dir.join(format!("{CLAIM}.{}", std::process::id()));
    let claimer = ProcessId { pid: std::process::id(), start: 0 };
    let written = fs::write(&draft, ShimRecord::new(Claimer::Runtime, boot, claimer, 0).encode());
    let linked = written.and_then(|()| fs::hard_link(&draft, &claim));
    let _ = fs::remove_file(&draft);
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const BOOT: BootId = BootId([7; 16]);

    fn dir_with(record: &ShimRecord) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(CLAIM), record.encode()).unwrap();
        dir
    }

    /// Returns a record whose shim has an id that no process has.
    fn dead_shim(phase: ShimPhase) -> ShimRecord {
        let id = ProcessId { pid: 1, start: u64::MAX };
        ShimRecord { phase, ..ShimRecord::new(Claimer::Shim, BOOT, id, 0) }
    }

    fn found(dir: &Path) -> String {
        match find_execution(dir, BOOT).unwrap() {
            FoundExecution::Alive(_) => "alive".into(),
            FoundExecution::Finished(_) => "finished".into(),
            FoundExecution::NeverStarted => "never started".into(),
            FoundExecution::Unclaimed => "unclaimed".into(),
            FoundExecution::Abandoned { evidence, .. } => evidence,
            FoundExecution::Vanished => "vanished".into(),
        }
    }

    #[tokio::test]
    async fn each_state_of_a_directory_is_classified() {
        let table = [
            (ShimPhase::Claimed, "never started"),
            (ShimPhase::Launching, "its shim is gone and recorded no exit status"),
            (ShimPhase::Running, "its shim is gone and recorded no exit status"),
            (ShimPhase::Exited, "its shim is gone and recorded no exit status"),
            (ShimPhase::Done, "finished"),
        ];
        for (phase, expect) in table {
            assert_eq!(found(dir_with(&dead_shim(phase)).path()), expect, "{phase:?}");
        }
        let rebooted = ShimRecord { boot_id: BootId([8; 16]), ..dead_shim(ShimPhase::Running) };
        assert_eq!(found(dir_with(&rebooted).path()), "the machine has been restarted since");
        let rebooted = ShimRecord { boot_id: BootId([8; 16]), ..dead_shim(ShimPhase::Done) };
        assert_eq!(found(dir_with(&rebooted).path()), "finished");
    }

    #[tokio::test]
    async fn an_unclaimed_directory_is_claimed_once() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(found(dir.path()), "unclaimed");
        assert!(!claim(dir.path(), BOOT).unwrap());
        assert_eq!(found(dir.path()), "never started");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
    }

    #[tokio::test]
    async fn a_missing_or_damaged_directory_is_reported() {
        assert_eq!(found(Path::new("/nonexistent/brigade")), "vanished");
        let dir = dir_with(&dead_shim(ShimPhase::Running));
        let file = File::options().write(true).open(dir.path().join(CLAIM)).unwrap();
        file.write_all_at(b"x", 100).unwrap();
        assert_eq!(found(dir.path()), "the record is damaged");
        file.set_len(300).unwrap();
        assert_eq!(found(dir.path()), "the record is truncated");
    }
}
