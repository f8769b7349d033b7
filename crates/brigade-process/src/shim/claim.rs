//! The right to execute: the file `claim`, which only one process can create.

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

/// The record of a shim that won the claim, and its file.
///
/// The file stays locked until the shim exits. That is the portable sign of life.
#[derive(Debug)]
pub(super) struct Claim {
    file: File,
    pub(super) record: ShimRecord,
}

impl Claim {
    /// Takes the claim. Returns `None` if it is taken or the directory is gone: then nothing must
    /// be executed.
    pub(super) fn take(args: &ShimArgs, shim: ProcessId) -> Option<Self> {
        let record = ShimRecord::new(Claimer::Shim, args.boot_id, shim, args.output_cap);
        let draft = args.directory.join(format!("claim.{}", shim.pid));
        let taken = (|| -> io::Result<File> {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create_new(true).mode(0o600).open(&draft)?;
            record.write_to(&file)?;
            file.lock()?;
            fs::hard_link(&draft, args.directory.join(layout::CLAIM))?;
            Ok(file)
        })();
        // This also removes a draft of a killed shim with the same pid. The runtime can then start
        // another shim.
        let _ = fs::remove_file(&draft);
        Some(Self { file: taken.ok()?, record })
    }

    /// Returns true if the directory was removed. Returns false if the file system does not report
    /// it.
    pub(super) fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
    }

    /// Overwrites the record. Most file systems reserved its space when it was claimed.
    pub(super) fn try_write(&self) -> io::Result<()> {
        self.record.write_to(&self.file)
    }

    /// Overwrites the record and ignores errors, because the next write repeats the data. With a
    /// broken disk the pipes are still drained.
    pub(super) fn write(&self) {
        let _ = self.try_write();
    }

    /// Overwrites the record for the last time, with retries.
    pub(super) fn write_with_retries(&self) {
        for _ in 0..FINAL_WRITE_TRIES {
            if self.try_write().is_ok() {
                return;
            }
            thread::sleep(BETWEEN_TRIES);
        }
    }
}
