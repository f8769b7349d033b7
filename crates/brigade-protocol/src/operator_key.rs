//! The operator key: a secret in the state directory that makes its bearer the operator or a
//! client.
//!
//! The ancestors of a process show that it acts as a task. They do not identify the operator: a
//! process that outlived its shim has the same ancestors as a login shell. The operator therefore
//! sends a key that requires read access to the state directory, and every sandbox excludes that
//! directory.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::random_bytes::random_bytes;
use crate::state_dir::StateDir;

const KEY_BYTES: usize = 32;
const KEY_DIGITS: usize = 2 * KEY_BYTES;

/// A key: 64 hex digits. Its debug form does not show them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperatorKey(String);

impl OperatorKey {
    /// Reads the key of a state directory; `None` if it cannot be read, as in a sandbox.
    pub fn read(state_dir: &StateDir) -> Option<Self> {
        read(&state_dir.operator_key_path()).ok().flatten()
    }

    /// Reads the key, or creates one if it is missing, incomplete or readable by others. Only for
    /// the daemon that holds the lock of the state directory.
    pub fn ensure(state_dir: &StateDir) -> io::Result<Self> {
        let path = state_dir.operator_key_path();
        match read(&path)? {
            Some(key) => Ok(key),
            None => create_key(&path),
        }
    }

    /// Compares the keys in constant time.
    pub fn matches(&self, other: &Self) -> bool {
        let differ = |(ours, theirs): (u8, u8)| ours ^ theirs;
        let pairs = self.0.bytes().zip(other.0.bytes());
        self.0.len() == other.0.len() && pairs.map(differ).fold(0, |all, one| all | one) == 0
    }
}

impl fmt::Debug for OperatorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[operator key]")
    }
}

fn read(path: &Path) -> io::Result<Option<OperatorKey>> {
    let no_link = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(no_link).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.mode() & 0o077 != 0 {
        return Ok(None);
    }
    let mut text = String::new();
    file.take(KEY_DIGITS as u64 + 2).read_to_string(&mut text)?;
    let digits = text.trim_end();
    let is_whole = digits.len() == KEY_DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit());
    Ok(is_whole.then(|| OperatorKey(digits.to_owned())))
}

/// Creates a key. The file is written under another name first, so that no reader finds half a key.
fn create_key(path: &Path) -> io::Result<OperatorKey> {
    let random: [u8; KEY_BYTES] = random_bytes()?;
    let key = OperatorKey(random.iter().map(|byte| format!("{byte:02x}")).collect());
    let draft = path.with_extension("key.new");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    writeln!(file, "{}", key.0)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn new_state_dir() -> (tempfile::TempDir, StateDir) {
        let root = tempfile::tempdir().expect("a temporary directory");
        let state_dir = StateDir::new(root.path().join("state"));
        state_dir.create().expect("the state directory");
        (root, state_dir)
    }

    #[test]
    fn a_key_is_stable_and_private() {
        let (_root, state_dir) = new_state_dir();
        assert_eq!(OperatorKey::read(&state_dir), None);
        let key = OperatorKey::ensure(&state_dir).unwrap();
        assert_eq!(OperatorKey::ensure(&state_dir).unwrap(), key);
        assert_eq!(OperatorKey::read(&state_dir), Some(key.clone()));
        assert_eq!(fs::metadata(state_dir.operator_key_path()).unwrap().mode() & 0o777, 0o600);
        assert_eq!(format!("{key:?}"), "[operator key]");
    }

    #[test]
    fn an_incomplete_or_public_key_is_replaced() {
        let (_root, state_dir) = new_state_dir();
        let first = OperatorKey::ensure(&state_dir).unwrap();
        fs::set_permissions(state_dir.operator_key_path(), Permissions::from_mode(0o644)).unwrap();
        assert_eq!(OperatorKey::read(&state_dir), None);
        let second = OperatorKey::ensure(&state_dir).unwrap();
        assert_ne!(first, second);
        fs::write(state_dir.operator_key_path(), "abc\n").unwrap();
        assert_ne!(OperatorKey::ensure(&state_dir).unwrap(), second);
        fs::remove_file(state_dir.operator_key_path()).unwrap();
        std::os::unix::fs::symlink("/dev/zero", state_dir.operator_key_path()).unwrap();
        assert!(OperatorKey::ensure(&state_dir).is_err(), "a link is not followed");
    }

    #[test]
    fn only_the_whole_key_matches() {
        let key = |text: &str| OperatorKey(text.to_owned());
        assert!(key("abcd").matches(&key("abcd")));
        for wrong in ["", "abc", "abce", "bbcd", "abcde"] {
            assert!(!key("abcd").matches(&key(wrong)), "{wrong}");
        }
    }
}
