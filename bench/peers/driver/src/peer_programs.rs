//! The peers: their packages, versions and builds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A peer as it is listed here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// The directory of its workspace, relative to `bench/peers`.
    workspace: &'static str,
    /// The crate that is measured.
    library: &'static str,
    /// The colour of its bars, readable on a light and on a dark background.
    pub(crate) colour: &'static str,
}

/// All peers, in the order of their turns. Brigade is the first.
pub(crate) const PEERS: [Peer; 6] = [
    Peer { name: "brigade", workspace: ".", library: "brigade", colour: "#d9622b" },
    Peer { name: "tokio", workspace: ".", library: "tokio", colour: "#7d8590" },
    Peer { name: "rusqlite", workspace: ".", library: "rusqlite", colour: "#4d8fd1" },
    Peer { name: "koda", workspace: "others", library: "koda-core", colour: "#3fa266" },
    Peer { name: "durare", workspace: "others", library: "durare", colour: "#9a6fd0" },
    Peer { name: "awaken", workspace: "others", library: "awaken-runtime", colour: "#c09a1e" },
];

/// A peer that can run, or the reason why it cannot.
#[derive(Debug)]
pub(crate) struct PeerProgram {
    pub(crate) peer: Peer,
    pub(crate) version: String,
    pub(crate) program: Result<PathBuf, String>,
}

/// Returns the directory `bench/peers`.
pub(crate) fn peers_dir() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// Builds each peer. A peer that cannot be built stays in the list with the reason.
pub(crate) fn prepare(build: bool) -> Vec<PeerProgram> {
    let dir = peers_dir();
    PEERS.into_iter().map(|peer| prepare_peer(&dir, peer, build)).collect()
}

fn prepare_peer(dir: &Path, peer: Peer, build: bool) -> PeerProgram {
    let workspace = dir.join(peer.workspace);
    let package = format!("peer-{}", peer.name);
    let mut program = Ok(dir.join("target/release").join(&package));
    if build {
        println!("building {package} ...");
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--quiet", "--release", "--locked", "--package", &package]);
        let status = cargo.current_dir(&workspace).status();
        if !status.is_ok_and(|status| status.success()) {
            program = Err("it could not be built".to_owned());
        }
    }
    let program = program
        .and_then(|path| if path.exists() { Ok(path) } else { Err("it was not built".to_owned()) });
    let lock = fs::read_to_string(workspace.join("Cargo.lock")).unwrap_or_default();
    let version = locked_version(&lock, peer.library).unwrap_or("unknown").to_owned();
    PeerProgram { peer, version, program }
}

/// Returns the version of a crate in a lock file.
fn locked_version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let (_, entry) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    entry.split('"').next()
}

impl PeerProgram {
    /// Returns the library with its version.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.peer.library, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_that_of_the_whole_name() {
        let lock =
            "name = \"tokio-util\"\nversion = \"0.7.1\"\n\nname = \"tokio\"\nversion = \"1.2\"\n";
        assert_eq!(locked_version(lock, "tokio"), Some("1.2"));
        assert_eq!(locked_version(lock, "koda"), None);
    }
}
