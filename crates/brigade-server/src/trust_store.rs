//! The definitions that the operator trusts, in a file of the state directory.
//!
//! Trust is per repository and digest, so that a changed definition is not trusted. Only the daemon
//! writes the file, and only for the operator.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use brigade_agent::definition::DefinitionDigest;
use brigade_process::private_file::open_private;
use brigade_protocol::requests::{TrustedDefinition, TrustedRepository};
use brigade_runtime::agents::DefinitionTrust;
use serde::{Deserialize, Serialize};

use brigade_protocol::state_dir::StateDir;

const TRUST_FILE_VERSION: u32 = 1;
const TRUST_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The names of trusted definitions by digest, for each repository.
type TrustedRepositories = BTreeMap<PathBuf, BTreeMap<DefinitionDigest, String>>;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustFile {
    version: u32,
    repositories: TrustedRepositories,
}

/// The trusted definitions and their file.
#[derive(Debug)]
pub struct TrustStore {
    file: PathBuf,
    repositories: Mutex<TrustedRepositories>,
}

impl TrustStore {
    /// Reads the file, if there is one. An unreadable file is an error: the next grant would
    /// overwrite it.
    pub fn open(state_dir: &StateDir) -> io::Result<Self> {
        let file = state_dir.trust_path();
        let invalid = |error: io::Error| {
            let shown = file.display();
            io::Error::new(error.kind(), format!("{shown}: {error}; repair or remove it"))
        };
        let repositories = read_trust_file(&file).map_err(invalid)?;
        Ok(Self { file, repositories: Mutex::new(repositories) })
    }

    /// Returns all trusted definitions.
    pub fn list(&self) -> Vec<TrustedRepository> {
        self.lock().iter().map(|(path, trusted)| new_trusted_repository(path, trusted)).collect()
    }

    /// Trusts more definitions of a repository.
    pub fn grant(
        &self,
        repository: &Path,
        definitions: impl IntoIterator<Item = TrustedDefinition>,
    ) -> io::Result<()> {
        self.update(|repositories| {
            let trusted = repositories.entry(repository.to_owned()).or_default();
            trusted.extend(definitions.into_iter().map(|one| (one.digest, one.name)));
        })
    }

    /// Ends the trust in these definitions of a repository, or in all if none is named. Returns
    /// their number.
    pub fn revoke(&self, repository: &Path, digests: &[DefinitionDigest]) -> io::Result<usize> {
        let mut revoked = 0;
        self.update(|repositories| {
            let Some(trusted) = repositories.get_mut(repository) else { return };
            let before = trusted.len();
            trusted.retain(|digest, _| !digests.is_empty() && !digests.contains(digest));
            revoked = before - trusted.len();
            if trusted.is_empty() {
                repositories.remove(repository);
            }
        })?;
        Ok(revoked)
    }

    /// Writes the file first, then updates the memory, so that nothing is trusted that is not
    /// stored.
    fn update(&self, change: impl FnOnce(&mut TrustedRepositories)) -> io::Result<()> {
        let mut current = self.lock();
        let mut changed = current.clone();
        change(&mut changed);
        if changed != *current {
            write_trust_file(&self.file, &changed)?;
            *current = changed;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, TrustedRepositories> {
        self.repositories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DefinitionTrust for TrustStore {
    fn is_trusted(&self, repository: &Path, digest: &DefinitionDigest) -> bool {
        self.lock().get(repository).is_some_and(|trusted| trusted.contains_key(digest))
    }
}

fn new_trusted_repository(
    path: &Path,
    trusted: &BTreeMap<DefinitionDigest, String>,
) -> TrustedRepository {
    let definitions = trusted
        .iter()
        .map(|(digest, name)| TrustedDefinition { name: name.clone(), digest: digest.clone() });
    TrustedRepository { repository: path.display().to_string(), definitions: definitions.collect() }
}

fn read_trust_file(file: &Path) -> io::Result<TrustedRepositories> {
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(TrustedRepositories::new());
        }
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    opened.take(TRUST_FILE_BYTES_MAX).read_to_string(&mut text)?;
    let read: TrustFile = serde_json::from_str(&text)?;
    if read.version != TRUST_FILE_VERSION {
        return Err(io::Error::other(format!("its version {} is not supported", read.version)));
    }
    Ok(read.repositories)
}

/// Replaces the file atomically.
fn write_trust_file(file: &Path, repositories: &TrustedRepositories) -> io::Result<()> {
    let content = TrustFile { version: TRUST_FILE_VERSION, repositories: repositories.clone() };
    let draft = file.with_extension("json.new");
    let mut opened = open_private(&draft, File::options().write(true).truncate(true))?;
    opened.write_all(serde_json::to_string_pretty(&content)?.as_bytes())?;
    opened.sync_all()?;
    fs::rename(&draft, file)?;
    match file.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn definition(text: &str) -> TrustedDefinition {
        let digest = DefinitionDigest::of(text.as_bytes());
        TrustedDefinition { name: text.to_owned(), digest }
    }

    #[test]
    fn trust_outlives_the_daemon_and_ends_when_it_is_revoked() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state_dir = StateDir::new(dir.path());
        let here = Path::new("/here/.git");
        let there = Path::new("/there");
        let [one, two] = ["one", "two"].map(definition);
        let store = TrustStore::open(&state_dir).expect("an empty store");
        assert!(!store.is_trusted(here, &one.digest) && store.list().is_empty());
        store.grant(here, [one.clone(), two.clone()]).expect("it can be stored");
        let mode = fs::metadata(state_dir.trust_path()).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let store = TrustStore::open(&state_dir).expect("the same store");
        assert!(store.is_trusted(here, &one.digest) && store.is_trusted(here, &two.digest));
        assert!(!store.is_trusted(there, &one.digest), "trust is per repository");
        assert_eq!(store.revoke(there, &[]).expect("nothing"), 0);
        assert_eq!(store.revoke(here, std::slice::from_ref(&one.digest)).expect("one"), 1);
        assert!(!store.is_trusted(here, &one.digest) && store.is_trusted(here, &two.digest));
        assert_eq!(store.revoke(here, &[]).expect("all"), 1);
        assert!(TrustStore::open(&state_dir).expect("the same store").list().is_empty());
    }

    #[test]
    fn an_unreadable_file_is_not_overwritten() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let state_dir = StateDir::new(dir.path());
        for text in ["", "{}", r#"{"version": 2, "repositories": {}}"#, r#"{"version": 1}"#] {
            fs::write(state_dir.trust_path(), text).expect("a file");
            assert!(TrustStore::open(&state_dir).is_err(), "{text}");
        }
    }
}
