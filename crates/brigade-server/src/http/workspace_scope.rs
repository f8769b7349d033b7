//! The directories that a client's token may name.

use std::fs::canonicalize;
use std::io::Error;
use std::path::{Component, Path, PathBuf};

use brigade_model::refusal::Refusal;
use brigade_runtime::Session;

/// The workspace of a session, which its clients do not leave.
#[derive(Clone, Debug)]
pub(crate) struct WorkspaceScope {
    /// `None` for a session with a name that is not a directory. Its clients may name none.
    root: Option<PathBuf>,
}

impl WorkspaceScope {
    pub(crate) fn of(session: &Session) -> Self {
        let name = session.row().name;
        let root = Path::new(name.as_str());
        Self { root: root.is_absolute().then(|| root.to_owned()) }
    }

    /// Returns a path without links, or refuses one that is outside of the workspace. Callers use the
    /// returned path, so that a link that changes later leads nowhere else.
    pub(crate) async fn restrict(&self, path: String) -> Result<String, Refusal> {
        let root = self.root.clone().ok_or_else(no_workspace)?;
        let restricted = tokio::task::spawn_blocking(move || restrict_path(&root, &path));
        restricted.await.map_err(|error| Refusal::internal(error.to_string()))?
    }

    pub(crate) async fn restrict_all(&self, paths: Vec<String>) -> Result<Vec<String>, Refusal> {
        let mut restricted = Vec::with_capacity(paths.len());
        for path in paths {
            restricted.push(self.restrict(path).await?);
        }
        Ok(restricted)
    }
}

/// Refuses the directories of a client whose session is not that of a directory: any directory would
/// be writable in its sandbox.
pub(crate) fn no_workspace() -> Refusal {
    Refusal::forbidden(
        "this session is not that of a directory, so a client's token starts no processes and agents \
         in it",
    )
}

/// Returns the path without links, if it is in the workspace. The refusal of any other path is the
/// same whether it exists or not.
pub(crate) fn restrict_path(root: &Path, path: &str) -> Result<String, Refusal> {
    let outside = || {
        Refusal::forbidden(format!(
            "{path} is outside of the session's workspace, which a client's token may not leave"
        ))
    };
    let invalid =
        |path: &Path, error: &Error| Refusal::invalid(format!("{}: {error}", path.display()));
    let root = canonicalize(root).map_err(|error| invalid(root, &error))?;
    let path = Path::new(path);
    let found = match canonicalize(path) {
        Ok(found) if found.starts_with(&root) => found,
        Ok(_) => return Err(outside()),
        Err(error) if is_within(&root, path) => return Err(invalid(path, &error)),
        Err(_) => return Err(outside()),
    };
    let text = found.into_os_string().into_string();
    text.map_err(|_| Refusal::invalid("the path is not UTF-8"))
}

/// Returns true if a path that cannot be resolved is one of the workspace: its nearest directory that
/// exists is there. For other paths, an answer must not show whether there is such a file.
fn is_within(root: &Path, path: &Path) -> bool {
    if path.components().any(|part| part == Component::ParentDir) {
        return false;
    }
    for ancestor in path.ancestors() {
        match canonicalize(ancestor) {
            Ok(found) => return found.starts_with(root),
            // A link that leads nowhere, or a directory that may not be read.
            Err(_) if ancestor.symlink_metadata().is_ok() => return false,
            Err(_) => {}
        }
    }
    false
}

/// Returns a directory that the server can read. The refusal of any other path is the same: a caller
/// that sees everything in Brigade need not learn what is on the disk.
pub(crate) async fn find_directory(path: String) -> Result<PathBuf, Refusal> {
    if !Path::new(&path).is_absolute() {
        return Err(Refusal::invalid(format!("{path:?} is not an absolute path")));
    }
    let found = tokio::task::spawn_blocking(move || {
        let directory = Path::new(&path);
        match std::fs::read_dir(directory).and_then(|_| canonicalize(directory)) {
            Ok(directory) => Ok(directory),
            Err(_) => {
                let text = format!("{path:?} is not a directory that the server can read");
                Err(Refusal::invalid(text))
            }
        }
    });
    found.await.map_err(|error| Refusal::internal(error.to_string()))?
}

#[cfg(test)]
mod tests {
    use brigade_model::refusal::RefusalKind;

    use super::*;

    #[test]
    fn a_client_does_not_leave_the_workspace() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path().canonicalize().expect("a path");
        let workspace = root.join("work");
        std::fs::create_dir_all(workspace.join("src")).expect("a directory");
        std::os::unix::fs::symlink(&root, workspace.join("out")).expect("a link");
        let nowhere = root.join("missing");
        std::os::unix::fs::symlink(nowhere, workspace.join("dangling")).expect("a link");
        let restrict =
            |path: &str| restrict_path(&workspace, root.join(path).to_str().expect("UTF-8"));
        let inside = workspace.join("src").to_str().expect("UTF-8").to_owned();
        assert_eq!(restrict("work/src/../src"), Ok(inside));
        let outside = [
            "",
            "work/out",
            "work/src/../..",
            "/",
            "missing",
            "missing/work",
            "work/out/missing",
            "work/dangling",
            "work/dangling/missing",
            "work/src/../../missing",
        ];
        for outside in outside {
            let refusal = restrict(outside).expect_err("a refusal");
            assert_eq!(refusal.kind, RefusalKind::Forbidden, "{outside}");
        }
        std::fs::write(root.join("file"), "").expect("a file");
        for outside in ["missing", "work/out/missing", "work/out/file/x", "work/dangling", "x/y"] {
            let refusal = restrict(outside).expect_err("a refusal");
            assert_eq!(refusal.kind, RefusalKind::Forbidden, "it may be missing: {outside}");
        }
        for missing in ["work/missing", "work/src/a/b"] {
            let refusal = restrict(missing).expect_err("a refusal");
            assert_eq!(refusal.kind, RefusalKind::Invalid, "{missing}");
        }
    }
}
