//! Who may execute: the one whose record got the name `claim`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use super::layout;
use super::orders::Orders;
use super::record::{Claimer, ProcessId, Record};

/// The record of a shim that won, and the file it is kept in.
///
/// The file stays locked as long as the shim lives, which is the portable sign of life.
#[derive(Debug)]
pub(super) struct Claim {
    file: File,
    pub(super) record: Record,
}

impl Claim {
    /// None when somebody else has claimed the directory, or it is gone: nothing is to be executed.
    pub(super) fn take(orders: &Orders, shim: ProcessId) -> Option<Self> {
        let record = Record::new(Claimer::Shim, orders.boot, shim, orders.cap);
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

    /// Overwrites the record. There is nobody to tell of a failure: the space was allocated when
    /// the record was claimed, and on a broken disk the command still deserves its pipes drained.
    pub(super) fn write(&self) {
        let _ = self.record.write_to(&self.file);
    }
}
