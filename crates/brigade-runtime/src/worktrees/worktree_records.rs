//! Records of worktrees: one file each, in a directory that no task reaches.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::SystemTime;

use brigade_model::ids::{SessionId, TaskNo};
use brigade_model::worktree::Worktree;
use brigade_process::private_file::open_private;
use serde::{Deserialize, Serialize};

use super::foreign_files::alternates_file;
use crate::performer::TaskId;

/// A worktree that is planned, in use, or being removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorktreeRecord {
    #[serde(flatten)]
    pub(crate) worktree: Worktree,
    /// True since its removal has begun: it has no work, and parts of it may be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_removing: bool,
    /// True if the repository used objects of another one before the work began.
    #[serde(default = "unknown_alternates")]
    pub(crate) has_alternates: bool,
}

/// Returns the value of records of an earlier version: nothing is known, so nothing is changed.
fn unknown_alternates() -> bool {
    true
}

/// The records of a runtime.
#[derive(Debug)]
pub(crate) struct WorktreeRecords {
    pub(crate) directory: PathBuf,
}

impl WorktreeRecords {
    fn path(&self, task: TaskId) -> PathBuf {
        self.directory.join(format!("{}.{}.json", task.session, task.no))
    }

    pub(crate) fn read(&self, task: TaskId) -> Option<WorktreeRecord> {
        let text = fs::read(self.path(task)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Returns the time at which the record was written: no work began earlier.
    pub(crate) fn written_at(&self, task: TaskId) -> Option<SystemTime> {
        fs::metadata(self.path(task)).ok()?.modified().ok()
    }

    /// Writes the record of a worktree before work begins in it, whole or not at all.
    pub(crate) fn write(&self, task: TaskId, worktree: &Worktree) -> io::Result<()> {
        let alternates = alternates_file(&worktree.repository);
        let has_alternates = fs::symlink_metadata(alternates).is_ok();
        let worktree = worktree.clone();
        self.write_record(task, &WorktreeRecord { worktree, is_removing: false, has_alternates })
    }

    /// Writes that the removal of a worktree begins.
    pub(crate) fn write_removal(&self, task: TaskId, worktree: &Worktree) -> io::Result<()> {
        let worktree = worktree.clone();
        let record = WorktreeRecord { worktree, is_removing: true, has_alternates: true };
        self.write_record(task, &record)
    }

    fn write_record(&self, task: TaskId, record: &WorktreeRecord) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
        let path = self.path(task);
        let unfinished = path.with_extension("new");
        let mut file = open_private(&unfinished, File::options().write(true).truncate(true))?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(&unfinished, &path)?;
        File::open(&self.directory)?.sync_all()
    }

    pub(crate) fn remove(&self, task: TaskId) {
        match fs::remove_file(self.path(task)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "the record of a worktree could not be removed");
            }
            _ => {}
        }
    }

    /// Returns the tasks whose worktrees are recorded.
    pub(crate) fn tasks(&self) -> Vec<TaskId> {
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let tasks = names.filter_map(|name| {
            let mut parts = name.strip_suffix(".json")?.split('.');
            let session = SessionId::from_uuid(parts.next()?.parse().ok()?);
            Some(TaskId { session, no: TaskNo::new(parts.next()?.parse().ok()?)? })
        });
        tasks.collect()
    }
}
