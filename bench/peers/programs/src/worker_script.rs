//! A script that does a work by the library of a program.
//!
//! ```text
//! script WORK COUNT IN_FLIGHT STEPS
//!   script: ready     its setup is done
//!   runner: go        both clocks run
//!   script: done      all items have ended
//! ```

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use peers_harness::{BoxError, IN_FLIGHT, ProcessTree, STEPS_PER_TASK, Sample, Work};

use crate::server::last_line;

/// A script that has done its setup.
#[derive(Debug)]
pub struct WorkerScript {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    log: PathBuf,
}

impl WorkerScript {
    /// Returns the path of a script in this directory.
    pub fn path(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
    }

    /// Starts a script and waits for the end of its setup. Its errors go to a file of the directory.
    pub fn start(
        interpreter: &mut Command,
        work: Work,
        count: usize,
        dir: &Path,
    ) -> Result<Self, BoxError> {
        let log = dir.join("worker.log");
        interpreter.args([work.name(), &count.to_string()]);
        interpreter.args([IN_FLIGHT.to_string(), STEPS_PER_TASK.to_string()]);
        interpreter.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let mut child = interpreter.current_dir(dir).spawn()?;
        let input = child.stdin.take().ok_or("a pipe to the script")?;
        let output = BufReader::new(child.stdout.take().ok_or("a pipe from the script")?);
        let mut script = Self { input, output, log };
        script.expect_line("ready")?;
        Ok(script)
    }

    /// Lets the script do its work, and measures it.
    pub fn measure(mut self, tree: &ProcessTree) -> Result<Sample, BoxError> {
        let watch = tree.start_stopwatch();
        self.input.write_all(b"go\n")?;
        self.expect_line("done")?;
        Ok(watch.stop())
    }

    fn expect_line(&mut self, expected: &str) -> Result<(), BoxError> {
        let mut line = String::new();
        while self.output.read_line(&mut line)? > 0 {
            if line.trim() == expected {
                return Ok(());
            }
            line.clear();
        }
        Err(format!("no `{expected}` from the script: {}", last_line(&self.log)).into())
    }
}
