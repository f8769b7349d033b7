//! The worktrees of a runtime: each is made before its task starts and released after it ended.
//!
//! A record file for each worktree is written before git makes it, and removed after its end is
//! stored. So a runtime that was killed anywhere in between finds it at the next start.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use brigade_model::action::StartAction;
use brigade_model::command::{AttemptReport, Command, ReleaseWorktreeCommand};
use brigade_model::ids::SessionId;
use brigade_model::name::SessionName;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::spec::TaskSpec;
use brigade_model::worktree::{Worktree, WorktreeState};
use brigade_store::{Store, TaskQuery};
use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;

use super::clean_filters;
use super::git::{Git, GitError};
use super::git_files;
use super::lifecycle::{self, EndedTask, WorktreeNames};
use super::placement;
use super::repository::BaseRepository;
use super::repository_view::RepositoryViews;
use super::worktree_records::WorktreeRecords;
use crate::error::store_refusal;
use crate::performer::{Reporter, TaskId, retry_while_unavailable};
use crate::runtime::submit;

/// The longest part of a session's name in a branch.
const BRANCH_NAME_CHARS: usize = 40;

/// The most plans for a worktree, if others take the planned names.
const CLAIM_TRIES: u32 = 10;

/// The service that makes and releases worktrees, one per state directory.
#[derive(Debug)]
pub(crate) struct WorktreeService {
    /// The directory of all worktrees, without links.
    root: PathBuf,
    /// Their records. Agents reach the worktrees, but not these.
    records: WorktreeRecords,
    views: RepositoryViews,
    /// One lock for each task whose worktree is being made or released.
    locks: Mutex<HashMap<TaskId, Arc<tokio::sync::Mutex<()>>>>,
}

/// A task that needs its worktree.
#[derive(Clone, Debug)]
struct WorktreeRequest {
    task: TaskId,
    session: SessionName,
    cwd: PathBuf,
    /// The worktree of an earlier attempt or run.
    stored: Option<Worktree>,
}

impl WorktreeRequest {
    fn has_stored(&self, worktree: &Worktree) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.serial == worktree.serial)
    }

    /// Returns the reason of the lock, which git shows to people.
    fn lock_reason(&self) -> String {
        format!("Brigade task {} of {}", self.task.no, self.session)
    }
}

impl WorktreeService {
    pub(crate) fn new(state_dir: &Path, shutdown_token: CancellationToken) -> io::Result<Self> {
        let state_dir = state_dir.canonicalize()?;
        let root = state_dir.join("worktrees");
        let records = WorktreeRecords { directory: state_dir.join("worktree_records") };
        let views = state_dir.join("repository_views");
        let views = RepositoryViews::new(views, Git { shutdown_token })?;
        Ok(Self { root, records, views, locks: Mutex::default() })
    }

    /// Returns the start of an attempt in the task's worktree, which is made and stored first.
    pub(crate) async fn place_start(
        self: &Arc<Self>,
        start: StartAction,
        reporter: &Reporter,
    ) -> Result<StartAction, Refusal> {
        if !start.spec.has_worktree() {
            return Ok(start);
        }
        let worktree = self.acquire(&start, reporter).await?;
        placement::check_alternates(&start.spec.work, &worktree)?;
        let work = placement::place_work(&start.spec.work, &worktree)?;
        let spec = Arc::new(TaskSpec { work, ..TaskSpec::clone(&start.spec) });
        Ok(StartAction { spec, ..start })
    }

    /// Finds or makes the worktree of an attempt, and stores it with the task.
    async fn acquire(
        self: &Arc<Self>,
        start: &StartAction,
        reporter: &Reporter,
    ) -> Result<Worktree, Refusal> {
        let Some(cwd) = start.spec.work.cwd() else { return Err(no_directory()) };
        let request = WorktreeRequest {
            task: reporter.task,
            session: start.session.clone(),
            cwd: cwd.into(),
            stored: start.worktree.as_deref().cloned(),
        };
        let in_use = self.lock(request.task).await;
        let service = self.clone();
        let stored = request.stored.clone();
        let (found, _in_use) = run_locked(in_use, move || service.find_or_make(&request)).await?;
        let worktree = found?;
        if stored.as_ref() == Some(&worktree) {
            return Ok(worktree);
        }
        let report = || reporter.report(AttemptReport::Worktree(Box::new(worktree.clone())));
        let reported = retry_while_unavailable(reporter, report).await;
        if let Err(refusal) = reported {
            let is_refused =
                !matches!(refusal.kind, RefusalKind::Unavailable | RefusalKind::Unknown);
            if is_refused && stored.is_none_or(|stored| stored.serial != worktree.serial) {
                // The task ended meanwhile and will never work in it.
                let service = self.clone();
                let task = reporter.task;
                let _ = tokio::task::spawn_blocking(move || service.discard_recorded(task)).await;
            }
            return Err(refusal);
        }
        Ok(worktree)
    }

    fn find_or_make(&self, request: &WorktreeRequest) -> Result<Worktree, Refusal> {
        let task = request.task;
        let recorded = self.records.read(task);
        let is_removing = recorded.as_ref().is_some_and(|recorded| recorded.is_removing);
        if let Some(stored) = &request.stored
            && !is_removing
            && stored.state != WorktreeState::Removed
            && lifecycle::is_usable(stored)
        {
            let worktree = Worktree { state: WorktreeState::InUse, ..stored.clone() };
            if stored.state == WorktreeState::Kept {
                self.records.write(task, &worktree).map_err(|error| record_problem(&error))?;
            }
            // Also one that is in use: a runtime that was killed may have unlocked it.
            let locked = git_files::lock_worktree(&worktree, &request.lock_reason());
            locked.map_err(|error| lock_problem(&error))?;
            lifecycle::prepare_directory(&worktree)?;
            placement::create_git_dirs(&worktree)?;
            return Ok(worktree);
        }
        // A runtime was killed before it stored this one, so no work was started in it, or while it
        // removed it. If it cannot be removed, its record must stay.
        if let Some(recorded) = recorded
            && (is_removing || !request.has_stored(&recorded.worktree))
        {
            self.discard(task, &recorded.worktree).map_err(|error| discard_problem(&error))?;
        }
        let base = BaseRepository::find(self.views.git(), &request.cwd)?;
        clean_filters::check_filters(&self.views, &base)?;
        let folder = self.session_dir(task.session).join(task.no.to_string());
        let names = WorktreeNames {
            folder,
            branch_folder: format!(
                "brigade/{}/{}",
                branch_part(task.session, &request.session),
                task.no
            ),
            first_serial: request.stored.as_ref().map_or(1, |stored| stored.serial + 1),
        };
        let planned = self.claim_names(task, &base, &names)?;
        let made = lifecycle::make_worktree(
            &self.views,
            planned,
            base.sparse.as_ref(),
            &request.lock_reason(),
        );
        let made = made.and_then(|made| {
            self.records.write(task, &made).map_err(|error| record_problem(&error))?;
            placement::create_git_dirs(&made)?;
            Ok(made)
        });
        made.inspect_err(|_| self.discard_recorded(task))
    }

    /// Records a worktree to make, under names that nobody else takes from now on.
    fn claim_names(
        &self,
        task: TaskId,
        base: &BaseRepository,
        names: &WorktreeNames,
    ) -> Result<Worktree, Refusal> {
        for _ in 0..CLAIM_TRIES {
            let planned = lifecycle::plan_worktree(&self.views, base, names)?;
            self.records.write(task, &planned).map_err(|error| record_problem(&error))?;
            match lifecycle::claim_branch_folder(&planned) {
                Ok(true) => return Ok(planned),
                Ok(false) => {}
                Err(refusal) => {
                    self.records.remove(task);
                    return Err(refusal);
                }
            }
        }
        self.records.remove(task);
        Err(Refusal::unavailable("no worktree can be made: others take its names"))
    }

    /// Removes a recorded worktree in which no work was started.
    fn discard_recorded(&self, task: TaskId) {
        let Some(recorded) = self.records.read(task) else { return };
        if let Err(error) = self.discard(task, &recorded.worktree) {
            let path = &recorded.worktree.path;
            tracing::warn!(?error, %path, "a worktree could not be removed");
        }
    }

    fn discard(&self, task: TaskId, worktree: &Worktree) -> Result<(), GitError> {
        lifecycle::discard_worktree(&self.views, worktree)?;
        self.records.remove(task);
        Ok(())
    }

    /// Releases a worktree, or finishes a removal that was interrupted.
    fn release_files(
        &self,
        task: TaskId,
        worktree: &Worktree,
        is_sandboxed: bool,
    ) -> Result<WorktreeState, GitError> {
        let recorded = self.records.read(task);
        let recorded = recorded.filter(|record| record.worktree.serial == worktree.serial);
        if recorded.as_ref().is_some_and(|record| record.is_removing) {
            lifecycle::discard_worktree(&self.views, worktree)?;
            return Ok(WorktreeState::Removed);
        }
        let had_alternates = recorded.is_none_or(|record| record.has_alternates);
        let ended = EndedTask {
            since: self.records.written_at(task),
            has_made_alternates: is_sandboxed && !had_alternates,
            store_removal: &|| self.records.write_removal(task, worktree),
        };
        lifecycle::release_worktree(&self.views, worktree, &ended)
    }

    /// Releases the worktree of a task that has ended, and stores whether it was kept.
    pub(crate) async fn release(
        self: &Arc<Self>,
        task: TaskId,
        store: &Arc<dyn Store>,
        reporter: &Reporter,
    ) -> Result<(), Refusal> {
        let in_use = self.lock(task).await;
        let row = store.task(task.session, task.no).await.map_err(|error| store_refusal(&error))?;
        let recorded = self.records.read(task).map(|record| record.worktree);
        let stored = match &row {
            Some(row) if row.is_alive() || row.ended().is_some_and(|end| end.lingering) => {
                return Ok(());
            }
            Some(row) => row.worktree().cloned(),
            // The task is pruned, and its work may still be there.
            None => recorded.clone().filter(|recorded| !recorded.git_dir.is_empty()),
        };
        let service = self.clone();
        let Some(worktree) = stored else {
            let (_, _in_use) = run_locked(in_use, move || service.discard_recorded(task)).await?;
            return Ok(());
        };
        if worktree.state == WorktreeState::InUse {
            if is_shared(store, task, &worktree).await? {
                return Ok(());
            }
            let released = worktree.clone();
            let work = row.as_ref().map(|row| &row.spec.work);
            let is_sandboxed = work.map(placement::is_sandboxed).transpose()?.unwrap_or(false);
            let release = move || service.release_files(task, &released, is_sandboxed);
            let (state, _in_use) = run_locked(in_use, release).await?;
            let state = state.map_err(|error| release_problem(&error))?;
            if row.is_some() {
                let command =
                    ReleaseWorktreeCommand { no: task.no, serial: worktree.serial, state };
                let command = Command::ReleaseWorktree(command);
                let sent = || submit(&reporter.inputs, task.session, command.clone());
                retry_while_unavailable(reporter, sent).await?;
            }
        }
        if recorded.is_some_and(|recorded| recorded.serial == worktree.serial) {
            self.records.remove(task);
        } else {
            self.discard_recorded(task);
        }
        Ok(())
    }

    /// Returns the tasks whose worktrees are recorded: not released yet, or not stored as released.
    pub(crate) fn recorded_tasks(&self) -> Vec<TaskId> {
        self.records.tasks()
    }

    async fn lock(&self, task: TaskId) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            locks.entry(task).or_default().clone()
        };
        lock.lock_owned().await
    }

    fn session_dir(&self, session: SessionId) -> PathBuf {
        self.root.join(session.to_string())
    }
}

/// Refuses a worktree that could not be made, before its task is spawned. May block.
pub(crate) fn check_worktree(cwd: Option<&str>) -> Result<(), Refusal> {
    let Some(cwd) = cwd else { return Err(no_directory()) };
    let git = Git { shutdown_token: CancellationToken::new() };
    BaseRepository::find(&git, Path::new(cwd)).map(|_| ())
}

fn no_directory() -> Refusal {
    Refusal::invalid("a worktree needs a working directory: set one with `cwd`")
}

fn record_problem(error: &io::Error) -> Refusal {
    Refusal::unavailable(format!("no worktree can be made: its record: {error}"))
}

fn lock_problem(error: &io::Error) -> Refusal {
    Refusal::unavailable(format!("the worktree of the task cannot be locked: {error}"))
}

fn discard_problem(error: &GitError) -> Refusal {
    error.to_refusal("no worktree can be made: an earlier one of the task could not be removed")
}

fn release_problem(error: &GitError) -> Refusal {
    error.to_refusal("a worktree could not be examined")
}

/// Returns true if another task that is alive works in the worktree, such as a kept child.
async fn is_shared(
    store: &Arc<dyn Store>,
    task: TaskId,
    worktree: &Worktree,
) -> Result<bool, Refusal> {
    let query = TaskQuery { alive_only: true, ..TaskQuery::default() };
    let alive = store.tasks(task.session, &query).await.map_err(|error| store_refusal(&error))?;
    let path = Path::new(&*worktree.path);
    let is_in = |cwd: &str| Path::new(cwd).starts_with(path);
    Ok(alive
        .iter()
        .any(|other| other.no != task.no && other.row.spec.work.cwd().is_some_and(is_in)))
}

/// Runs blocking work under a lock. The lock is held until the work is over, even if nobody waits.
async fn run_locked<T: Send + 'static>(
    in_use: OwnedMutexGuard<()>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<(T, OwnedMutexGuard<()>), Refusal> {
    let ran = tokio::task::spawn_blocking(move || (work(), in_use)).await;
    ran.map_err(|error| Refusal::internal(format!("the work on a worktree ended: {error}")))
}

/// Returns the part of a branch that names the session: its name, or the last part of a path.
fn branch_part(id: SessionId, name: &SessionName) -> String {
    let last = name.as_str().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let part: String = last
        .chars()
        .map(|letter| if plain(letter) { letter } else { '-' })
        .take(BRANCH_NAME_CHARS)
        .collect();
    match part.trim_matches('-') {
        "" => id.to_string(),
        part => part.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// A service, a repository with one commit, and a task in it.
    struct Fixture {
        _dir: tempfile::TempDir,
        service: WorktreeService,
        request: WorktreeRequest,
    }

    fn fixture() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path().join("soup");
        fs::create_dir(&cwd).unwrap();
        fs::write(cwd.join("menu"), "soup\n").unwrap();
        let git = |args: &[&str]| {
            let identity = ["-c", "user.name=Cook", "-c", "user.email=cook@example.com"];
            let mut command = std::process::Command::new("git");
            assert!(
                command.args(identity).args(args).current_dir(&cwd).status().unwrap().success()
            );
        };
        git(&["init", "-q"]);
        git(&["add", "."]);
        git(&["commit", "-q", "-m", "first"]);
        let state_dir = dir.path().join("state");
        fs::create_dir(&state_dir).unwrap();
        let service = WorktreeService::new(&state_dir, CancellationToken::new()).unwrap();
        let task = TaskId {
            session: SessionId::from_uuid(uuid::Uuid::nil()),
            no: brigade_model::ids::TaskNo::new(3).unwrap(),
        };
        let session = "kitchen".parse().unwrap();
        let request = WorktreeRequest { task, session, cwd, stored: None };
        Fixture { _dir: dir, service, request }
    }

    #[test]
    fn an_interrupted_removal_is_finished_and_never_taken_for_work() {
        let fixture = fixture();
        let service = &fixture.service;
        let task = fixture.request.task;
        for is_used_again in [false, true] {
            let made = service.find_or_make(&fixture.request).unwrap();
            let path = Path::new(&*made.path);
            // The removal came as far as one file.
            service.records.write_removal(task, &made).unwrap();
            fs::remove_file(path.join("menu")).unwrap();
            if is_used_again {
                let request =
                    WorktreeRequest { stored: Some(made.clone()), ..fixture.request.clone() };
                let next = service.find_or_make(&request).unwrap();
                assert_eq!(next.serial, made.serial + 1);
                assert!(Path::new(&*next.path).join("menu").exists());
            } else {
                let state = service.release_files(task, &made, false).unwrap();
                assert_eq!(state, WorktreeState::Removed);
                service.records.remove(task);
            }
            assert!(!path.exists() && !Path::new(&*made.git_dir).exists());
        }
    }

    #[test]
    fn a_folder_without_its_git_file_is_not_used_again() {
        let fixture = fixture();
        let made = fixture.service.find_or_make(&fixture.request).unwrap();
        assert!(lifecycle::is_usable(&made));
        fs::remove_file(Path::new(&*made.path).join(".git")).unwrap();
        assert!(!lifecycle::is_usable(&made));
    }

    #[test]
    fn the_record_of_a_worktree_that_cannot_be_removed_stays() {
        let fixture = fixture();
        let service = &fixture.service;
        let made = service.find_or_make(&fixture.request).unwrap();
        let recorded = service.records.read(fixture.request.task);
        let path = Path::new(&*made.path);
        fs::rename(path, path.with_extension("elsewhere")).unwrap();
        symlink("/", path).unwrap();
        let refused = service.find_or_make(&fixture.request).unwrap_err();
        assert!(refused.message.contains("could not be removed"), "{refused}");
        assert_eq!(service.records.read(fixture.request.task), recorded);
    }
}
