//! The directories that a client's token may name.

use std::path::{Path, PathBuf};

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
    let root = std::fs::canonicalize(root)
        .map_err(|error| Refusal::invalid(format!("{}: {error}", root.display())))?;
    let found = match std::fs::canonicalize(path) {
        Ok(found) => found,
        Err(error) => {
            let is_inside = is_missing_inside(&root, Path::new(path));
            let missing = || Refusal::invalid(format!("{path}: {error}"));
            return Err(if is_inside { missing() } else { outside() });
        }
    };
    if !found.starts_with(&root) {
        return Err(outside());
    }
    let text = found.into_os_string().into_string();
    text.map_err(|_| Refusal::invalid("the path is not UTF-8"))
}

/// Returns true if the first part of a path that cannot be resolved would be in the workspace. A link
/// may lead out of it.
fn is_missing_inside(root: &Path, path: &Path) -> bool {
    let mut ancestors = path.ancestors();
    let mut unresolved = ancestors.next();
    for ancestor in ancestors {
        if let Ok(resolved) = std::fs::canonicalize(ancestor) {
            let is_link = unresolved.is_some_and(|path| std::fs::symlink_metadata(path).is_ok());
            return resolved.starts_with(root) && !is_link;
        }
        unresolved = Some(ancestor);
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
        match std::fs::read_dir(directory).and_then(|_| std::fs::canonicalize(directory)) {
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
        let restrict =
            |path: &str| restrict_path(&workspace, root.join(path).to_str().expect("UTF-8"));
        let inside = workspace.join("src").to_str().expect("UTF-8").to_owned();
        assert_eq!(restrict("work/src/../src"), Ok(inside));
        for outside in ["", "work/out", "work/src/../..", "/"] {
            let refusal = restrict(outside).expect_err("a refusal");
            assert_eq!(refusal.kind, RefusalKind::Forbidden, "{outside}");
        }
        std::fs::write(root.join("file"), "").expect("a file");
        std::os::unix::fs::symlink(root.join("missing"), workspace.join("dangling"))
            .expect("a link");
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
