//! The directory that the file tools work in, and what their agent may do there.

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

/// Links that are followed for one path: as many as the kernel would.
const LINKS_MAX: usize = 40;

/// A directory, and the permissions of the agent that works in it.
///
/// A path is judged by the rules as it is written (without `.` and `..`), and once more as what it
/// comes to where it goes through links: both must be allowed.
#[derive(Clone, Debug)]
pub struct WorkingDirectory {
    directory: Arc<Path>,
    /// Without links, once it was asked for.
    canonical: OnceLock<Option<PathBuf>>,
    /// Where it was found for good: a link that takes its place is not followed.
    pinned: Option<Arc<Path>>,
    permissions: Permissions,
    /// Each of those concerned apart, for what follows from a rule on another tool.
    grants: Vec<Permissions>,
    protected: ProtectedRules,
    private: Arc<[PrivateDirectory]>,
}

/// A path that was asked for, and what it comes to.
#[derive(Debug)]
pub(crate) struct LocatedPath {
    pub(crate) root: ConfinedDir,
    /// Without links. It need not be there.
    pub(crate) name: RelPath,
}

impl WorkingDirectory {
    /// An absolute directory; it is opened anew at each call.
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

    /// Keeps file tools out of these directories, whatever the rules say.
    #[must_use]
    pub fn without_private(self, private: Arc<[PrivateDirectory]>) -> Self {
        Self { private, ..self }
    }

    /// The same, kept to where the directory is now: for an agent whose commands could put a link to
    /// somewhere else in its place. Paths may begin with either name.
    #[must_use]
    pub fn pinned_at(self, canonical: PathBuf) -> Self {
        let found = Some(canonical.as_path().into());
        Self { pinned: found, canonical: OnceLock::from(Some(canonical)), ..self }
    }

    /// Where it is opened and gone through.
    pub(crate) fn directory(&self) -> &Path {
        self.pinned.as_deref().unwrap_or(&self.directory)
    }

    /// What a rule's pattern is held against. A path that leads out is refused by the call.
    pub(crate) fn subject(&self, path: &str) -> ToolSubject {
        let inside = self.parse_path(path);
        ToolSubject::Text(inside.map_or_else(|_| path.to_owned(), |inside| inside.to_string()))
    }

    pub(crate) fn open_root(&self) -> Result<ConfinedDir, ToolError> {
        let opened = match &self.pinned {
            Some(found) => ConfinedDir::open_without_links(found),
            None => ConfinedDir::open(&self.directory),
        };
        opened.map_err(|errno| {
            let directory = self.directory.display();
            let why = std::io::Error::from(errno);
            ToolError::new(format!("your directory {directory} cannot be used: {why}"))
        })
    }

    /// What a path comes to, if it stays inside and the agent may use this tool on it.
    pub(crate) fn locate(&self, tool: &str, path: &str) -> Result<LocatedPath, ToolError> {
        let asked = self.parse_path(path)?;
        let root = self.open_root()?;
        let name = self.resolve_links(&root, &asked)?;
        if name != asked {
            self.check_link(tool, &asked, &name)?;
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

    /// Whether what is in a file may be shown by a tool that is not `read_file`. Not if a rule keeps
    /// `read_file` from it; where nobody speaks of `read_file`, the other tool's permission will do.
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

    /// The private directory in which a path without links is, if this tool has to stay out of it.
    fn private_above(&self, tool: &str, path: &str) -> Option<&PrivateDirectory> {
        if self.private.is_empty() {
            return None;
        }
        let path = self.canonical().unwrap_or(&self.directory).join(path);
        self.private.iter().find(|private| private.refuses(tool, &path))
    }

    /// The directory without links.
    fn canonical(&self) -> Option<&Path> {
        self.canonical.get_or_init(|| self.directory.canonicalize().ok()).as_deref()
    }

    /// Whether a rule denies the tool for something that it came across.
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

    /// A path as it is written: relative, or absolute and within the directory.
    fn parse_path(&self, path: &str) -> Result<RelPath, ToolError> {
        if path.trim().is_empty() {
            return Err(ToolError::new("the argument `path` is blank; `.` is your directory"));
        }
        if path.len() > PATH_MAX || path.contains('\0') {
            let problem = format!("the argument `path`: {PATH_MAX} bytes at most, and none is 0");
            return Err(ToolError::new(problem));
        }
        let inside = if path.starts_with('/') {
            self.strip_directory(path)
        } else {
            RelPath::parse(path).ok()
        };
        inside.ok_or_else(|| {
            let directory = self.directory.display();
            let path = quote_name(path);
            ToolError::new(format!(
                "{path} is outside of your directory {directory}; give a path within it"
            ))
        })
    }

    /// An absolute path, from the directory on.
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

    /// Follows the links in a path, here and not in the kernel: a link that leads out is told, and
    /// what is opened in the end has a name without links, which the kernel is held to.
    fn resolve_links(&self, root: &ConfinedDir, asked: &RelPath) -> Result<RelPath, ToolError> {
        if matches!(root.inspect(asked), Ok(DirEntryKind::Other(_) | DirEntryKind::Missing)) {
            return Ok(asked.clone());
        }
        let mut done = RelPath::root();
        let mut rest: Vec<String> = asked.names().rev().map(str::to_owned).collect();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part == ".." {
                let above = done.split().map(|(above, _)| above);
                done = above.ok_or_else(|| escape_error(asked))?;
                continue;
            }
            let next = done.join(&part);
            let target = match root.inspect(&next) {
                Ok(DirEntryKind::Link(target)) => target,
                Ok(DirEntryKind::Other(_)) => {
                    done = next;
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
            let Some(target) = target else { return Err(link_loop_error(asked)) };
            if target.starts_with('/') {
                let target = self.strip_directory(&target).ok_or_else(|| escape_error(asked))?;
                done = RelPath::root();
                rest.extend(target.names().rev().map(str::to_owned));
            } else {
                let parts = target.split('/').rev().filter(|part| !matches!(*part, "" | "."));
                rest.extend(parts.map(str::to_owned));
            }
        }
        Ok(done)
    }

    fn check_link(&self, tool: &str, asked: &RelPath, name: &RelPath) -> Result<(), ToolError> {
        let subject =
            permission::PermissionSubject { tool, text: Some(name.as_str()), is_shell: false };
        let verdict = self.permissions.check(&subject);
        if verdict.is_allowed() {
            return Ok(());
        }
        let (asked, name) = (quote_name(asked.as_str()), quote_name(name.as_str()));
        Err(ToolError::new(match verdict {
            PermissionVerdict::Refused(refused) => {
                format!("{asked} is a link to {name}, and {refused}")
            }
            _ => format!("{asked} is a link to {name}, which is not allowed outright: name that"),
        }))
    }
}

fn escape_error(asked: &RelPath) -> ToolError {
    let asked = quote_name(asked.as_str());
    ToolError::new(format!("{asked} is or goes through a link that leads out of your directory"))
}

fn spelling_error(name: &RelPath) -> ToolError {
    let name = quote_name(name.as_str());
    ToolError::new(format!("{name} is spelled otherwise there; list_files shows how"))
}

fn link_loop_error(asked: &RelPath) -> ToolError {
    let asked = quote_name(asked.as_str());
    ToolError::new(format!(
        "{asked} goes through links in a circle, or to a name that is not UTF-8"
    ))
}
