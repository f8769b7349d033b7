//! What became of a command whose runtime is gone.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::handle::Shim;
use crate::shim::layout::CLAIM;
use crate::shim::record::{Claimer, Phase, ProcessId, Record};

/// What there is of an execution.
#[derive(Debug)]
pub enum Found {
    /// Its shim lives and goes on; so does the command, unless the record says otherwise.
    Alive(Shim),
    /// The command ended and the shim finished its work.
    Finished(Record),
    /// It was never executed and will not be: the record says so.
    NeverBegan,
    /// There was no claim, and now it is ours: nothing will be executed. Nothing was, either, unless
    /// somebody took the claim away.
    Unclaimed,
    /// The shim is gone without having finished. What the command left may still be there.
    Abandoned { record: Option<Record>, evidence: String },
    /// There is no directory. Whether it was ever executed cannot be told from here.
    Vanished,
}

/// Looks, and makes sure that what was not executed will not be.
pub fn find(dir: &Path, boot: &[u8; 16]) -> io::Result<Found> {
    if !dir.is_dir() {
        return Ok(Found::Vanished);
    }
    if claim(dir, boot)? {
        return Ok(Found::Unclaimed);
    }
    let file = match File::open(dir.join(CLAIM)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Vanished),
        Err(error) => return Err(error),
    };
    let record = match Record::read_from(&file) {
        Ok(record) => record,
        Err(error) => return Ok(Found::Abandoned { record: None, evidence: error.to_string() }),
    };
    if record.claimer == Claimer::Runtime {
        return Ok(Found::NeverBegan);
    }
    let same_boot = record.boot == *boot;
    if same_boot && let Some(shim) = Shim::of_found(record.shim, file.try_clone()?)? {
        return Ok(Found::Alive(shim));
    }
    // It may have gone on between the two looks.
    let record = Record::read_from(&file)?;
    Ok(match record.phase {
        Phase::Done => Found::Finished(record),
        Phase::Claimed if same_boot => Found::NeverBegan,
        _ if same_boot => abandoned(record, "its shim is gone and left no ending"),
        _ => abandoned(record, "the machine has been restarted since"),
    })
}

fn abandoned(record: Record, evidence: &str) -> Found {
    Found::Abandoned { record: Some(record), evidence: evidence.to_owned() }
}

/// Tries to win the claim for the runtime. A shim that comes later does nothing.
pub fn claim(dir: &Path, boot: &[u8; 16]) -> io::Result<bool> {
    let claim = dir.join(CLAIM);
    if claim.exists() {
        return Ok(false);
    }
    let mine = dir.join(format!("{CLAIM}.{}", std::process::id()));
    let nobody = ProcessId { pid: std::process::id(), start: 0 };
    let written = fs::write(&mine, Record::new(Claimer::Runtime, *boot, nobody, 0).encode());
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

    fn with(record: &Record) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(CLAIM), record.encode()).unwrap();
        dir
    }

    /// A process id that nobody has.
    fn dead_shim(phase: Phase) -> Record {
        let id = ProcessId { pid: 1, start: u64::MAX };
        Record { phase, ..Record::new(Claimer::Shim, BOOT, id, 0) }
    }

    fn found(dir: &Path) -> String {
        match find(dir, &BOOT).unwrap() {
            Found::Alive(_) => "alive".into(),
            Found::Finished(_) => "finished".into(),
            Found::NeverBegan => "never began".into(),
            Found::Unclaimed => "unclaimed".into(),
            Found::Abandoned { evidence, .. } => evidence,
            Found::Vanished => "vanished".into(),
        }
    }

    #[tokio::test]
    async fn each_state_of_a_directory_is_told_apart() {
        let table = [
            (Phase::Claimed, "never began"),
            (Phase::Launching, "its shim is gone and left no ending"),
            (Phase::Running, "its shim is gone and left no ending"),
            (Phase::Exited, "its shim is gone and left no ending"),
            (Phase::Done, "finished"),
        ];
        for (phase, expect) in table {
            assert_eq!(found(with(&dead_shim(phase)).path()), expect, "{phase:?}");
        }
        let rebooted = Record { boot: [8; 16], ..dead_shim(Phase::Running) };
        assert_eq!(found(with(&rebooted).path()), "the machine has been restarted since");
        let rebooted = Record { boot: [8; 16], ..dead_shim(Phase::Done) };
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
        let dir = with(&dead_shim(Phase::Running));
        let file = File::options().write(true).open(dir.path().join(CLAIM)).unwrap();
        file.write_all_at(b"x", 100).unwrap();
        assert_eq!(found(dir.path()), "the record is damaged");
        file.set_len(300).unwrap();
        assert_eq!(found(dir.path()), "the record is cut short");
    }
}
