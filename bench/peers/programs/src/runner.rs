//! The `main` of a runner.

use std::path::Path;
use std::process::ExitCode;

use peers_harness::{BoxError, Measured, ProcessTree, Work, run_peer};

use crate::installed::NotInstalled;

/// A program that takes part where it is installed.
pub trait Program {
    /// The name of the peer.
    const NAME: &'static str;
    /// The works that the program takes part with.
    const WORKS: &'static [Work];
    /// The reason why it does not take part with the other works.
    const OTHER_WORKS: &'static str;

    /// Returns the program and its version, with those of what it needs.
    fn version() -> Result<String, NotInstalled>;

    /// Does a work in an empty directory. The tree ends all processes afterwards.
    fn measure(
        work: Work,
        count: usize,
        dir: &Path,
        tree: &ProcessTree,
    ) -> Result<Measured, BoxError>;
}

/// Prints the version of a program, or does a work once.
pub fn run_program<P: Program>() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("version") {
        return print_version(P::version());
    }
    run_peer(P::NAME, |work, count| {
        if !P::WORKS.contains(&work) {
            return Ok(Measured::Unsupported(P::OTHER_WORKS));
        }
        let dir = tempfile::tempdir()?;
        let tree = ProcessTree::adopt()?;
        let result = P::measure(work, count, dir.path(), &tree);
        if tree.is_expired() {
            return Err("it had to be ended before the limit of a run".into());
        }
        result
    })
}

fn print_version(version: Result<String, NotInstalled>) -> ExitCode {
    match version {
        Ok(version) => {
            println!("{version}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
