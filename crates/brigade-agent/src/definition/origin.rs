//! The origin and the digest of a definition, which trust in it depends on.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use brigade_model::truncate::truncate_chars;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The longest `.git` or `commondir` file that is read.
const GIT_FILE_MAX: u64 = 8 * 1024;
const DIGEST_PREFIX: &str = "sha256:";

/// The source of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DefinitionOrigin {
    /// A program that built it in Rust.
    Program,
    /// A file in the user's configuration.
    User,
    /// A file in the workspace. It is untrusted until the operator trusts it.
    Workspace,
}

impl DefinitionOrigin {
    /// Returns the unambiguous name of a definition of this origin, such as `user:reviewer`.
    pub fn qualify(self, name: &str) -> String {
        format!("{}:{name}", self.as_str())
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::User => "user",
            Self::Workspace => "workspace",
        }
    }
}

/// A directory with definitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionDir {
    pub path: PathBuf,
    pub origin: DefinitionOrigin,
    /// A directory that must contain `path` after links are resolved.
    pub within: Option<PathBuf>,
}

impl DefinitionDir {
    /// Returns the user's directory: `brigade/agents` in this configuration directory.
    pub fn of_user(config: &Path) -> Self {
        Self::user(config.join("brigade").join("agents"))
    }

    /// Returns the directory `.brigade/agents` of a workspace.
    pub fn of_workspace(directory: &Path) -> Self {
        let path = directory.join(".brigade").join("agents");
        let within = Some(directory.to_owned());
        Self { path, origin: DefinitionOrigin::Workspace, within }
    }

    /// Creates a directory whose definitions are trusted like the user's.
    pub fn user(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), origin: DefinitionOrigin::User, within: None }
    }
}

/// The SHA-256 digest of a definition's file, as the file was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DefinitionDigest(String);

/// The error for a text that is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no digest; write `sha256:` and 64 hexadecimal digits")]
pub struct DigestError(pub String);

impl DefinitionDigest {
    pub fn of(bytes: &[u8]) -> Self {
        let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Self(format!("{DIGEST_PREFIX}{hex}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DefinitionDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for DefinitionDigest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        let hex = text.strip_prefix(DIGEST_PREFIX).filter(|hex| hex.len() == 64);
        match hex.filter(|hex| hex.chars().all(is_hex)) {
            Some(_) => Ok(Self(text.to_owned())),
            None => Err(DigestError(truncate_chars(text, 100))),
        }
    }
}

impl TryFrom<String> for DefinitionDigest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<DefinitionDigest> for String {
    fn from(digest: DefinitionDigest) -> Self {
        digest.0
    }
}

/// Finds the Git directory that all worktrees of a repository share. Without Git, it returns the directory
/// itself.
///
/// A directory can claim to belong to a foreign repository. It gains nothing, since trust covers only
/// files with known contents.
pub fn repository_of(directory: &Path) -> PathBuf {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let repository = directory.ancestors().find_map(|above| {
        let git = above.join(".git");
        match git.metadata() {
            Ok(found) if found.is_dir() => git.canonicalize().ok(),
            Ok(found) if found.is_file() => common_directory(above, &git),
            _ => None,
        }
    });
    repository.unwrap_or(directory)
}

/// Reads the shared Git directory from the `.git` file of a worktree.
fn common_directory(worktree: &Path, git: &Path) -> Option<PathBuf> {
    let text = read_first_line(git)?;
    let own = worktree.join(text.strip_prefix("gitdir:")?.trim());
    let common = read_first_line(&own.join("commondir"));
    let common = common.map_or_else(|| own.clone(), |common| own.join(common.trim()));
    common.canonicalize().ok()
}

fn read_first_line(file: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(file).ok()?.take(GIT_FILE_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_digest_has_one_spelling() {
        let digest = DefinitionDigest::of(b"abc");
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.as_str(), text);
        assert_eq!(text.parse(), Ok(digest));
        for wrong in ["", "sha256:ba78", &text.to_uppercase(), &text[7..], &format!("{text}0")] {
            assert!(wrong.parse::<DefinitionDigest>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn worktrees_belong_to_one_repository_and_a_plain_directory_to_itself() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        fs::create_dir_all(at("main/.git/worktrees/one")).unwrap();
        fs::create_dir_all(at("main/src")).unwrap();
        fs::create_dir_all(at("one/src")).unwrap();
        fs::create_dir_all(at("plain")).unwrap();
        fs::write(at("main/.git/worktrees/one/commondir"), "../..\n").unwrap();
        let gitdir = format!("gitdir: {}\n", at("main/.git/worktrees/one").display());
        fs::write(at("one/.git"), gitdir).unwrap();
        for directory in ["main", "main/src", "one", "one/src"] {
            assert_eq!(repository_of(&at(directory)), at("main/.git"), "{directory}");
        }
        assert_eq!(repository_of(&at("plain")), at("plain"));
        fs::write(at("plain/.git"), "gitdir: /nowhere/at/all\n").unwrap();
        assert_eq!(repository_of(&at("plain")), at("plain"));
        // A submodule has a directory of its own.
        fs::create_dir_all(at("main/.git/modules/sub")).unwrap();
        fs::create_dir_all(at("main/sub")).unwrap();
        fs::write(at("main/sub/.git"), "gitdir: ../.git/modules/sub\n").unwrap();
        assert_eq!(repository_of(&at("main/sub")), at("main/.git/modules/sub"));
    }
}
