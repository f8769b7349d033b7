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

pub(crate) fn restrict_path(root: &Path, path: &str) -> Result<String, Refusal> {
    let resolve = |path: &Path| {
        std::fs::canonicalize(path)
            .map_err(|error| Refusal::invalid(format!("{}: {error}", path.display())))
    };
    let found = resolve(Path::new(path))?;
    if !found.starts_with(resolve(root)?) {
        return Err(Refusal::forbidden(format!(
            "{path} is outside of the session's workspace, which a client's token may not leave"
        )));
    }
    let text = found.into_os_string().into_string();
    text.map_err(|_| Refusal::invalid("the path is not UTF-8"))
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
        let missing = restrict("work/missing").expect_err("a refusal");
        assert_eq!(missing.kind, RefusalKind::Invalid);
    }
}
