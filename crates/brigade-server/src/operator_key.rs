//! The operator key: a secret in the state directory that makes its bearer the operator or a client.
//!
//! Ancestors tell which processes act as tasks. They do not tell who is the operator: a process that
//! outlived its shim has the same ancestors as a login shell. So the operator shows something that only
//! somebody who may read the state directory has, and every sandbox excludes that directory.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::state_dir::StateDir;

const KEY_BYTES: usize = 32;
const KEY_DIGITS: usize = 2 * KEY_BYTES;

/// A key as it is stored and sent: 64 hex digits. Its debug form does not show them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperatorKey(String);

impl OperatorKey {
    /// Reads the key of a state directory. None where there is no readable one, as within a sandbox.
    pub fn read(places: &StateDir) -> Option<Self> {
        read(&places.operator_key_path()).ok().flatten()
    }

    /// Reads the key, or makes one where there is none, none that is whole, or one that others could
    /// have read. Only for the daemon that holds the state directory.
    pub(crate) fn ensure(places: &StateDir) -> io::Result<Self> {
        let path = places.operator_key_path();
        match read(&path)? {
            Some(key) => Ok(key),
            None => create_key(&path),
        }
    }

    /// Compares in a time that does not depend on where the keys differ.
    pub(crate) fn matches(&self, other: &Self) -> bool {
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
    let about = file.metadata()?;
    if !about.is_file() || about.mode() & 0o077 != 0 {
        return Ok(None);
    }
    let mut text = String::new();
    file.take(KEY_DIGITS as u64 + 2).read_to_string(&mut text)?;
    let digits = text.trim_end();
    let is_whole = digits.len() == KEY_DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit());
    Ok(is_whole.then(|| OperatorKey(digits.to_owned())))
}

/// Writes a new key under another name first, so that nobody reads half of one.
fn create_key(path: &Path) -> io::Result<OperatorKey> {
    let mut random = [0; KEY_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
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

    fn places() -> (tempfile::TempDir, StateDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let places = StateDir::new(folder.path().join("state"));
        places.create().expect("its folder");
        (folder, places)
    }

    #[test]
    fn a_key_stays_and_is_for_nobody_else() {
        let (_folder, places) = places();
        assert_eq!(OperatorKey::read(&places), None);
        let key = OperatorKey::ensure(&places).unwrap();
        assert_eq!(OperatorKey::ensure(&places).unwrap(), key);
        assert_eq!(OperatorKey::read(&places), Some(key.clone()));
        assert_eq!(fs::metadata(places.operator_key_path()).unwrap().mode() & 0o777, 0o600);
        assert_eq!(format!("{key:?}"), "[operator key]");
    }

    #[test]
    fn a_key_that_is_broken_or_was_open_to_others_is_replaced() {
        let (_folder, places) = places();
        let first = OperatorKey::ensure(&places).unwrap();
        fs::set_permissions(places.operator_key_path(), Permissions::from_mode(0o644)).unwrap();
        assert_eq!(OperatorKey::read(&places), None);
        let second = OperatorKey::ensure(&places).unwrap();
        assert_ne!(first, second);
        fs::write(places.operator_key_path(), "abc\n").unwrap();
        assert_ne!(OperatorKey::ensure(&places).unwrap(), second);
        fs::remove_file(places.operator_key_path()).unwrap();
        std::os::unix::fs::symlink("/dev/zero", places.operator_key_path()).unwrap();
        assert!(OperatorKey::ensure(&places).is_err(), "a link is not followed");
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
