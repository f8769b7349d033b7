//! What became of a command whose runtime is gone.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::shim::layout::CLAIM;
use crate::shim::record::{Claimer, ProcessId, ShimPhase, ShimRecord};
use crate::shim_handle::Shim;

/// What there is of an execution.
#[derive(Debug)]
pub enum FoundExecution {
    /// Its shim lives and goes on; so does the command, unless the record says otherwise.
    Alive(Shim),
    /// The command ended and the shim finished its work.
    Finished(ShimRecord),
    /// It was never executed and will not be: the record says so.
    NeverStarted,
    /// There was no claim, and now it is ours: nothing will be executed. Nothing was, either, unless
    /// somebody took the claim away.
    Unclaimed,
    /// The shim is gone without having finished. What the command left may still be there.
    Abandoned { record: Option<ShimRecord>, evidence: String },
    /// There is no directory. Whether it was ever executed cannot be told from here.
    Vanished,
}

/// Looks, and makes sure that what was not executed will not be.
pub fn find_execution(dir: &Path, boot: &[u8; 16]) -> io::Result<FoundExecution> {
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
    let same_boot = record.boot_id == *boot;
    if same_boot && let Some(shim) = Shim::from_claim(record.shim, file.try_clone()?)? {
        return Ok(FoundExecution::Alive(shim));
    }
    // It may have gone on between the two looks.
    let record = ShimRecord::read_from(&file)?;
    Ok(match record.phase {
        ShimPhase::Done => FoundExecution::Finished(record),
        ShimPhase::Claimed if same_boot => FoundExecution::NeverStarted,
        _ if same_boot => abandoned_execution(record, "its shim is gone and left no ending"),
        _ => abandoned_execution(record, "the machine has been restarted since"),
    })
}

fn abandoned_execution(record: ShimRecord, evidence: &str) -> FoundExecution {
    FoundExecution::Abandoned { record: Some(record), evidence: evidence.to_owned() }
}

/// Tries to win the claim for the runtime. A shim that comes later does nothing.
pub fn claim(dir: &Path, boot: &[u8; 16]) -> io::Result<bool> {
    let claim = dir.join(CLAIM);
    if claim.exists() {
        return Ok(false);
    }
    let mine = dir.join(format!("{CLAIM}.{}", std::process::id()));
    let nobody = ProcessId { pid: std::process::id(), start: 0 };
    let written = fs::write(&mine, ShimRecord::new(Claimer::Runtime, *boot, nobody, 0).encode());
    let linked = written.and_then(|()| fs::hard_link(&mine, &claim));
    let _ = fs::remove_file(&mine);
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

    const BOOT: [u8; 16] = [7; 16];

    fn with(record: &ShimRecord) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(CLAIM), record.encode()).unwrap();
        dir
    }

    /// A process id that nobody has.
    fn dead_shim(phase: ShimPhase) -> ShimRecord {
        let id = ProcessId { pid: 1, start: u64::MAX };
        ShimRecord { phase, ..ShimRecord::new(Claimer::Shim, BOOT, id, 0) }
    }

    fn found(dir: &Path) -> String {
        match find_execution(dir, &BOOT).unwrap() {
            FoundExecution::Alive(_) => "alive".into(),
            FoundExecution::Finished(_) => "finished".into(),
            FoundExecution::NeverStarted => "never began".into(),
            FoundExecution::Unclaimed => "unclaimed".into(),
            FoundExecution::Abandoned { evidence, .. } => evidence,
            FoundExecution::Vanished => "vanished".into(),
        }
    }

    #[tokio::test]
    async fn each_state_of_a_directory_is_told_apart() {
        let table = [
            (ShimPhase::Claimed, "never began"),
            (ShimPhase::Launching, "its shim is gone and left no ending"),
            (ShimPhase::Running, "its shim is gone and left no ending"),
            (ShimPhase::Exited, "its shim is gone and left no ending"),
            (ShimPhase::Done, "finished"),
        ];
        for (phase, expect) in table {
            assert_eq!(found(with(&dead_shim(phase)).path()), expect, "{phase:?}");
        }
        let rebooted = ShimRecord { boot_id: [8; 16], ..dead_shim(ShimPhase::Running) };
        assert_eq!(found(with(&rebooted).path()), "the machine has been restarted since");
        let rebooted = ShimRecord { boot_id: [8; 16], ..dead_shim(ShimPhase::Done) };
        assert_eq!(found(with(&rebooted).path()), "finished");
    }

    #[tokio::test]
    async fn an_unclaimed_directory_is_claimed_once_and_stays_so() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(found(dir.path()), "unclaimed");
        assert!(!claim(dir.path(), &BOOT).unwrap());
        assert_eq!(found(dir.path()), "never began");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left lying about");
    }

    #[tokio::test]
    async fn a_directory_that_is_gone_or_damaged_is_said_to_be() {
        assert_eq!(found(Path::new("/nonexistent/brigade")), "vanished");
        let dir = with(&dead_shim(ShimPhase::Running));
        let file = File::options().write(true).open(dir.path().join(CLAIM)).unwrap();
        file.write_all_at(b"x", 100).unwrap();
        assert_eq!(found(dir.path()), "the record is damaged");
        file.set_len(300).unwrap();
        assert_eq!(found(dir.path()), "the record is cut short");
    }
}
