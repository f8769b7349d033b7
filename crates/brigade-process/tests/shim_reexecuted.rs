//! The fallback: this very program is started again and becomes the shim.
//!
//! It has a main of its own, because the line under test stands first in one.

use std::error::Error;
use std::fs::{self, File};
use std::process::{Command, Stdio};

use brigade_process::companion;
use brigade_process::shim::record::{Ending, Phase, Record};

fn main() -> Result<(), Box<dyn Error>> {
    companion::run_if_asked();
    let directory = tempfile::tempdir()?;
    let mut shim = Command::new(std::env::current_exe()?);
    shim.args(["--brigade-shim", "run"]).arg(directory.path()).arg("0".repeat(32));
    shim.args(["4096", "1000", "none", "", "", "", "--", "sh", "-c", "echo out; exit 7"]);
    let status = shim.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    assert!(status.success(), "{status}");
    let record = Record::read_from(&File::open(directory.path().join("claim"))?)?;
    assert_eq!((record.phase, record.ending), (Phase::Done, Some(Ending::Code(7))));
    assert_eq!(fs::read(directory.path().join("stdout"))?, b"out\n");
    println!("a program that runs itself again: ok");
    Ok(())
}
