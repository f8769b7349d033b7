//! The directory of the file tools, and the agent's permissions in it.

use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::WRITING_TOOLS;
use crate::confined_dir::{ConfinedDir, DirEntryKind};
use crate::private_directory::PrivateDirectory;
use crate::protected_rules::ProtectedRules;
use crate::rel_path::RelPath;
use crate::render::{self, quote_name};
use brigade_agent::permission::{
    self, PermissionGrant, PermissionRefusal, PermissionRefusalReason, PermissionRules,
    PermissionVerdict, Permissions,
};
use brigade_agent::tool::{ToolError, ToolSubject};

const PATH_MAX: usize = 4_096;

/// The maximum number of links followed for one path, as in the kernel.
const LINKS_MAX: usize = 40;

/// A directory and the permissions of the agent that works in it.
///
/// A path is authorized by its normalised text (without `.` and `..`). If it goes through links,
/// its target must be allowed as well.
#[derive(Clone, Debug)]
pub struct WorkingDirectory {
    directory: Arc<Path>,
    /// The directory without links, resolved at first use.
    canonical: OnceLock<Option<PathBuf>>,
    /// The canonical path if it is fixed: a link that replaces it is not followed.
    pinned: Option<Arc<Path>>,
    permissions: Permissions,
    /// The grants one by one, for decisions that depend on rules of another tool.
    grants: Vec<Permissions>,
    protected: ProtectedRules,
    private: Arc<[PrivateDirectory]>,
}

/// The target of a requested path.
#[derive(Debug)]
pub(crate) struct LocatedPath {
    pub(crate) root: ConfinedDir,
    /// The path without links. It need not exist.
    pub(crate) name: RelPath,
}

impl WorkingDirectory {
    /// Creates it for an absolute directory, which each call opens again.
    pub fn new(directory: impl Into<PathBuf>, permissions: Permissions) -> Self {
        let grants: Vec<PermissionGrant> = permissions.clone().into();
        let protected = ProtectedRules::of(&grants);
        let alone = |grant: PermissionGrant| {
            Permissions::of(grant.by, PermissionRules::clone(&grant.rules))
        };
        let grants = grants.into_iter().map(alone).collect();
        let directory = directory.into().into();
        let canonical = OnceLock::new();
        let private = Arc::default();
        Self { directory, canonical, pinned: None, permissions, grants, protected, private }
    }

    /// Excludes directories from file tools, whatever the rules say.
    #[must_use]
    pub fn without_private(self, private: Arc<[PrivateDirectory]>) -> Self {
        Self { private, ..self }
    }

    /// Fixes the directory at its current location, for an agent whose processes could replace it
    /// by a link. Absolute paths may use either name.
    #[must_use]
    pub fn pinned_at(self, canonical: PathBuf) -> Self {
        let pinned = Some(canonical.as_path().into());
        Self { pinned, canonical: OnceLock::from(Some(canonical)), ..self }
    }

    /// Returns the path that is opened and walked.
    pub(crate) fn directory(&self) -> &Path {
        self.pinned.as_deref().unwrap_or(&self.directory)
    }

    /// Returns the subject of permission patterns. The call itself refuses a path that leads out.
    pub(crate) fn subject(&self, path: &str) -> ToolSubject {
        let path_text = self.parse_path(path);
        ToolSubject::Text(
            path_text.map_or_else(|_| path.to_owned(), |path_text| path_text.to_string()),
        )
    }

    pub(crate) fn open_root(&self) -> Result<ConfinedDir, ToolError> {
        let opened = match &self.pinned {
            Some(pinned) => ConfinedDir::open_without_links(pinned),
            None => ConfinedDir::open(&self.directory),
        };
        opened.map_err(|errno| {
            let directory = self.directory.display();
            let error = std::io::Error::from(errno);
            ToolError::new(format!("your directory {directory} cannot be used: {error}"))
        })
    }

    /// Resolves a path if it stays in the directory and the agent may use this tool on it.
    pub(crate) fn locate(&self, tool: &str, path: &str) -> Result<LocatedPath, ToolError> {
        let requested = self.parse_path(path)?;
        let root = self.open_root()?;
        let name = self.resolve_links(&root, &requested)?;
        if name != requested {
            self.check_link(tool, &requested, &name)?;
        }
        if let Some(private) = self.private_above(tool, name.as_str()) {
            return Err(private.refusal());
        }
        if WRITING_TOOLS.contains(&tool) {
            self.protected.check(tool, &name)?;
        }
        match root.has_exact_name(&name) {
            Ok(true) => (),
            Ok(false) => return Err(spelling_error(&name)),
            Err(errno) => return Err(render::errno_error(&root, &name, errno)),
        }
        Ok(LocatedPath { root, name })
    }

    /// Returns true if a tool other than `read_file` may show the content of a file. A rule against
    /// `read_file` forbids it. If no rule mentions `read_file`, the permission of the other tool
    /// suffices.
    pub(crate) fn may_show(&self, path: &str) -> bool {
        if self.private_above("read_file", path).is_some() {
            return false;
        }
        let subject =
            permission::PermissionSubject { tool: "read_file", text: Some(path), is_shell: false };
        self.grants.iter().all(|grant| match grant.check(&subject) {
            PermissionVerdict::Allowed => true,
            PermissionVerdict::Refused(PermissionRefusal {
                reason: PermissionRefusalReason::NotAllowed { allowed },
                ..
            }) => allowed.is_empty(),
            _ => false,
        })
    }

    /// Returns the private directory that contains the path, if this tool may not use it.
    fn private_above(&self, tool: &str, path: &str) -> Option<&PrivateDirectory> {
        if self.private.is_empty() {
            return None;
        }
        let path = self.canonical().unwrap_or(&self.directory).join(path);
        self.private.iter().find(|private| private.refuses(tool, &path))
    }

    /// Returns the directory without links.
    fn canonical(&self) -> Option<&Path> {
        self.canonical.get_or_init(|| self.directory.canonicalize().ok()).as_deref()
    }

    /// Returns true if a rule denies the tool for a path that it found.
    pub(crate) fn denies(&self, tool: &str, path: &str) -> bool {
        let subject = permission::PermissionSubject { tool, text: Some(path), is_shell: false };
        let denied = |verdict| {
            matches!(
                verdict,
                PermissionVerdict::Refused(PermissionRefusal {
                    reason: PermissionRefusalReason::Denied { .. },
                    ..
                })
            )
        };
        self.grants.iter().any(|grant| denied(grant.check(&subject)))
    }

    /// Parses a relative path, or an absolute one within the directory.
    fn parse_path(&self, path: &str) -> Result<RelPath, ToolError> {
        if path.trim().is_empty() {
            return Err(ToolError::new("the argument `path` is blank; `.` is your directory"));
        }
        if path.len() > PATH_MAX || path.contains('\0') {
            let problem =
                format!("the argument `path`: give {PATH_MAX} bytes at most, none of them 0");
            return Err(ToolError::new(problem));
        }
        let parsed = if path.starts_with('/') {
            self.strip_directory(path)
        } else {
            RelPath::parse(path).ok()
        };
        parsed.ok_or_else(|| {
            let directory = self.directory.display();
            let path = quote_name(path);
            ToolError::new(format!(
                "{path} is outside of your directory {directory}; give a path within it"
            ))
        })
    }

    /// Strips the directory from an absolute path.
    fn strip_directory(&self, path: &str) -> Option<RelPath> {
        let path = RelPath::parse(path).ok()?;
        let strip = |directory: &Path| {
            let mut rest = path.names();
            for part in directory.components() {
                match part {
                    Component::Normal(name) => (rest.next()? == name.to_str()?).then_some(())?,
                    Component::RootDir | Component::CurDir => (),
                    Component::ParentDir | Component::Prefix(_) => return None,
                }
            }
            Some(RelPath::from_names(rest))
        };
        strip(&self.directory).or_else(|| strip(self.canonical()?))
    }

    /// Resolves the links in a path here and not in the kernel. A link that leads out gets its own
    /// error, and the kernel then opens a path without links.
    fn resolve_links(&self, root: &ConfinedDir, requested: &RelPath) -> Result<RelPath, ToolError> {
        if matches!(root.inspect(requested), Ok(DirEntryKind::Other(_) | DirEntryKind::Missing)) {
            return Ok(requested.clone());
        }
        let mut resolved = RelPath::root();
        let mut rest: Vec<String> = requested.names().rev().map(str::to_owned).collect();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part == ".." {
                let above = resolved.split().map(|(above, _)| above);
                resolved = above.ok_or_else(|| escape_error(requested))?;
                continue;
            }
            let next = resolved.join(&part);
            let target = match root.inspect(&next) {
                Ok(DirEntryKind::Link(target)) => target,
                Ok(DirEntryKind::Other(_)) => {
                    resolved = next;
                    continue;
                }
                Ok(DirEntryKind::Missing) if rest.iter().all(|part| part != "..") => {
                    return Ok(rest.iter().rev().fold(next, |path, part| path.join(part)));
                }
                Ok(DirEntryKind::Missing) => return Err(render::missing_error(root, &next)),
                Err(errno) => return Err(render::errno_error(root, &next, errno)),
            };
            links += 1;
            let target = String::from_utf8(target).ok().filter(|_| links <= LINKS_MAX);
            let Some(target) = target else { return Err(link_loop_error(requested)) };
            if target.starts_with('/') {
                let target =
                    self.strip_directory(&target).ok_or_else(|| escape_error(requested))?;
                resolved = RelPath::root();
                rest.extend(target.names().rev().map(str::to_owned));
            } else {
                let parts = target.split('/').rev().filter(|part| !matches!(*part, "" | "."));
                rest.extend(parts.map(str::to_owned));
            }
        }
        Ok(resolved)
    }

    fn check_link(&self, tool: &str, requested: &RelPath, name: &RelPath) -> Result<(), ToolError> {
        let subject =
            permission::PermissionSubject { tool, text: Some(name.as_str()), is_shell: false };
        let verdict = self.permissions.check(&subject);
        if verdict.is_allowed() {
            return Ok(());
        }
        let requested = quote_name(requested.as_str());
        let name = quote_name(name.as_str());
        Err(ToolError::new(match verdict {
            PermissionVerdict::Refused(refused) => {
                format!("{requested} is a link to {name}, and {refused}")
            }
            _ => format!(
                "{requested} is a link to {name}, which is not allowed outright; use that path"
            ),
        }))
    }
}

fn escape_error(requested: &RelPath) -> ToolError {
    let requested = quote_name(requested.as_str());
    ToolError::new(format!(
        "{requested} is or goes through a link that leads out of your directory"
    ))
}

fn spelling_error(name: &RelPath) -> ToolError {
    let name = quote_name(name.as_str());
    ToolError::new(format!("{name} is spelled differently; list_files shows the names"))
}

fn link_loop_error(requested: &RelPath) -> ToolError {
    let requested = quote_name(requested.as_str());
    ToolError::new(format!(
        "{requested} goes through a cycle of links, or to a name that is not UTF-8"
    ))
}
