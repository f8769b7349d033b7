//! The fallback: this program starts itself again as the shim.
//!
//! It has its own `main`, because the call under test must come first in one.

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use brigade_process::shim::record::{ProcessExit, ShimPhase, ShimRecord};
use brigade_process::{BootId, Companion, ProcessLimits, ShimLaunch, ShimTiming, companion};

fn main() -> Result<(), Box<dyn Error>> {
    companion::run_shim_if_requested();
    becomes_a_shim()?;
    println!("a program that starts itself again as a shim: ok");
    if cfg!(all(target_os = "linux", target_env = "gnu")) {
        ignores_variables_of_its_process()?;
        println!("a shim that ignores the variables of its process: ok");
    }
    Ok(())
}

fn becomes_a_shim() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let mut shim = Command::new(std::env::current_exe()?);
    shim.args(["--brigade-shim", "run"]).arg(directory.path()).arg("0".repeat(32));
    shim.args(["4096", "1000", "none", "", "", "", "--", "sh", "-c", "echo out; exit 7"]);
    let status = shim.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    assert!(status.success(), "{status}");
    let record = ShimRecord::read_from(&File::open(directory.path().join("claim"))?)?;
    assert_eq!((record.phase, record.exit), (ShimPhase::Done, Some(ProcessExit::Code(7))));
    assert_eq!(fs::read(directory.path().join("stdout"))?, b"out\n");
    Ok(())
}

/// The dynamic loader writes a file for each program with `LD_DEBUG`, as it would obey
/// `LD_PRELOAD`. It must do so for the process, but not for this program as its shim.
fn ignores_variables_of_its_process() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let traces = tempfile::tempdir()?;
    let missing_dir = directory.path().join("missing");
    let own_program = Companion::prepare(&missing_dir)?;
    assert_eq!(own_program.path(), Path::new("/proc/self/exe"));
    let launch = ShimLaunch {
        dir: directory.path(),
        boot_id: BootId([0; 16]),
        argv: &["/bin/sh", "-c", "echo $$"].map(Into::into),
        env: &[
            ("LD_DEBUG".into(), "files".into()),
            ("LD_DEBUG_OUTPUT".into(), traces.path().join("trace").into()),
        ],
        cwd: None,
        reads_input: false,
        output_cap: 4096,
        grace: Duration::from_secs(5),
        timing: ShimTiming::default(),
        limits: ProcessLimits::default(),
        terminal: None,
        sandbox: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { launch.start(&own_program)?.wait_exit().await })?;
    let pid = fs::read_to_string(directory.path().join("stdout"))?;
    let mut traced = Vec::new();
    for entry in fs::read_dir(traces.path())? {
        traced.push(entry?.file_name());
    }
    assert_eq!(traced, [format!("trace.{}", pid.trim()).as_str()]);
    Ok(())
}
