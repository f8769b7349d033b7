//! Moves work into a worktree: its directory and its sandbox.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_model::refusal::Refusal;
use brigade_model::sandbox::{Sandbox, SandboxLayer};
use brigade_model::task::TaskRow;
use brigade_model::work::{ProcessWork, Work};
use brigade_model::worktree::{Worktree, WorktreeState};
#[cfg(feature = "agents")]
use brigade_model::{json::Json, work::AgentWork};

use super::foreign_files::{alternates_file, check_part};
use super::lifecycle::{BRANCH_DIR_HOLD, branch_dirs};
#[cfg(feature = "agents")]
use crate::agents::Blueprint;

/// Returns the work of a task as it is performed, in its worktree if it has one. `None` if it is
/// performed as it was requested.
pub(crate) fn performed_work(row: &TaskRow) -> Result<Option<Work>, Refusal> {
    let worktree = row.worktree().filter(|worktree| worktree.state == WorktreeState::InUse);
    worktree.map(|worktree| place_work(&row.spec.work, worktree)).transpose()
}

/// Returns the work with the worktree as its directory. Its sandbox has the worktree in place of
/// the directory for which it was requested.
pub(crate) fn place_work(work: &Work, worktree: &Worktree) -> Result<Work, Refusal> {
    let cwd: Option<Arc<str>> = Some(worktree.directory().into());
    match work {
        Work::Process(process) => {
            let sandbox = process.sandbox.as_deref();
            let sandbox = sandbox.map(|sandbox| Box::new(place_sandbox(sandbox, worktree)));
            Ok(Work::Process(ProcessWork { cwd, sandbox, ..process.clone() }))
        }
        #[cfg(feature = "agents")]
        Work::Agent(agent) => {
            let mut blueprint: Blueprint = agent.blueprint.decode()?;
            blueprint.directory.clone_from(&cwd);
            blueprint.sandbox = place_sandbox(&blueprint.sandbox, worktree);
            let blueprint = Json::of(&blueprint)?;
            Ok(Work::Agent(AgentWork { cwd, blueprint, ..agent.clone() }))
        }
        _ => Err(Refusal::invalid("only processes and agents have a worktree")),
    }
}

fn place_sandbox(sandbox: &Sandbox, worktree: &Worktree) -> Sandbox {
    let layers = sandbox.layers.iter().map(|layer| place_layer(layer, worktree)).collect();
    Sandbox { layers, ..sandbox.clone() }
}

/// Returns a layer with the worktree in place of the original directory, and with the parts of the
/// repository that a commit needs. Its hooks and its configuration can only be read: git would
/// execute them outside of the sandbox. Git of others would follow links in the shared directories,
/// and wait for pipes, so the task makes none there.
fn place_layer(layer: &SandboxLayer, worktree: &Worktree) -> SandboxLayer {
    let mut write: Vec<Arc<str>> =
        layer.write.iter().filter(|path| **path != worktree.origin).cloned().collect();
    write.insert(0, worktree.path.clone());
    let mut write_plain = layer.write_plain.clone();
    for directory in writable_git_dirs(worktree) {
        write_plain.extend(directory.to_str().map(Arc::from));
    }
    let mut read = layer.read.clone();
    read.push(worktree.repository.clone());
    SandboxLayer { read, write, write_plain, ..layer.clone() }
}

/// Refuses a sandbox for a repository with alternates. Files of another repository would be checked
/// out, which the sandbox hides, and a repository can name any other one.
pub(crate) fn check_alternates(work: &Work, worktree: &Worktree) -> Result<(), Refusal> {
    let is_sandboxed = is_sandboxed(work)?;
    let alternates = alternates_file(&worktree.repository);
    if is_sandboxed && fs::symlink_metadata(&alternates).is_ok() {
        return Err(Refusal::invalid(format!(
            "a sandboxed task has no worktree of a repository that uses objects of another one: {}",
            alternates.display()
        )));
    }
    Ok(())
}

/// Returns true if a sandbox restricts the files of the work.
pub(crate) fn is_sandboxed(work: &Work) -> Result<bool, Refusal> {
    match work {
        Work::Process(process) => {
            Ok(process.sandbox.as_deref().is_some_and(|sandbox| !sandbox.layers.is_empty()))
        }
        #[cfg(feature = "agents")]
        Work::Agent(agent) => {
            let blueprint: Blueprint = agent.blueprint.decode()?;
            Ok(!blueprint.sandbox.layers.is_empty())
        }
        _ => Ok(false),
    }
}

/// Returns the directories of the repository that a commit on the task's branch writes.
fn writable_git_dirs(worktree: &Worktree) -> Vec<PathBuf> {
    let objects = Path::new(&*worktree.repository).join("objects");
    let mut directories = vec![objects];
    directories.extend(branch_dirs(worktree));
    directories.push(PathBuf::from(&*worktree.git_dir));
    directories
}

/// Creates the directories that a sandbox in the worktree names. Git removes empty ones. Refuses
/// those that a link leads out of the repository.
pub(crate) fn create_git_dirs(worktree: &Worktree) -> Result<(), Refusal> {
    let repository = Path::new(&*worktree.repository);
    for directory in writable_git_dirs(worktree) {
        let refused = |problem: &str| {
            let shown = directory.display();
            Refusal::unavailable(format!("the worktree cannot use {shown}: {problem}"))
        };
        let Ok(part) = directory.strip_prefix(repository) else {
            return Err(refused("it is not in the repository"));
        };
        check_part(repository, part).map_err(|problem| refused(&problem))?;
        fs::create_dir_all(&directory).map_err(|error| refused(&error.to_string()))?;
    }
    for directory in branch_dirs(worktree) {
        let hold = directory.join(BRANCH_DIR_HOLD);
        if let Err(error) = fs::create_dir_all(&hold) {
            tracing::warn!(%error, path = %hold.display(), "git may remove a branch folder");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_has_the_worktree_in_place_of_the_original_directory() {
        let worktree = Worktree {
            path: "/state/worktrees/s/3".into(),
            branch: "brigade/soup/3/1".into(),
            base: "abc".into(),
            repository: "/soup/.git".into(),
            git_dir: "/soup/.git/worktrees/3".into(),
            origin: "/soup/src".into(),
            subdirectory: "src".into(),
            serial: 1,
            state: WorktreeState::InUse,
        };
        let layer = SandboxLayer {
            read: vec!["/data".into()],
            write: vec!["/soup/src".into(), "/cache".into()],
            ..SandboxLayer::default()
        };
        let placed = place_layer(&layer, &worktree);
        assert_eq!(*placed.write, ["/state/worktrees/s/3".into(), "/cache".into()]);
        let plain: Vec<&str> = placed.write_plain.iter().map(|path| &**path).collect();
        assert_eq!(
            plain,
            [
                "/soup/.git/objects",
                "/soup/.git/refs/heads/brigade/soup/3",
                "/soup/.git/logs/refs/heads/brigade/soup/3",
                "/soup/.git/worktrees/3",
            ]
        );
        let earlier = Worktree { branch: "brigade/soup/3".into(), ..worktree.clone() };
        let placed_earlier = place_layer(&layer, &earlier);
        assert!(!placed_earlier.write_plain.iter().any(|path| path.contains("/refs/")));
        assert_eq!(*placed.read, ["/data".into(), "/soup/.git".into()]);
        assert_eq!(worktree.directory(), "/state/worktrees/s/3/src");
    }
}
