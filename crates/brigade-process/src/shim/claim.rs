//! Who may execute: the one whose record got the name `claim`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::thread;
use std::time::Duration;

use super::layout;
use super::record::{Claimer, ProcessId, ShimRecord};
use super::shim_args::ShimArgs;

const FINAL_WRITE_TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// The record of a shim that won, and the file it is kept in.
///
/// The file stays locked as long as the shim lives, which is the portable sign of life.
#[derive(Debug)]
pub(super) struct Claim {
    file: File,
    pub(super) record: ShimRecord,
}

impl Claim {
    /// None when somebody else has claimed the directory, or it is gone: nothing is to be executed.
    pub(super) fn take(orders: &ShimArgs, shim: ProcessId) -> Option<Self> {
        let record = ShimRecord::new(Claimer::Shim, orders.boot_id, shim, orders.output_cap);
        let draft = orders.directory.join(format!("claim.{}", shim.pid));
        let taken = (|| -> io::Result<File> {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).mode(0o600).open(&draft)?;
            record.write_to(&file)?;
            file.lock()?;
            fs::hard_link(&draft, orders.directory.join(layout::CLAIM))?;
            Ok(file)
        })();
        // A draft that lies there from a killed shim with the same pid is removed as well; the
        // runtime is then free to start another shim.
        let _ = fs::remove_file(&draft);
        Some(Self { file: taken.ok()?, record })
    }

    /// Whether nobody can find the record any more: its directory was removed. A file system that does not
    /// tell is taken to have it.
    pub(super) fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.nlink() == 0)
    }

    /// Overwrites the record. Most file systems have the space for it since it was claimed.
    pub(super) fn try_write(&self) -> io::Result<()> {
        self.record.write_to(&self.file)
    }

    /// The same, where the next write tells as much: on a broken disk the command still deserves to
    /// have its pipes drained.
    pub(super) fn write(&self) {
        let _ = self.try_write();
    }

    /// The same, where nothing follows that would tell: tried for a while.
    pub(super) fn write_with_retries(&self) {
        for _ in 0..FINAL_WRITE_TRIES {
            if self.try_write().is_ok() {
                return;
            }
            thread::sleep(BETWEEN_TRIES);
        }
    }
}
